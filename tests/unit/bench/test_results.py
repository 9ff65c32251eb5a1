"""Figures are kept as measured; medians and spreads come from them."""

from __future__ import annotations

import pytest

from tests.bench.common.results import Measure, Results, spread
from tests.bench.common.rounds import timed, turns
from tests.bench.common.targets import CostAtMost

MEASURE = Measure("write", "rows/s", (CostAtMost(10, "rows/s"),))


def test_a_median_is_made_of_every_round_of_one_system() -> None:
    results = Results()
    for number, value in enumerate([5.0, 100.0, 6.0], start=1):
        results.add(MEASURE, "sparklog", value, number)
    results.add(MEASURE, "kafka", 1.0)
    assert results.medians("write") == {"sparklog": 6.0, "kafka": 1.0}
    assert results.values("write", "sparklog") == [5.0, 100.0, 6.0]


def test_a_measure_is_listed_once_in_the_order_first_seen() -> None:
    results = Results()
    for name in ("write", "read", "write"):
        results.add(Measure(name, "rows/s"), "sparklog", 1.0)
    assert [measure.name for measure in results.measures] == ["write", "read"]


def test_targets_are_judged_by_medians() -> None:
    results = Results()
    for value in (9.0, 9.5, 1000.0):
        results.add(MEASURE, "sparklog", value)
    assert [verdict.reached for verdict in results.verdicts(MEASURE)] == [True]


def test_failed_check_is_kept_with_its_finding(
    capsys: pytest.CaptureFixture[str],
) -> None:
    results = Results()
    results.check_equal("rows", 3, 3)
    results.check_equal("sum", 3, 4)
    assert [(check.name, check.detail) for check in results.failed_checks] == [
        ("sum", "found=3 expected=4")
    ]
    assert "CHECK FAILED: sum" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("values", "expected"), [([10.0], 0.0), ([9.0, 10.0, 12.0], 0.3), ([0.0, 0.0], 0.0)]
)
def test_a_spread_is_the_distance_of_the_extremes_in_medians(
    values: list[float], expected: float
) -> None:
    assert spread(values) == pytest.approx(expected)


def test_every_system_has_one_turn_per_round_and_none_is_always_first() -> None:
    taken = list(turns(["a", "b", "c"], 4))
    for number in range(1, 5):
        assert sorted(s for n, s in taken if n == number) == ["a", "b", "c"]
    assert [s for _, s in taken[::3]] == ["a", "b", "c", "a"]


def test_rounds_without_systems_are_empty() -> None:
    assert list(turns([], 3)) == []


def test_timed_work_keeps_its_answer() -> None:
    seconds, answer = timed(lambda: 42)
    assert answer == 42
    assert seconds >= 0
