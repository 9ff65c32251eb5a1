"""The changelog: each entry is one sentence of at most 30 words, and no entry stands twice."""

from __future__ import annotations

import re
from collections import Counter

from tests.tidy.language import sentences, word_count
from tests.tidy.tree import ROOT

WORDS_MAX = 30
_ENTRY = re.compile(r"^ *- ", re.MULTILINE)
_LINK = re.compile(r"\(\[why\]\([^)]*\)\)")
"""A link to a decision counts as no word."""


def entries(text: str) -> list[str]:
    """Return the entries of a changelog, each on one line."""
    sections = re.split(r"^#.*$", text, flags=re.MULTILINE)
    found = (entry for section in sections for entry in _ENTRY.split(section)[1:])
    return [" ".join(entry.split()) for entry in found]


def faults_of(text: str) -> list[str]:
    """Return the entries that are no single sentence, too long, or repeated."""
    found = entries(text)
    faults = [f"stands twice: {entry}" for entry, count in Counter(found).items() if count > 1]
    for entry in found:
        plain = _LINK.sub("", entry)
        if len(list(sentences(plain))) != 1 or not plain.endswith("."):
            faults.append(f"no single sentence: {entry}")
        if (words := word_count(plain)) > WORDS_MAX:
            faults.append(f"{words} words: {entry}")
    return faults


def test_changelog_has_one_short_sentence_per_entry() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert len(entries(text)) > 100
    assert faults_of(text) == []


def test_faults_of_a_changelog_are_found() -> None:
    many = "word " * WORDS_MAX
    text = (
        "# Changelog\n\nNo entry. At all.\n\n### Fixes\n\n- The broker answers\n  at once"
        f" ([why](a/b-c.md)).\n  - It did not. Now it does.\n- No end\n- A {many}more.\n- No end\n"
    )
    assert faults_of(text) == [
        "stands twice: No end",
        "no single sentence: It did not. Now it does.",
        "no single sentence: No end",
        f"32 words: A {many}more.",
        "no single sentence: No end",
    ]
