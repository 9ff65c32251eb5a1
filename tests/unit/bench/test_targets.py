"""Verdicts: what a figure must reach, and what is said when a system was not measured."""

from __future__ import annotations

import pytest

from tests.bench.common.targets import (
    CostAtMost,
    CostAtMostPeer,
    RateAtLeast,
    RateTimesPeer,
    Target,
    TimeWithinPeer,
)


@pytest.mark.parametrize(("ours", "reached"), [(600.0, True), (599.9, False)])
def test_a_rate_is_compared_with_the_peers_times_a_factor(ours: float, reached: bool) -> None:
    verdict = RateTimesPeer("kafka", 6).judge({"sparklog": ours, "kafka": 100.0})
    assert verdict.reached is reached
    assert verdict.target == ">= 6x kafka"


def test_rate_is_shown_as_a_multiple_of_the_peers() -> None:
    verdict = RateTimesPeer("kafka", 5).judge({"sparklog": 725.0, "kafka": 100.0})
    assert (verdict.figure, verdict.word) == ("7.25x", "yes")


@pytest.mark.parametrize(("ours", "reached"), [(100.0, True), (99.0, False), (200.0, True)])
def test_rates_are_turned_into_times_where_a_time_is_the_target(ours: float, reached: bool) -> None:
    # 150 rows/s of the peer against 100 of ours: we take one and a half times as long.
    verdict = TimeWithinPeer("parquet", 1.5).judge({"sparklog": ours, "parquet": 150.0})
    assert verdict.reached is reached


def test_a_slower_rate_reads_as_a_longer_time() -> None:
    verdict = TimeWithinPeer("parquet", 1.5).judge({"sparklog": 50.0, "parquet": 150.0})
    assert (verdict.figure, verdict.word) == ("3.00x", "NO")


@pytest.mark.parametrize(("ours", "reached"), [(40.0, True), (40.1, False), (1.0, True)])
def test_a_cost_may_equal_the_peers_but_not_exceed_it(ours: float, reached: bool) -> None:
    verdict = CostAtMostPeer("kafka").judge({"sparklog": ours, "kafka": 40.0})
    assert verdict.reached is reached


@pytest.mark.parametrize(("ours", "reached"), [(300.0, True), (300.5, False), (0.0, True)])
def test_a_cost_may_equal_its_limit(ours: float, reached: bool) -> None:
    assert CostAtMost(300, "ms").judge({"sparklog": ours}).reached is reached


@pytest.mark.parametrize(("ours", "reached"), [(50.0, True), (49.9, False)])
def test_a_rate_may_equal_its_limit(ours: float, reached: bool) -> None:
    verdict = RateAtLeast(50, "MB/s").judge({"sparklog": ours})
    assert verdict.reached is reached
    assert verdict.target == ">= 50 MB/s"


def test_limit_can_name_its_source() -> None:
    verdict = CostAtMost(13, "requests", "as with 100 segments").judge({"sparklog": 13.0})
    assert verdict.target == "<= 13 requests (as with 100 segments)"


@pytest.mark.parametrize(
    "target",
    [RateTimesPeer("kafka", 6), TimeWithinPeer("kafka", 1.5), CostAtMostPeer("kafka")],
)
@pytest.mark.parametrize("medians", [{"sparklog": 1.0}, {"kafka": 1.0}, {}])
def test_a_system_that_was_not_measured_gives_no_verdict(
    target: Target, medians: dict[str, float]
) -> None:
    verdict = target.judge(medians)
    assert (verdict.reached, verdict.word, verdict.figure) == (None, "-", "-")


def test_a_limit_without_our_figure_gives_no_verdict() -> None:
    assert CostAtMost(1, "ms").judge({"kafka": 0.5}).reached is None
