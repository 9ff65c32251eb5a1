"""Decisions: each has a number, a title, a date, a status and a row of the index."""

from __future__ import annotations

import re
from collections import Counter

from tests.tidy.tree import ROOT, tracked_files

FOLDER = "sparklog/decisions/"
TITLE_CHARS_MAX = 80
_HEAD = re.compile(r"# (\d+)\. (.+)\n\nDate: (\d{4}-\d{2}-\d{2})\n\nStatus: (.+)\n\n")
_STATUS = re.compile(r"accepted|superseded by (\d+)")
_RIDDLE = re.compile(r"(Who|Whoever|What|Whatever|Which|Whether|How|Where)\b")
"""Openings of a title that leave out the subject."""


def faults_of(documents: dict[str, str], index: str) -> list[str]:
    """Return the faults of decisions, given their texts by file name and the page of the index."""
    taken = Counter(name[:4] for name in documents)
    faults = [f"{name}: its number is taken" for name in documents if taken[name[:4]] > 1]
    for name, text in documents.items():
        head = _HEAD.match(text)
        if head is None:
            faults.append(f"{name}: needs '# N. Title', 'Date: YYYY-MM-DD' and 'Status: ...' first")
            continue
        number, title, date, status = head.groups()
        if f"{int(number):04}" != name[:4]:
            faults.append(f"{name}: another number in its heading")
        if len(title) > TITLE_CHARS_MAX or _RIDDLE.match(title):
            faults.append(f"{name}: its title is long, or opens without a subject")
        known = _STATUS.fullmatch(status)
        if known is None or (known[1] is not None and f"{int(known[1]):04}" not in taken):
            faults.append(f"{name}: unknown status")
        if f"| [{number}]({name}) | {title} | {date} | {status} |\n" not in index:
            faults.append(f"{name}: its row of the index is missing or differs")
    rows = re.findall(r"^\| \[\d+\]\(([^)]+)\)", index, flags=re.MULTILINE)
    return faults + [f"{row}: a row without a page" for row in rows if row not in documents]


def test_decisions_have_number_title_date_status_and_row() -> None:
    files = [ROOT / name for name in tracked_files() if name.startswith(FOLDER)]
    pages = {path.name: path.read_text(encoding="utf-8") for path in files}
    index = pages.pop("README.md")
    assert pages
    assert faults_of(pages, index) == []


def test_faults_of_a_decision_are_found() -> None:
    head = "\n\nDate: 2026-11-21\n\nStatus: accepted\n\nText"
    documents = {
        "0001-a.md": "# 1. A log" + head,
        "0001-b.md": "# 1. Who has a log" + head,
        "0002-c.md": "# 3. A store" + head.replace("accepted", "superseded by 9"),
        "0004-d.md": "# 4. A page without a date\n\nText",
    }
    row = "| [1](0001-a.md) | A log | 2026-11-21 | accepted |\n"
    assert faults_of(documents, row + row.replace("0001-a", "0005-e")) == [
        "0001-a.md: its number is taken",
        "0001-b.md: its number is taken",
        "0001-b.md: its title is long, or opens without a subject",
        "0001-b.md: its row of the index is missing or differs",
        "0002-c.md: another number in its heading",
        "0002-c.md: unknown status",
        "0002-c.md: its row of the index is missing or differs",
        "0004-d.md: needs '# N. Title', 'Date: YYYY-MM-DD' and 'Status: ...' first",
        "0005-e.md: a row without a page",
    ]
