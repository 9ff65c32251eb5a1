"""Pauses between tries."""

from __future__ import annotations

from sparklog.core.backoff import Backoff


def pauses(backoff: Backoff, count: int) -> list[float]:
    return [backoff.next_s() for _ in range(count)]


def test_pauses_double_up_to_the_longest() -> None:
    assert pauses(Backoff(0.5, 3.0), 5) == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_first_pause_is_zero_when_it_starts_at_once() -> None:
    assert pauses(Backoff(1.0, 2.0, starts_at_once=True), 4) == [0.0, 1.0, 2.0, 2.0]


def test_reset_begins_anew() -> None:
    backoff = Backoff(1.0, 8.0)
    pauses(backoff, 3)
    backoff.reset()
    assert pauses(backoff, 2) == [1.0, 2.0]


def test_skip_to_longest_returns_only_the_longest() -> None:
    backoff = Backoff(1.0, 8.0)
    backoff.skip_to_longest()
    assert pauses(backoff, 2) == [8.0, 8.0]
