"""Whole clusters of real brokers in the simulated world, one for each seed.

A seed that fails prints how to run it again.
"""

from __future__ import annotations

from itertools import islice

import pytest

from tests.sim.seeds import CAMPAIGNS, plan_of, run_seed, stories

STORIES_TOLD = 5


@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_no_seed_of_the_first_few_breaks_a_promise(campaign: str) -> None:
    failed = list(islice(stories(CAMPAIGNS[campaign].quick, campaign), STORIES_TOLD))
    assert not failed, "\n\n".join(failed)


@pytest.mark.parametrize("seed", [3906, 4860, 6788])
def test_a_seed_that_failed_once_fails_no_more(seed: int) -> None:
    report = run_seed(seed)
    assert not report.failed, report.summary()


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_no_seed_of_many_breaks_a_promise(campaign: str) -> None:
    failed = list(islice(stories(CAMPAIGNS[campaign].many, campaign), STORIES_TOLD))
    assert not failed, "\n\n".join(failed)


def test_seeds_differ_in_all_that_they_draw() -> None:
    plans = [plan_of(seed) for seed in CAMPAIGNS["plain"].quick]
    assert {plan.brokers for plan in plans} == {1, 3}
    assert {plan.replication_factor for plan in plans} == {1, 2, 3}
    assert {dict(plan.configs)["sparklog.commit"] for plan in plans} == {"memory", "storage"}


def test_seed_has_the_same_trace_twice() -> None:
    first, second = run_seed(4), run_seed(4)
    assert first.digest == second.digest
    assert first.history == second.history
    assert len(first.history) > 100
