"""Every decision has a number of its own, and says it twice: in its file's name and its heading."""

from __future__ import annotations

import re
from collections import Counter

from tests.tidy.tree import ROOT, tracked_files

FOLDER = "sparklog/decisions/"


def misnumbered(documents: dict[str, str]) -> list[str]:
    """Return what is wrong with the numbers of documents, by file name."""
    numbers = Counter(name[:4] for name in documents)
    wrong = [f"{name}: number taken" for name in documents if numbers[name[:4]] > 1]
    for name, text in documents.items():
        heading = re.match(r"# (\d+)\. ", text)
        if heading is None or f"{int(heading[1]):04}" != name[:4]:
            wrong.append(f"{name}: another number in its heading")
    return wrong


def test_decisions_are_numbered() -> None:
    files = [ROOT / name for name in tracked_files() if name.startswith(FOLDER)]
    documents = {path.name: path.read_text() for path in files if path.name != "README.md"}
    assert documents
    assert misnumbered(documents) == []


def test_a_wrong_number_is_found() -> None:
    documents = {"0001-a.md": "# 1. A", "0001-b.md": "# 1. B", "0002-c.md": "# 3. C"}
    assert misnumbered(documents) == [
        "0001-a.md: number taken",
        "0001-b.md: number taken",
        "0002-c.md: another number in its heading",
    ]
