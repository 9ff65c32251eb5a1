"""Publication to many partitions: exactly once, from any process and after any failure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa
import pytest

from sparklog.cluster.log import Log
from sparklog.cluster.publication import (
    Publication,
    StagedPartition,
    append_once,
    decode,
    drop_staged,
    encode,
    merged,
    publish,
)
from sparklog.core.clock import ManualClock
from sparklog.core.entropy import SeededEntropy
from sparklog.core.errors import (
    DataCorrupt,
    InvalidRequest,
    OutcomeUnknown,
    Unavailable,
    UnknownTopicOrPartition,
)
from sparklog.core.types import TopicPartition
from sparklog.log.layout import commit_key
from sparklog.log.segment.segment import Reference
from sparklog.store.base import Data, ObjectStore, PutOutcome
from sparklog.store.delegating_store import DelegatingStore
from sparklog.store.memory import MemoryStore

PARTITIONS = 3


class CuttingStore(DelegatingStore):
    """A store that loses power at the n-th put, before or after its effect."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.puts: list[str] = []
        self.cut_at: int | None = None
        self.after = False
        self.lose_reply: str = ""

    def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        if self.cut_at == len(self.puts):
            if self.after:
                self._store.put_if_absent(key, data)
            raise Unavailable("the power is gone")
        self.puts.append(key)
        outcome = self._store.put_if_absent(key, data)
        if self.lose_reply and self.lose_reply in key:
            self.lose_reply = ""
            return PutOutcome.UNKNOWN
        return outcome


@pytest.fixture
def store() -> CuttingStore:
    return CuttingStore(MemoryStore("publication"))


@pytest.fixture
def log(store: CuttingStore, clock: ManualClock) -> Log:
    log = reopened(store, clock)
    log.create_topic("t", PARTITIONS)
    return log


def reopened(store: ObjectStore, clock: ManualClock) -> Log:
    return Log(store, clock=clock, entropy=SeededEntropy(7))


def stage(log: Log, partition: int, *values: bytes, topic: str = "t") -> StagedPartition:
    place = log.partition(topic, partition)
    reference = place.stage([pa.RecordBatch.from_pydict({"value": list(values)})])
    return StagedPartition(topic, place.layout.topic_id, partition, (reference,))


def contents(log: Log, topic: str = "t") -> list[list[bytes]]:
    found = []
    for partition in range(PARTITIONS):
        place = log.partition(topic, partition)
        end = place.view().end_offset
        batches = place.read(0, end, ("value",))
        found.append([v for b in batches for v in b.column("value").to_pylist()])
    return found


def objects(store: ObjectStore) -> set[str]:
    return {info.key for info in store.list("")}


def test_publish_appends_to_all_partitions_in_order(log: Log) -> None:
    done = publish(log, "q", 0, [stage(log, 0, b"a"), stage(log, 2, b"c"), stage(log, 0, b"b")])
    assert contents(log) == [[b"a", b"b"], [], [b"c"]]
    assert {str(p): (a.base_offset, a.end_offset) for p, a in done.items()} == {
        "t-0": (0, 2),
        "t-2": (0, 1),
    }


def test_publish_changes_nothing_when_repeated(log: Log) -> None:
    staged = [stage(log, 0, b"a"), stage(log, 1, b"b")]
    publish(log, "q", 0, staged)
    again = publish(log, "q", 0, staged)
    assert all(a.repeated for a in again.values())
    assert contents(log) == [[b"a"], [b"b"], []]


def test_publish_uses_an_existing_record_and_drops_its_own(log: Log, store: CuttingStore) -> None:
    publish(log, "q", 0, [stage(log, 0, b"a"), stage(log, 1, b"b")])
    before = objects(store)
    publish(log, "q", 0, [stage(log, 1, b"b"), stage(log, 2, b"a")])
    assert contents(log) == [[b"a"], [b"b"], []]
    assert objects(store) == before


def test_publish_of_an_earlier_batch_is_idempotent_per_partition(log: Log) -> None:
    publish(log, "q", 0, [stage(log, 0, b"a")])
    publish(log, "q", 1, [stage(log, 1, b"b")])
    publish(log, "q", 0, [stage(log, 1, b"a")])
    assert contents(log) == [[b"a"], [b"b"], []]


def test_publish_keeps_two_writers_apart(log: Log) -> None:
    publish(log, "q", 5, [stage(log, 0, b"a")])
    publish(log, "r", 0, [stage(log, 0, b"b")])
    assert contents(log) == [[b"a", b"b"], [], []]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("cut_at", range(PARTITIONS + 1))
def test_publish_completes_after_a_crash_at_any_put(
    log: Log, store: CuttingStore, clock: ManualClock, cut_at: int, after: bool
) -> None:
    staged = [stage(log, p, b"%d" % p) for p in range(PARTITIONS)]
    store.puts, store.cut_at, store.after = [], cut_at, after
    with pytest.raises(Unavailable):
        publish(log, "q", 3, staged)
    store.cut_at = None
    restarted = reopened(store, clock)
    # The restarted query stages anew and spreads its rows differently.
    publish(restarted, "q", 3, [stage(restarted, 2, b"0"), stage(restarted, 0, b"1", b"2")])
    found = contents(restarted)
    assert sorted(v for part in found for v in part) == [b"0", b"1", b"2"]
    decided_by_first = cut_at > 0 or after
    assert found == ([[b"0"], [b"1"], [b"2"]] if decided_by_first else [[b"1", b"2"], [], [b"0"]])


