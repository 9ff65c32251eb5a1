"""However steps arrive and cost, a turn takes its time and one step, and addresses take turns."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from sparklog.broker.network.paced_input import StepPacer
from sparklog.testing.virtual_loop import new_virtual_loop

TURN_MS = 4
STEPS = st.tuples(st.sampled_from("abc"), st.integers(0, 2 * TURN_MS))
TURNS = st.lists(st.lists(STEPS, max_size=6), max_size=12)


class PacedSteps:
    """A pacer, and a model of its queue."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.pacer = StepPacer(TURN_MS, lambda: self.now_ms)
        self.waiting: dict[int, str] = {}
        """The addresses of the steps that wait, in the order of their arrival."""
        self.passed: dict[int, list[str]] = {}
        """The addresses of the steps that ran while a step waited."""
        self.ahead: dict[int, int] = {}
        """The steps of its own address that were before a step."""
        self.spent_ms = 0
        self.arrived = 0

    def arrive(self, host: str, cost_ms: int) -> None:
        """Run a step, or let it wait."""
        number = self.arrived
        self.arrived += 1

        def step() -> None:
            assert self.spent_ms < TURN_MS
            self.ran(number, host)
            self.spent_ms += cost_ms
            self.now_ms += cost_ms

        if not self.pacer.run(step):
            self.ahead[number] = list(self.waiting.values()).count(host)
            self.waiting[number], self.passed[number] = host, []
            self.pacer.add(host, step)

    def ran(self, number: int, host: str) -> None:
        """Check the place of a step among those that wait."""
        if number not in self.waiting:
            assert not self.waiting
            return
        own = [other for other, at in self.waiting.items() if at == host]
        assert own[0] == number
        passed, ahead = self.passed[number], self.ahead[number]
        assert all(passed.count(other) <= ahead + 1 for other in set(passed) - {host})
        del self.waiting[number]
        for other in self.waiting:
            self.passed[other].append(host)


@given(TURNS)
def test_steps_are_paced_and_each_runs(turns: list[list[tuple[str, int]]]) -> None:
    async def story() -> None:
        steps = PacedSteps()
        for arriving in turns:
            for host, cost_ms in arriving:
                steps.arrive(host, cost_ms)
            steps.spent_ms = 0  # the turn of the pacer follows
            await asyncio.sleep(0)
        while steps.waiting:
            steps.spent_ms = 0
            before = len(steps.waiting)
            await asyncio.sleep(0)
            assert len(steps.waiting) < before
        assert len(steps.pacer) == 0

    new_virtual_loop().run_until_complete(story())
