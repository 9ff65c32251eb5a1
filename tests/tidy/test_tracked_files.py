"""Tracked files carry nothing of one machine, documents link to what exists, no test is skipped."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.tidy.tree import ROOT, tracked_files

# Spelled in pieces, so that this file does not match itself.
MACHINE_WORDS = re.compile(
    "|".join(
        [
            r"(?<![\w.])/" + r"(work|Users|opt/wheels)/",
            r"(?<![\w.])/" + r"(root|home/\w+)/",
            r"index-" + r"url",
            r"maven2" + r"/",
            r"(?<=\w)/simple" + r"/",
        ]
    )
)
TOP_LEVEL = {"pyproject.toml", "README.md", "sparklog", "jobs", "conf", "tests", "Makefile"}
TOP_LEVEL_EXTRA = {"LICENSE", "CHANGELOG.md"}
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
EVADED = re.compile(r"pytest\.(mark\.)?(skip|skipif|xfail|importor" + r"skip)\b")


def machine_words(text: str) -> list[str]:
    """Return the lines that name a folder of one machine or a package registry."""
    return [line.strip() for line in text.splitlines() if MACHINE_WORDS.search(line)]


def heading_anchors(text: str) -> set[str]:
    """Return the anchors of a document's headings, spelled as code hosts spell them."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", text), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


def broken_links(document: Path) -> list[str]:
    """Return the relative links of a document that lead nowhere."""
    broken = []
    for link in LINK.findall(FENCED.sub("", document.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        known = anchor == "" or (
            target.is_file() and anchor in heading_anchors(target.read_text(encoding="utf-8"))
        )
        if not target.exists() or not known:
            broken.append(f"{document.name}: {link}")
    return broken


def unpinned(requirements: list[str], pinned: dict[str, str]) -> list[str]:
    """Return the requirements that the pinned versions do not meet."""
    return [
        text
        for text in requirements
        if canonicalize_name((need := Requirement(text)).name) != "sparklog"
        and not need.specifier.contains(pinned.get(canonicalize_name(need.name), "0"))
    ]


@pytest.mark.parametrize(
    "line",
    [
        "cd /" + "work/main",
        "open('/" + "home/ann/x')",
        'log = "/' + 'root/log"',
        "pip --index-" + "url x",
        "host/maven2" + "/org",
        "host/simple" + "/pkg",
    ],
)
def test_a_line_of_one_machine_is_found(line: str) -> None:
    assert machine_words(f"fine\n{line}\n") == [line]


@pytest.mark.parametrize(
    "line",
    ["file://" + "/data/log", "s3://b/" + "home", "rel/" + "root/x", "a simple" + "/b c"],
)
def test_a_harmless_line_is_left_alone(line: str) -> None:
    assert machine_words(line) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A heading, here\n")
    document = tmp_path / "doc.md"
    document.write_text(
        "[a](other.md) [b](gone.md) [c](other.md#a-heading-here) [d](other.md#gone)\n"
        "[e](https://example.org/gone) [f](#top)\n# Top\n```\n[g](gone.md)\n```\n"
    )
    assert broken_links(document) == ["doc.md: gone.md", "doc.md: other.md#gone"]


def test_a_requirement_without_its_pin_is_found() -> None:
    pinned = {"numpy": "2.4.6", "delta-spark": "4.4.0"}
    assert unpinned(["numpy>=2,<3", "delta_spark==4.4.0", "sparklog[test]"], pinned) == []
    assert unpinned(["numpy>=3", "polars>=1"], pinned) == ["numpy>=3", "polars>=1"]


def test_an_evaded_test_is_found() -> None:
    assert EVADED.search("@pytest.mark." + "skipif(True)")
    assert EVADED.search("pytest." + "skip('no')")


def test_no_tracked_file_names_one_machine() -> None:
    found = []
    for name in tracked_files():
        content = (ROOT / name).read_bytes()
        if b"\0" not in content:
            text = content.decode("utf-8", errors="replace")
            found += [f"{name}: {line}" for line in machine_words(text)]
    assert found == []


def test_links_of_documents_lead_to_existing_files() -> None:
    documents = [ROOT / name for name in tracked_files() if name.endswith(".md")]
    assert documents
    assert [line for document in documents for line in broken_links(document)] == []


def test_no_test_is_skipped_or_expected_to_fail() -> None:
    suite = [name for name in tracked_files() if name.startswith("tests/") and name.endswith(".py")]
    assert [name for name in suite if EVADED.search((ROOT / name).read_text("utf-8"))] == []


def test_the_top_level_holds_the_agreed_names_only() -> None:
    tops = {name.split("/", maxsplit=1)[0] for name in tracked_files()}
    assert {top for top in tops if not top.startswith(".")} <= TOP_LEVEL | TOP_LEVEL_EXTRA


def test_every_requirement_is_pinned_within_its_bounds() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    requirements = [*project["dependencies"], *(need for extra in extras for need in extra)]
    lines = (ROOT / "conf" / "constraints.txt").read_text("utf-8").splitlines()
    pins = (line.split("==") for line in lines if "==" in line)
    pinned: dict[str, str] = {canonicalize_name(name): version for name, version in pins}
    assert unpinned(requirements, pinned) == []
