"""The language rules of CONTRIBUTING.md as a program, for docstrings, comments and pages.

`python -m tests.tidy.language PATH...` prints each violation with its line.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

WORDS_MAX = 25
"""Words in a sentence, at most; text in backticks, with parentheses after it, is one word."""

OPENINGS = re.compile(
    r"^(Who|Whoever|Whom|Whose|What|Whatever|Which|Whichever|Whether|How|Where|Wherever)\b"
)
PRIVATE_WORDS = re.compile(
    r"\b(whoever|whatever|nobody|somebody|any more|so many|let go|lets go|take in|takes in|taken in"
    r"|told|tells?|hears?|heard|rooms?|graves?|bur(?:y|ied|ies)|weather|makes? way)\b",
    re.IGNORECASE,
)
_CODE = re.compile(r"``[^`]*``|`[^`]*`|https?://\S+")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[A-Z0-9`\"'(\[*])")
_LABEL = re.compile(r"^\s*(?:[-*]|\d+\.|[A-Z][A-Z-]*-?\d+:?|`?[a-z_][a-z0-9_]*`?:)\s+")
"""A bullet, a number, an invariant or an argument: an item begins there."""
_SECTION = re.compile(r"^(Args|Returns|Raises|Yields|Attributes|Example|Examples):\s*$")


@dataclass(frozen=True)
class Violation:
    """One sentence that breaks a rule."""

    line: int
    rule: str
    text: str


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Yield the sentences of prose with the line they begin at, counted from 0."""
    paragraph: list[str] = []
    start = 0
    for number, line in enumerate([*text.splitlines(), ""]):
        blank = not line.strip() or _SECTION.match(line.strip()) is not None
        starts_item = _LABEL.match(line) is not None
        if (blank or starts_item) and paragraph:
            yield from _split(" ".join(paragraph), start)
            paragraph = []
        if blank:
            continue
        if not paragraph:
            start = number
        paragraph.append(_LABEL.sub("", line).strip())


def _split(paragraph: str, start: int) -> Iterator[tuple[int, str]]:
    for sentence in _SENTENCE_END.split(paragraph):
        if sentence.strip():
            yield start, sentence.strip()


def word_count(sentence: str) -> int:
    """Return the number of words; a stretch of code counts as one."""
    plain = _CODE.sub("code", sentence)
    return len(re.findall(r"[A-Za-z0-9][\w'\u2019-]*", plain))


def violations_of_prose(text: str) -> Iterator[Violation]:
    """Yield what breaks a rule in plain prose."""
    for line, sentence in sentences(text):
        if sentence.endswith("?"):
            continue
        plain = _CODE.sub("code", sentence)
        if (words := word_count(sentence)) > WORDS_MAX:
            yield Violation(line, f"{words} words", sentence)
        if OPENINGS.match(plain):
            yield Violation(line, "opening", sentence)
        if found := PRIVATE_WORDS.search(plain):
            yield Violation(line, f"word {found[0]!r}", sentence)


def violations_of_source(text: str) -> Iterator[Violation]:
    """Yield what breaks a rule in the docstrings and comments of Python source."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            prose = node.value.value
            if isinstance(prose, str):
                for found in violations_of_prose(prose):
                    yield Violation(node.lineno + found.line, found.rule, found.text)
    block: list[str] = []
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            line = token.start[0]
            if block and line != last + 1:
                yield from _violations_of_comment(block, first)
                block = []
            if not block:
                first = line
            block.append(token.string.lstrip("#:! "))
            last = line
    if block:
        yield from _violations_of_comment(block, first)


def _violations_of_comment(block: list[str], first: int) -> Iterator[Violation]:
    for found in violations_of_prose("\n".join(block)):
        yield Violation(first + found.line, found.rule, found.text)


def violations_of_page(text: str) -> Iterator[Violation]:
    """Yield what breaks a rule in a Markdown page, outside code blocks, tables and headings."""
    kept = []
    fenced = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
            kept.append("")
        elif fenced or line.lstrip().startswith(("|", "#")):
            kept.append("")
        else:
            kept.append(line)
    yield from violations_of_prose("\n".join(kept))


def violations_of(path: Path) -> list[Violation]:
    """Return what breaks a rule in a file, Python or Markdown."""
    text = path.read_text(encoding="utf-8")
    found = violations_of_source(text) if path.suffix == ".py" else violations_of_page(text)
    return sorted(found, key=lambda one: one.line)


def main() -> None:
    """Print the violations of the files and folders that are named."""
    total = 0
    for argument in sys.argv[1:]:
        path = Path(argument)
        files = [path] if path.is_file() else sorted([*path.rglob("*.py"), *path.rglob("*.md")])
        for file in files:
            for found in violations_of(file):
                total += 1
                print(f"{file}:{found.line}: {found.rule}: {found.text}")
    print(f"{total} violations")


if __name__ == "__main__":
    main()
