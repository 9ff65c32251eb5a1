"""When one broker leaves slots to queries, and when it claims a whole executor again."""

from __future__ import annotations

from collections.abc import Collection

from sparklog.spark.serve.shared_slots import (
    SHARE_AFTER_S,
    STEADY_S,
    ExecutorUse,
    Restart,
    SlotSharing,
)

ALL = (1, 2, 3)
FEW = ExecutorUse(executors=3, idle=0, query_waits=True)
ENOUGH = ExecutorUse(executors=4, idle=1, query_waits=False)


def restarts(
    sharing: SlotSharing,
    use: ExecutorUse,
    seconds: range,
    ready: Collection[int] = ALL,
    waiting: Collection[int] = (),
) -> list[tuple[int, Restart]]:
    found = ((second, sharing.look(second, use, ready, waiting)) for second in seconds)
    return [(second, due) for second, due in found if due is not None]


def test_waiting_query_gets_slots_beside_one_broker_only() -> None:
    sharing = SlotSharing(3)
    assert restarts(sharing, FEW, range(1000)) == [(SHARE_AFTER_S, Restart(3, shares=True))]
    assert sharing.shared_by == 3


def test_brokers_keep_their_executors_while_no_query_waits() -> None:
    assert not restarts(SlotSharing(3), ExecutorUse(3, 0, query_waits=False), range(1000))
    assert not restarts(SlotSharing(3), ExecutorUse(4, 0, query_waits=True), range(1000)), (
        "queries alone hold the fourth"
    )


def test_break_of_the_wait_starts_its_time_anew() -> None:
    sharing, half = SlotSharing(3), int(SHARE_AFTER_S / 2)
    assert not restarts(sharing, FEW, range(half))
    assert not restarts(sharing, ENOUGH, range(half, half + 1))
    assert restarts(sharing, FEW, range(half + 1, 100))[0][0] == half + 1 + SHARE_AFTER_S


def test_broker_without_an_executor_takes_a_slot_beside_queries() -> None:
    busy = ExecutorUse(executors=3, idle=0, query_waits=False)
    sharing = SlotSharing(3)
    assert restarts(sharing, busy, range(100), ready=(2, 3), waiting=(1,)) == [
        (SHARE_AFTER_S, Restart(1, shares=True))
    ]
    few = ExecutorUse(executors=2, idle=0, query_waits=False)
    assert not restarts(SlotSharing(3), few, range(100), ready=(2, 3), waiting=(1,)), "none is left"


def test_broker_takes_a_whole_executor_once_one_is_idle() -> None:
    sharing = SlotSharing(3)
    restarts(sharing, FEW, range(20))
    busy = ExecutorUse(executors=4, idle=0, query_waits=True)
    assert not restarts(sharing, busy, range(20, 200))
    back = restarts(sharing, ENOUGH, range(200, 400))
    assert back == [(200 + STEADY_S, Restart(3, shares=False))]
    assert sharing.shared_by is None


def test_broker_does_not_start_again_twice_within_a_minute() -> None:
    sharing = SlotSharing(3)
    restarts(sharing, FEW, range(20))
    (end,) = (second for second, _ in restarts(sharing, ENOUGH, range(20, 200)))
    assert end == 20 + STEADY_S
    again = SlotSharing(3)
    restarts(again, FEW, range(20))
    restarts(again, ENOUGH, range(20, int(end) + 1))
    assert restarts(again, FEW, range(int(end) + 1, 400)) == [
        (end + STEADY_S, Restart(3, shares=True))
    ]
