"""The results as text: a table for the terminal, one in Markdown, and a JSON document. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tests.bench.common.results import Results, spread

SYSTEMS = ("sparklog", "kafka", "parquet", "spark")
"""The order of the columns; any other system comes after them."""
WORDS = {"measure", "unit", "target", "reached"}
"""Columns that are no numbers."""
JSON_FORMAT = 1


def amount(value: float) -> str:
    """Return a figure with three or four digits that matter, thousands in K and M."""
    for size, letter in ((1_000_000, "M"), (10_000, "K")):
        if abs(value) >= size:
            scaled = value / (1_000_000 if letter == "M" else 1000)
            return f"{scaled:.{2 if scaled < 100 else 0}f} {letter}"
    if value == int(value):
        return str(int(value))
    return f"{value:.{3 if abs(value) < 10 else 1}f}"


def systems_of(results: Results) -> list[str]:
    """Return the systems that were measured, in the order of their columns."""
    measured = dict.fromkeys(sample.system for sample in results.samples)
    known = [system for system in SYSTEMS if system in measured]
    return known + [system for system in measured if system not in SYSTEMS]


def header(results: Results) -> tuple[str, ...]:
    """Return the names of the columns."""
    return ("measure", "unit", *systems_of(results), "target", "measured", "reached")


def table_rows(results: Results) -> list[tuple[str, ...]]:
    """Return one line per target; a measure's figures stand on its first line."""
    systems = systems_of(results)
    rows: list[tuple[str, ...]] = []
    for measure in results.measures:
        medians = results.medians(measure.name)
        figures = [amount(medians[s]) if s in medians else "-" for s in systems]
        verdicts = [(v.target, v.figure, v.word) for v in results.verdicts(measure)]
        first, *more = verdicts or [("", "", "")]
        rows.append((measure.name, measure.unit, *figures, *first))
        rows.extend(("", "", *("" for _ in systems), *verdict) for verdict in more)
    return rows


def text_table(results: Results) -> str:
    """Return the table for a terminal."""
    names = header(results)
    rows = [names, *table_rows(results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(names))]
    lines = [_text_line(row, names, widths) for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]]) + "\n"


def _text_line(row: Sequence[str], names: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        cell.ljust(width) if name in WORDS else cell.rjust(width)
        for name, cell, width in zip(names, row, widths, strict=True)
    ]
    return "  ".join(cells).rstrip()


def markdown(results: Results, facts: Mapping[str, Any]) -> str:
    """Return the table in Markdown, with what it was measured on."""
    names = header(results)
    lines = [
        f"# {facts['title']}, {facts['plan']['name']} sizes",
        "",
        f"Medians of {facts['plan']['rounds']} interleaved rounds after a warm-up. "
        "Rates are higher when better, costs lower. "
        + ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
        + ".",
        "",
        ", ".join(f"{name}: {value}" for name, value in facts["hardware"].items()) + ".",
        "",
        "| " + " | ".join(names) + " |",
        "|" + "|".join("---" if name in WORDS else "--:" for name in names) + "|",
    ]
    lines += ["| " + " | ".join(row) + " |" for row in table_rows(results)]
    failed = results.failed_checks
    lines += ["", f"Checks: {len(results.checks) - len(failed)} passed, {len(failed)} failed."]
    lines += [f"- FAILED {check.name}: {check.detail}" for check in failed]
    return "\n".join(lines) + "\n"


def document(results: Results, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything as one JSON-able document, every raw figure included."""
    return {
        "format": JSON_FORMAT,
        **facts,
        "measures": [
            {
                "name": measure.name,
                "group": measure.group,
                "unit": measure.unit,
                "medians": (medians := results.medians(measure.name)),
                "spread": {s: spread(results.values(measure.name, s)) for s in medians},
                "targets": [asdict(verdict) for verdict in results.verdicts(measure)],
            }
            for measure in results.measures
        ],
        "samples": [asdict(sample) for sample in results.samples],
        "checks": [asdict(check) for check in results.checks],
    }
