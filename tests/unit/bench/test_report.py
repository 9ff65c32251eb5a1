"""Tables and the JSON document say the same as the figures."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.bench.common.report import amount, document, header, markdown, table_rows, text_table
from tests.bench.common.results import Measure, Results
from tests.bench.common.targets import CostAtMost, RateTimesPeer, TimeWithinPeer

FACTS: dict[str, Any] = {
    "title": "Log benchmark",
    "plan": {"name": "quick", "rounds": 3},
    "hardware": {"cores": "2"},
    "versions": {"kafka": "4.3.1"},
    "seed": 1,
}


@pytest.fixture
def results() -> Results:
    found = Results()
    targets = (RateTimesPeer("kafka", 5), TimeWithinPeer("parquet", 1.5))
    count = Measure("count()", "rows/s", targets, "read")
    for system, value in (("sparklog", 4_000_000.0), ("kafka", 500_000.0), ("parquet", 8e6)):
        found.add(count, system, value)
    latency = Measure("latency", "ms", (CostAtMost(300, "ms"),))
    for value in (250.0, 260.0, 900.0):
        found.add(latency, "sparklog", value)
    found.check_equal("rows", 1, 1)
    return found


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5_123_456, "5.12 M"),
        (123_400_000, "123 M"),
        (253_000, "253 K"),
        (63_010, "63.01 K"),
        (9_999, "9999"),
        (13.0, "13"),
        (0.0, "0"),
        (224.44, "224.4"),
        (1.2345, "1.234"),
    ],
)
def test_an_amount_keeps_the_digits_that_matter(value: float, text: str) -> None:
    assert amount(value) == text


def test_measure_with_two_targets_has_two_lines(results: Results) -> None:
    assert table_rows(results) == [
        ("count()", "rows/s", "4.00 M", "500 K", "8.00 M", ">= 5x kafka", "8.00x", "yes"),
        ("", "", "", "", "", "time <= 1.5x parquet", "2.00x", "NO"),
        ("latency", "ms", "260", "-", "-", "<= 300 ms", "260 ms", "yes"),
    ]


def test_a_measure_without_target_has_a_line(results: Results) -> None:
    results.add(Measure("for information", "requests"), "sparklog", 44)
    assert table_rows(results)[-1] == (
        "for information",
        "requests",
        "44",
        "-",
        "-",
        "",
        "",
        "",
    )


def test_the_text_table_is_aligned(results: Results) -> None:
    names, rule, *lines = text_table(results).splitlines()
    assert len(lines) == 3
    assert set(rule) == {"-"}
    at = names.index("target")
    assert [line[at : at + 2] for line in lines] == [">=", "ti", "<="]
    assert all(line == line.rstrip() for line in [names, *lines])


def test_the_markdown_table_has_as_many_cells_in_every_line(results: Results) -> None:
    table = [line for line in markdown(results, FACTS).splitlines() if line.startswith("|")]
    assert len(table) == 5
    assert {line.count("|") for line in table} == {len(header(results)) + 1}


def test_markdown_names_failed_checks(results: Results) -> None:
    assert "Checks: 1 passed, 0 failed." in markdown(results, FACTS)
    results.check_equal("sum", 1, 2)
    assert "- FAILED sum: found=1 expected=2" in markdown(results, FACTS)


def test_the_document_is_json_with_every_raw_figure(results: Results) -> None:
    found = json.loads(json.dumps(document(results, FACTS)))
    assert found["seed"] == 1
    assert [s["value"] for s in found["samples"] if s["measure"] == "latency"] == [250, 260, 900]
    latency = found["measures"][1]
    assert latency["medians"] == {"sparklog": 260}
    assert latency["spread"] == {"sparklog": 2.5}
    assert latency["targets"] == [{"target": "<= 300 ms", "figure": "260 ms", "reached": True}]
    assert found["checks"] == [{"name": "rows", "passed": True, "detail": "found=1 expected=1"}]


def test_report_has_columns_only_for_measured_systems(results: Results) -> None:
    assert header(results)[2:-3] == ("sparklog", "kafka", "parquet")
