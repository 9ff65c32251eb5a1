"""Deadlines by key, against a plain dict."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparklog.coordinator.timers import Timers

steps = st.lists(
    st.tuples(st.sampled_from(["set", "cancel", "pop"]), st.integers(0, 4), st.integers(0, 20)),
    max_size=60,
)


@given(steps)
def test_timers_return_the_earliest_current_deadline_first(
    given_steps: list[tuple[str, int, int]],
) -> None:
    timers: Timers[int] = Timers()
    plain: dict[int, int] = {}
    for what, key, at_ms in given_steps:
        if what == "set":
            timers.set(key, at_ms)
            plain[key] = at_ms
        elif what == "cancel":
            timers.cancel(key)
            plain.pop(key, None)
        else:
            due = min(((d, k) for k, d in plain.items() if d <= at_ms), default=None)
            popped = timers.pop_due(at_ms)
            assert popped == (None if due is None else due[1])
            if popped is not None:
                del plain[popped]
        assert timers.next_ms == min(plain.values(), default=None)
        assert len(timers) == len(plain)


def test_timers_stay_small_when_a_deadline_moves_later() -> None:
    timers: Timers[str] = Timers()
    for now_ms in range(10_000):
        timers.set("member", now_ms + 10)
        assert timers.get("member") == now_ms + 10
        assert timers.pop_due(now_ms) is None
    assert len(timers._heap) == 1


def test_timers_stay_small_when_a_deadline_moves_to_and_fro() -> None:
    timers: Timers[str] = Timers()
    timers.set("idle", 10**7)
    for round_ms in range(0, 100_000, 10):
        timers.set("id", round_ms + 10)
        timers.set("id", 10**8 + round_ms)
        assert timers.pop_due(round_ms + 10) is None
    assert len(timers._heap) < 100
    assert [timers.pop_due(10**9) for _ in range(2)] == ["idle", "id"]
    assert timers.next_ms is None
