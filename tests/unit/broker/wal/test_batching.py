"""When a window of the write-ahead log is put, as time and the store go."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from sparklog.broker.wal.batching import (
    CHEAP_PUT_S,
    GATHERED_MAX_S,
    PUTS_REMEMBERED,
    RETURN_SHARE,
    UNAWAITED_LINGERS,
    WalBatcher,
    WalLimits,
    WalWindow,
)
from sparklog.log.wal.objects import WalBatch

LIMITS = WalLimits(linger_s=0.25, window_bytes=1000)
NEAR_S, FAR_S = CHEAP_PUT_S / 4, CHEAP_PUT_S * 5
AT_ONCE = -inf


def _window(
    awaited: int = 1, size_bytes: int = 100, since_s: float = 10.0, lingering: int = 0
) -> WalWindow:
    return WalWindow(
        since_s=since_s, count=awaited + lingering, awaited=awaited, size_bytes=size_bytes
    )


def _pace(
    took_s: float, crowd: int = 0, put_s: float = 9.0, acknowledged_s: float = 9.0
) -> WalBatcher:
    """Return the pace after a put of `crowd` batches that is over."""
    pace = WalBatcher(LIMITS)
    pace.took(took_s)
    pace.put(_window(crowd), put_s)
    pace.acknowledged(_window(crowd), acknowledged_s)
    return pace


def test_window_has_a_size_limit_but_always_takes_the_first_batch() -> None:
    large, small = (WalBatch("topic", 0, 0, 0, bytes(size)) for size in (1001, 400))
    full = WalWindow(batches=[small, small], size_bytes=800)
    assert WalWindow().takes(large, LIMITS)
    assert WalWindow(batches=[small], size_bytes=600).takes(small, LIMITS)
    assert not full.takes(small, LIMITS)


def test_first_awaited_batch_is_put_at_once() -> None:
    assert WalBatcher(LIMITS).due_s(_window()) == AT_ONCE


def test_batch_without_a_waiter_lingers() -> None:
    assert WalBatcher(LIMITS).due_s(_window(awaited=0, lingering=1)) == 10.75


def test_a_full_window_waits_for_nothing() -> None:
    pace = _pace(FAR_S, put_s=10.0)
    assert pace.due_s(_window(awaited=0, lingering=1, size_bytes=1000)) == AT_ONCE


def test_at_a_distance_puts_start_a_linger_apart() -> None:
    assert _pace(FAR_S, put_s=9.875).due_s(_window()) == 10.125


def test_near_by_a_lone_writer_never_waits() -> None:
    assert _pace(NEAR_S, crowd=1, put_s=10.0, acknowledged_s=10.0).due_s(_window()) == AT_ONCE


def test_near_by_a_put_waits_until_the_usual_writers_have_come() -> None:
    pace = _pace(NEAR_S, crowd=10, put_s=10.0)
    assert pace.due_s(_window(9)) == 10.0 + GATHERED_MAX_S
    assert pace.due_s(_window(10)) == AT_ONCE


def test_near_by_the_wait_is_bounded_for_any_number_of_writers() -> None:
    few, many = (_pace(NEAR_S, crowd, put_s=10.0) for crowd in (3, 1000))
    assert few.due_s(_window(1)) == many.due_s(_window(1)) == 10.0 + GATHERED_MAX_S


def test_near_by_a_put_waits_for_just_acknowledged_writers() -> None:
    pace = _pace(NEAR_S, crowd=10, put_s=9.0, acknowledged_s=10.0)
    assert pace.due_s(_window(1)) == 10.0 + RETURN_SHARE * NEAR_S
    assert pace.due_s(_window(9)) == 10.0 + RETURN_SHARE * NEAR_S


def test_near_by_a_put_does_not_wait_for_writers_under_way() -> None:
    pace = _pace(NEAR_S, crowd=10, put_s=10.0)
    pace.put(_window(8), 10.0)
    assert pace.due_s(_window(1)) == 10.0 + GATHERED_MAX_S
    assert pace.due_s(_window(2)) == AT_ONCE


def test_put_does_not_wait_for_writers_whose_batches_are_under_way() -> None:
    pace = _pace(NEAR_S, crowd=4)
    pace.put(_window(3), 10.0)
    assert pace.due_s(_window(1)) == AT_ONCE


def test_a_crowd_is_forgotten() -> None:
    pace = _pace(NEAR_S, crowd=8)
    for number in range(PUTS_REMEMBERED):
        pace.put(_window(1), 10.0 + number)
        pace.acknowledged(_window(1), 10.0 + number)
    assert pace.due_s(_window(1)) == AT_ONCE


def test_a_disk_that_stalls_is_still_a_disk() -> None:
    pace = _pace(NEAR_S)
    for _ in range(10):
        pace.took(FAR_S)
    assert pace.due_s(_window()) == AT_ONCE


@given(
    took=st.lists(st.floats(0, 10), max_size=40),
    puts=st.lists(st.tuples(st.integers(0, 100), st.floats(0, 10)), max_size=40),
    acknowledged_s=st.floats(0, 10),
    window=st.builds(
        _window, st.integers(0, 100), st.integers(0, 2000), st.floats(0, 10), st.integers(1, 9)
    ),
)
def test_no_window_is_due_later_than_its_linger(
    took: list[float],
    puts: list[tuple[int, float]],
    acknowledged_s: float,
    window: WalWindow,
) -> None:
    pace = WalBatcher(LIMITS)
    for seconds in took:
        pace.took(seconds)
    for batches, put_s in puts:
        pace.put(_window(batches), put_s)
    for batches, _ in puts[::2]:
        pace.acknowledged(_window(batches), acknowledged_s)
    lingers = 1 if window.awaited else UNAWAITED_LINGERS
    assert pace.due_s(window) <= window.since_s + lingers * LIMITS.linger_s
