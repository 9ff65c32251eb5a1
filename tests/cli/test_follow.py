from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from sparklog.cli.console.record_sources import FULL_LOOK_EVERY_S, VIEW_AGE_MAX_S, LogFollower
from sparklog.client.values import EARLIEST, LATEST
from sparklog.cluster.log import Log
from sparklog.core.clock import ManualClock
from sparklog.core.errors import DataCorrupt, UnknownTopicOrPartition
from sparklog.store.memory import MemoryStore


class Watched(MemoryStore):
    """Counts requests by kind."""

    def __init__(self) -> None:
        super().__init__("watched")
        self.requests: list[str] = []

    def head(self, key: str) -> object:  # type: ignore[override]
        self.requests.append("head")
        return super().head(key)

    def list(self, prefix: str, start_after: str = "") -> Iterator[object]:  # type: ignore[override]
        self.requests.append("list")
        return super().list(prefix, start_after)

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        self.requests.append("get")
        return super().get(key, start, end)


@pytest.fixture
def store() -> Watched:
    return Watched()


@pytest.fixture
def log(store: Watched) -> Iterator[Log]:
    with Log(store) as opened:
        yield opened


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


Follow = Callable[..., LogFollower]


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def follow(log: Log, clock: ManualClock, warnings: list[str]) -> Follow:
    def start(position: int = EARLIEST, only: int | None = None) -> LogFollower:
        follower = LogFollower(log, ("offset", "value"), warnings.append, clock)
        follower.add_topic("t", position, only)
        return follower

    return start


def append(log: Log, *values: str, partition: int = 0) -> None:
    rows = pa.array([v.encode() for v in values], pa.binary())
    log.partition("t", partition).append([pa.RecordBatch.from_pydict({"value": rows})])


def values(follower: LogFollower, records_max: int | None = None) -> list[str]:
    return [
        value.decode()
        for arrived in follower.ready(records_max)
        for value in arrived.batch.column("value").to_pylist()
    ]


def test_new_records_of_any_writer_are_found_after_a_wait(
    log: Log, store: Watched, follow: Follow
) -> None:
    log.create_topic("t", 2)
    append(log, "a")
    follower = follow(LATEST)
    assert values(follower) == []
    with Log(store) as elsewhere:
        append(elsewhere, "b", "c", partition=1)
        append(elsewhere, "d")
    follower.wait(None)
    assert values(follower) == ["d", "b", "c"]
    assert values(follower) == []


def test_waiting_on_an_idle_partition_is_one_request_a_look(
    log: Log, store: Watched, follow: Follow
) -> None:
    log.create_topic("t", 3)
    follower = follow()
    store.requests.clear()
    for _ in range(5):
        follower.wait(None)
    assert store.requests == ["head"] * 15


def test_wait_grows_without_records_and_shrinks_with_one(
    log: Log, clock: ManualClock, follow: Follow
) -> None:
    log.create_topic("t")
    follower = follow()
    waits = []
    for _ in range(8):
        before = clock.monotonic_s()
        follower.wait(None)
        waits.append(round(clock.monotonic_s() - before, 3))
    assert waits == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]
    append(log, "a")
    follower.wait(None)
    before = clock.monotonic_s()
    follower.wait(None)
    assert clock.monotonic_s() - before == pytest.approx(0.05)


def test_a_limit_reads_no_more_than_it_needs(log: Log, follow: Follow) -> None:
    log.create_topic("t", 2)
    append(log, *"abcdef")
    append(log, *"uvw", partition=1)
    follower = follow()
    assert values(follower, 4) == ["a", "b", "c", "d"]
    assert values(follower, 4) == ["e", "f", "u", "v"]
    assert values(follower) == ["w"]


def test_partitions_that_are_added_are_read_from_their_start(
    log: Log, clock: ManualClock, follow: Follow
) -> None:
    log.create_topic("t")
    follower = follow(LATEST)
    log.add_partitions("t", 2)
    append(log, "new", partition=1)
    clock.sleep_s(FULL_LOOK_EVERY_S)
    follower.wait(None)
    assert values(follower) == ["new"]


def test_one_chosen_partition_stays_the_only_one(
    log: Log, clock: ManualClock, follow: Follow
) -> None:
    log.create_topic("t")
    follower = follow(LATEST, 0)
    log.add_partitions("t", 2)
    append(log, "elsewhere", partition=1)
    clock.sleep_s(FULL_LOOK_EVERY_S)
    follower.wait(None)
    assert values(follower) == []


def test_a_topic_that_was_deleted_or_made_anew_ends_the_reading(
    log: Log, clock: ManualClock, follow: Follow
) -> None:
    log.create_topic("t")
    follower = follow()
    log.delete_topic("t")
    log.create_topic("t")
    clock.sleep_s(FULL_LOOK_EVERY_S)
    with pytest.raises(UnknownTopicOrPartition, match="deleted while it was read"):
        follower.wait(None)


def test_records_deleted_before_the_read_are_skipped_with_a_warning(
    log: Log, store: Watched, follow: Follow, warnings: list[str]
) -> None:
    log.create_topic("t")
    follower = follow()
    with Log(store) as elsewhere:
        append(elsewhere, *"abcd")
        elsewhere.partition("t", 0).delete_records(3)
    follower.wait(None)
    assert values(follower) == ["d"]
    assert len(warnings) == 1
    assert "partition=t-0 offset=0 log_start_offset=3" in warnings[0]


def test_a_long_read_does_not_hold_on_to_an_old_view(
    log: Log, store: Watched, clock: ManualClock, follow: Follow
) -> None:
    """A job replaces the objects behind a view, and deletes them a minute later."""
    log.create_topic("t")
    append(log, *"abc")
    follower = follow()
    assert values(follower, 1) == ["a"]
    with Log(store) as elsewhere:
        append(elsewhere, "d")
        elsewhere.partition("t", 0).delete_records(2)
    clock.sleep_s(VIEW_AGE_MAX_S + 1)
    assert values(follower) == ["c", "d"]


def test_records_before_damage_are_printed_before_the_error(log: Log, follow: Follow) -> None:
    log.create_topic("t", 2)
    append(log, "a")
    append(log, "b")
    append(log, "c", partition=1)
    layout = log.partition("t", 0).layout
    key = layout.key(layout.chain_name(1))
    log.store.put(key, b"no segment")
    log._partitions.clear()  # as a process that opens the log now
    arrived = follow().ready(None)
    assert [next(arrived).batch.column("value").to_pylist() for _ in range(2)] == [[b"a"], [b"c"]]
    with pytest.raises(DataCorrupt, match=key):
        next(arrived)
    for start in (LATEST, 2):
        with pytest.raises(DataCorrupt, match=key):
            follow(start, 0)
