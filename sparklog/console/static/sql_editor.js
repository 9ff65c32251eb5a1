"use strict";
// The editor of SQL: CodeMirror before the form's text area, which keeps the statement and works
// without this script. The editor stands in a shadow tree, where its styles need no <style> element:
// the page's policy allows none. Colours are the page's own properties.
(() => {
  const { EditorState, EditorView, tags } = CodeMirror;
  const TABLES = ["json", "registry", "latest", "bare"];
  const COLUMNS = ["topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers"];
  // Words of DuckDB's statements that read.
  const DIALECT = CodeMirror.SQLDialect.define({
    keywords: "all and anti any as asc asof at between by case cast cross current describe desc " +
      "distinct else end except exclude exists explain false filter first following from full " +
      "group having ilike in inner intersect interval is join last lateral left like limit not " +
      "null nulls of offset on or order outer over partition pivot preceding qualify range " +
      "recursive replace right row rows sample select semi show similar summarize then true try_cast " +
      "unbounded union unpivot using values version when where window with",
    types: "bigint blob boolean date decimal double float hugeint integer json list map smallint " +
      "struct text time timestamp timestamptz tinyint uuid varchar",
    builtin: "avg coalesce count date_trunc epoch_ms first_value histogram lag last_value lead " +
      "length lower max max_by median min min_by now quantile_cont rank regexp_extract " +
      "regexp_matches replace round row_number split_part strftime strlen substring sum " +
      "to_timestamp trim unnest upper",
  });
  const PLAIN = /^[a-z_][a-z0-9_]*$/;

  const colours = CodeMirror.HighlightStyle.define([
    { tag: tags.keyword, color: "var(--accent)", fontWeight: "600" },
    { tag: [tags.string, tags.special(tags.string)], color: "var(--good)" },
    { tag: [tags.number, tags.bool, tags.null], color: "var(--warning)" },
    { tag: tags.comment, color: "var(--faint)", fontStyle: "italic" },
    { tag: [tags.typeName, tags.standard(tags.name)], color: "var(--note)" },
  ]);
  const look = EditorView.theme({
    "&": { color: "var(--ink)", backgroundColor: "var(--paper)", fontSize: "0.86rem",
      border: "1px solid color-mix(in srgb, var(--faint) 70%, var(--line))", borderRadius: "7px" },
    "&.cm-focused": { outline: "3px solid var(--accent)", outlineOffset: "2px" },
    ".cm-scroller": { fontFamily: "var(--mono)", minHeight: "8rem", maxHeight: "26rem", overflow: "auto" },
    ".cm-content": { caretColor: "var(--ink)", padding: "0.4rem 0" },
    ".cm-placeholder": { color: "var(--faint)" },
    "&.cm-focused .cm-matchingBracket": { backgroundColor: "var(--accent-wash)" },
    ".cm-tooltip": { color: "var(--ink)", backgroundColor: "var(--paper)", border: "1px solid var(--line)" },
    ".cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)" },
    ".cm-tooltip-autocomplete > ul > li[aria-selected]": { color: "var(--accent-ink)", backgroundColor: "var(--accent)" },
  });

  function quoted(name) {
    return PLAIN.test(name) ? name : `"${name.replaceAll('"', '""')}"`;
  }

  async function topicsWith(part, signal) {
    const answer = await fetch(`/api/v1/topics?filter=${encodeURIComponent(part)}`, { signal });
    return answer.ok ? answer.json() : { topics: [] };
  }

  // Topics whose names have the word in them, and the columns and tables that each topic has.
  async function complete(context) {
    const word = context.matchBefore(/[\w.$-]+/);
    const inside = CodeMirror.syntaxTree(context.state).resolveInner(context.pos, -1).name;
    if ((!word && !context.explicit) || /String|Comment/.test(inside)) return null;
    const text = word ? word.text : "";
    const from = word ? word.from : context.pos;
    const table = TABLES.find((one) => text.startsWith(`${one}.`));
    const prefix = table ? `${table}.` : "";
    const stopped = new AbortController();
    context.addEventListener("abort", () => stopped.abort());
    let found;
    try {
      found = await topicsWith(text.slice(prefix.length), stopped.signal);
    } catch {
      found = { topics: [] };
    }
    const topics = found.topics.map((one) => ({
      label: prefix + one.name, apply: prefix + quoted(one.name), type: "class", detail: "topic",
    }));
    const others = table ? [] : [
      ...COLUMNS.map((name) => ({ label: name, type: "property", detail: "column" })),
      ...TABLES.map((name) => ({ label: `${name}.`, type: "namespace", detail: "decoded topics" })),
    ];
    const whole = found.pages === 1;  // a longer word then needs no further request
    return { from, options: [...topics, ...others], validFor: whole ? /^[\w.$-]*$/ : undefined };
  }

  function open(area) {
    const host = document.createElement("div");
    const tree = host.attachShadow({ mode: "open" });
    const limit = area.maxLength;
    const submit = () => { area.form.requestSubmit(); return true; };
    const leave = (view) => { view.contentDOM.blur(); return true; };
    host.className = "sql-editor";
    host.dataset.editor = "";
    host.dataset.search = "";
    const view = new EditorView({
      root: tree,
      parent: tree,
      state: EditorState.create({
        doc: area.value,
        extensions: [
          CodeMirror.Prec.highest(CodeMirror.keymap.of([{ key: "Ctrl-Enter", run: submit }])),
          CodeMirror.keymap.of([
            ...CodeMirror.closeBracketsKeymap, ...CodeMirror.completionKeymap,
            ...CodeMirror.historyKeymap, ...CodeMirror.defaultKeymap, { key: "Escape", run: leave },
          ]),
          CodeMirror.history(),
          CodeMirror.bracketMatching(),
          CodeMirror.closeBrackets(),
          CodeMirror.sql({ dialect: DIALECT, upperCaseKeywords: true }),
          CodeMirror.autocompletion({ icons: false }),
          DIALECT.language.data.of({ autocomplete: complete }),
          CodeMirror.syntaxHighlighting(colours),
          CodeMirror.placeholder(area.placeholder),
          EditorView.lineWrapping,
          EditorView.contentAttributes.of({
            "aria-label": "Statement", "aria-multiline": "true", autocapitalize: "off",
          }),
          EditorState.changeFilter.of((change) => limit < 0 || change.newDoc.length <= limit),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) area.value = update.state.doc.toString();
          }),
          look,
        ],
      }),
    });
    host.focus = () => view.focus();
    host.blur = () => view.contentDOM.blur();
    delete area.dataset.search;
    area.required = false;  // a hidden field cannot show why it is wrong; the console's answer does
    area.closest("label").hidden = true;
    area.closest("label").before(host);
  }

  for (const area of document.querySelectorAll("textarea[data-runs]")) open(area);
})();
