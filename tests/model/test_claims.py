"""Claims of scheduled runs, model-checked: applications in every order, with every fault.

Two applications come to the same two times, and each deletes the older claim once it has the newer.
In every order no two run the same time, and without faults the newest time is run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from sparklog.core.errors import SparklogError
from sparklog.log.effects import Program
from sparklog.spark.schedule import claims
from sparklog.spark.schedule.claims import RunClaim, take
from tests.model.explorer import Actor, Explorer, State


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let old claims go at once, and give up early, so that all there is can be visited."""
    monkeypatch.setattr(claims, "KEPT", 1)
    monkeypatch.setattr(claims, "TRIES_MAX", 2)


def application(name: str, *times: int) -> Actor:
    """Claims these times one after the other, and reports those that are its own."""

    def start(done: Callable[[Any], None]) -> Program[None]:
        for at_ms in times:
            try:
                mine = yield from take(RunClaim("job", at_ms, 1, name))
            except SparklogError:
                continue  # the outcome is unknown: it does not run
            if mine:
                done(at_ms)

    return Actor(name, start)


@pytest.mark.parametrize(
    "faults",
    [{}, {"lost_replies": 1}, {"late_puts": 1}, {"crashes": 1}, {"lost_replies": 1, "crashes": 1}],
    ids=lambda faults: "+".join(faults) or "none",
)
def test_a_time_is_run_by_one_application_at_most(faults: dict[str, int]) -> None:
    actors = [application("a", 1, 2), application("b", 1, 2)]
    explorer = Explorer(actors)
    run_at: set[int] = set()

    def check(state: State, final: bool) -> None:
        reports = [
            one
            for number in range(len(actors))
            for one in explorer.standing(number, state.histories[number]).reports
        ]
        assert max(Counter(reports).values(), default=0) <= 1, reports
        run_at.update(reports)
        if final and not faults:
            assert 2 in reports

    states = explorer.explore(explorer.start(**faults), check)
    assert states > 100
    assert run_at == {1, 2}


def test_model_finds_a_time_run_twice_without_the_second_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The model sees what it is there to see."""

    def hasty(claim: RunClaim) -> Program[bool]:
        mine = yield from claims._created(claim)
        if mine:
            yield from claims._drop_old(claim.job)
        return mine

    monkeypatch.setitem(globals(), "take", hasty)
    with pytest.raises(AssertionError):
        test_a_time_is_run_by_one_application_at_most({})
