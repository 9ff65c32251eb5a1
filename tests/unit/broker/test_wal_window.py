"""When a window of the write-ahead log is put, as time and the store go."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from sparklog.broker.wal_window import CHEAP_PUT_S, GATHERED_SHARE, Pace, WalLimits, Window
from sparklog.log.wal_object import WalBatch

LIMITS = WalLimits(linger_s=0.25, window_bytes=1000)
NEAR_S, FAR_S = CHEAP_PUT_S / 4, CHEAP_PUT_S * 5
AT_ONCE = -inf


def _window(count: int = 1, size_bytes: int = 100, since_s: float = 10.0) -> Window:
    return Window(since_s=since_s, count=count, size_bytes=size_bytes)


def _pace(took_s: float) -> Pace:
    pace = Pace(LIMITS)
    pace.took(took_s)
    return pace


def test_a_window_takes_batches_up_to_its_limit_and_the_first_however_large() -> None:
    large, small = (WalBatch("topic", 0, 0, 0, bytes(size)) for size in (1001, 400))
    full = Window(batches=[small, small], size_bytes=800)
    assert Window().takes(large, LIMITS)
    assert Window(batches=[small], size_bytes=600).takes(small, LIMITS)
    assert not full.takes(small, LIMITS)


def test_the_first_batch_that_somebody_waits_for_is_put_at_once() -> None:
    assert Pace(LIMITS).due_s(_window(), awaited=True) == AT_ONCE


def test_a_batch_that_nobody_waits_for_lingers() -> None:
    assert Pace(LIMITS).due_s(_window(), awaited=False) == 10.25


def test_a_full_window_waits_for_nothing() -> None:
    pace = _pace(FAR_S)
    pace.put(10.0)
    assert pace.due_s(_window(size_bytes=1000), awaited=False) == AT_ONCE


def test_at_a_distance_puts_start_a_linger_apart() -> None:
    pace = _pace(FAR_S)
    pace.put(9.875)
    assert pace.due_s(_window(), awaited=True) == 10.125


def test_near_by_as_many_as_were_acknowledged_are_waited_for_and_no_longer() -> None:
    pace = _pace(NEAR_S)
    pace.acknowledged(3, 10.0)
    assert pace.due_s(_window(count=2), awaited=True) == 10.0 + GATHERED_SHARE * NEAR_S
    assert pace.due_s(_window(count=3), awaited=True) == AT_ONCE


def test_a_disk_that_stalls_is_still_a_disk() -> None:
    pace = _pace(NEAR_S)
    for _ in range(10):
        pace.took(FAR_S)
    assert pace.due_s(_window(), awaited=True) == AT_ONCE


@given(
    took=st.lists(st.floats(0, 10), max_size=40),
    put_s=st.floats(0, 10),
    acknowledged=st.tuples(st.integers(0, 100), st.floats(0, 10)),
    window=st.builds(_window, st.integers(1, 100), st.integers(0, 2000), st.floats(0, 10)),
    awaited=st.booleans(),
)
def test_no_window_is_due_later_than_its_linger(
    took: list[float],
    put_s: float,
    acknowledged: tuple[int, float],
    window: Window,
    awaited: bool,
) -> None:
    pace = Pace(LIMITS)
    for seconds in took:
        pace.took(seconds)
    pace.put(put_s)
    pace.acknowledged(*acknowledged)
    assert pace.due_s(window, awaited=awaited) <= window.since_s + LIMITS.linger_s
