// The parts of CodeMirror 6 that the console's editor of SQL uses, as one global name.
export { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete";
export { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
export { SQLDialect, sql } from "@codemirror/lang-sql";
export { HighlightStyle, bracketMatching, syntaxHighlighting, syntaxTree } from "@codemirror/language";
export { EditorState, Prec } from "@codemirror/state";
export { EditorView, keymap, placeholder } from "@codemirror/view";
export { tags } from "@lezer/highlight";