@pytest.mark.parametrize("lost", ["commits/", "/0/log/", "/1/log/"])
def test_publish_appends_once_when_a_reply_is_lost(
    log: Log, store: CuttingStore, lost: str
) -> None:
    staged = [stage(log, 0, b"a"), stage(log, 1, b"b")]
    store.lose_reply = lost
    publish(log, "q", 0, staged)
    assert store.lose_reply == "", "the fault did not happen"
    assert contents(log) == [[b"a"], [b"b"], []]


def test_publish_of_an_empty_batch_creates_no_object(log: Log, store: CuttingStore) -> None:
    before = objects(store)
    assert publish(log, "q", 0, []) == {}
    assert objects(store) == before


def test_publish_of_an_empty_batch_completes_an_earlier_one(log: Log, store: CuttingStore) -> None:
    staged = [stage(log, 0, b"a")]
    store.puts, store.cut_at = [], 1
    with pytest.raises(Unavailable):
        publish(log, "q", 0, staged)
    store.cut_at = None
    publish(log, "q", 0, [])
    assert contents(log) == [[b"a"], [], []]


def test_publish_fails_before_deciding_when_a_topic_is_deleted(
    log: Log, store: CuttingStore
) -> None:
    staged = stage(log, 0, b"a")
    log.delete_topic("t")
    with pytest.raises(UnknownTopicOrPartition, match=r"topics --create --topic t"):
        publish(log, "q", 0, [staged])
    assert commit_key("q", 0) not in objects(store)


def test_publish_rejects_records_staged_for_the_old_topic(log: Log) -> None:
    staged = stage(log, 0, b"a")
    log.delete_topic("t")
    log.create_topic("t", PARTITIONS)
    with pytest.raises(UnknownTopicOrPartition, match=r"deleted and created again"):
        publish(log, "q", 0, [staged])
    with pytest.raises(UnknownTopicOrPartition, match=r"deleted and created again"):
        append_once(log, [staged])
    publish(log, "q", 0, [stage(log, 0, b"b")])
    assert contents(log) == [[b"b"], [], []]


def test_merge_rejects_two_ids_of_one_topic(log: Log) -> None:
    old = stage(log, 0, b"a")
    with pytest.raises(UnknownTopicOrPartition, match=r"deleted and created again"):
        merged([old, replace(old, topic_id="B" * 22)])


def test_batch_older_than_writer_history_is_rejected(
    log: Log, store: CuttingStore, clock: ManualClock
) -> None:
    staged = [stage(log, 0, b"a"), stage(log, 1, b"b")]
    publish(log, "q", 0, staged, clock=clock)
    clock.sleep_s(8 * 24 * 3600)
    publish(log, "other", 0, [stage(log, 0, b"x")], clock=clock)
    log.partition("t", 0).absorb_tail()  # forgets writers that were silent for too long
    log.partition("t", 0).append([pa.RecordBatch.from_pydict({"value": [b"y"]})])
    log.partition("t", 0).absorb_tail()
    forgotten = "q" not in log.partition("t", 0).view().manifest.writers
    assert forgotten, "the case did not come about"
    with pytest.raises(OutcomeUnknown, match=r"new checkpoint"):
        publish(log, "q", 0, staged, clock=clock)
    assert contents(log) == [[b"a", b"x", b"y"], [b"b"], []]


def test_append_once_is_idempotent_without_a_commit_key(
    log: Log, store: CuttingStore, clock: ManualClock
) -> None:
    staged = [stage(log, 0, b"a"), stage(log, 1, b"b"), stage(log, 0, b"c")]
    store.puts, store.cut_at = [], 1
    with pytest.raises(Unavailable):
        append_once(log, staged)
    store.cut_at = None
    log.partition("t", 0).absorb_tail()
    append_once(reopened(store, clock), staged)
    append_once(log, staged)
    assert contents(log) == [[b"a", b"c"], [b"b"], []]


def test_drop_staged_deletes_only_unreferenced_objects(log: Log, store: CuttingStore) -> None:
    one, other = stage(log, 0, b"a"), stage(log, 0, b"b")
    drop_staged(log, [one, other], but=[other])
    publish(log, "q", 0, [other])
    assert contents(log) == [[b"b"], [], []]
    assert sum("/staged/" in key for key in objects(store)) == 1


@pytest.mark.parametrize("writer", ["", "a/b", "..", "ä", "x" * 250])
def test_publish_rejects_an_invalid_writer_name(log: Log, writer: str) -> None:
    with pytest.raises(InvalidRequest, match="not a writer"):
        publish(log, writer, 0, [])


def _publication() -> Publication:
    reference = Reference("staged/" + "0" * 32 + ".arrow", 0, 3, 3, 99, "0" * 32, 1, 2)
    return Publication("q", 4, "n" * 32, 5, (StagedPartition("t", "A" * 22, 1, (reference,)),))


def test_publication_record_round_trips() -> None:
    assert decode(encode(_publication()), "x") == _publication()


def _damaged() -> Iterable[bytes]:
    good = encode(_publication())
    yield b""
    yield b"{}"
    yield b"[]"
    yield good[:-5]
    yield good.replace(b"staged/", b"st\\u0061ged/").replace(b'rows\\":3', b'rows\\":4')
    yield json.dumps({**json.loads(good), "format": 2}).encode()
    yield json.dumps({**json.loads(good), "body": None}).encode()
    for at in range(0, len(good), 7):
        yield good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :]


def test_damaged_publication_record_is_rejected_by_name() -> None:
    for data in _damaged():
        with pytest.raises(DataCorrupt, match=r"commits/q/4\.json"):
            decode(data, "commits/q/4.json")


def test_staged_partition_has_kafkas_partition_name() -> None:
    assert _publication().partitions[0].place == TopicPartition("t", 1)
