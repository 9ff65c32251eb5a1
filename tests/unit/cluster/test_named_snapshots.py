"""Named snapshots: the objects that they keep, and the creations that fail."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from sparklog.cluster import orphans
from sparklog.cluster.log import Log
from sparklog.cluster.named_snapshots import (
    CREATION_MAX_S,
    NamedSnapshot,
    SnapshotReader,
    create_snapshot,
    decode,
    drop_snapshot,
    encode,
    read_snapshot,
    snapshot_records,
)
from sparklog.core.clock import ManualClock
from sparklog.core.config.topic import parse_topic_configs
from sparklog.core.errors import (
    DataCorrupt,
    InvalidRequest,
    OutcomeUnknown,
    Unavailable,
    UnknownTopicOrPartition,
)
from sparklog.core.types import TopicPartition
from sparklog.log.cleanup.compaction_policy import CompactionPolicy
from sparklog.log.cleanup.compactor import Compactor
from sparklog.log.cleanup.garbage import ORPHAN_AGE_MS
from sparklog.log.cleanup.rewriter import Encoding
from sparklog.log.effects import run
from sparklog.log.layout import PartitionLayout, named_snapshot_key, topic_folder
from sparklog.log.manifest import manifest as manifests
from sparklog.log.manifest.manifest import Manifest
from sparklog.log.partition.leader_append import flush_at, take_leadership
from sparklog.log.tail.references import ReferencedObject, encode_references, reference_batch
from sparklog.log.tail.to_segment import build_flush
from sparklog.protocol.records.control import EndTransactionMarker, encode_end_transaction
from sparklog.spark.jobs.partition_tasks import with_pins, work_on
from sparklog.spark.jobs.retain import RetainJob, retained_by, with_unpublished
from sparklog.store.base import Data, PutOutcome
from sparklog.store.delegating_store import DelegatingStore
from sparklog.store.memory import MemoryStore
from tests.harness.log_records import numbered
from tests.harness.wire_batches import placed, produced

PINS = "/pinned/"


@pytest.fixture
def log(clock: ManualClock) -> Log:
    opened = Log(MemoryStore("snapshots", clock), clock=clock)
    opened.create_topic("t", 2, {"retention.bytes": "0"})
    opened.partition("t", 0).append([numbered(0, 3)])
    opened.partition("t", 0).append([numbered(3, 2)])
    opened.partition("t", 1).append([numbered(0, 4)])
    return opened


def made(log: Log, clock: ManualClock, name: str = "s") -> NamedSnapshot:
    return create_snapshot(log, name, ["t"], clock=clock)


def retain(log: Log, clock: ManualClock) -> int:
    """Run retention twice, with the delay in between; return the number of deleted objects."""
    deleted = 0
    for _ in range(2):
        clock.sleep_s(61)
        records = run(orphans.publication_records(clock.now_ms()), log.store)
        works = with_unpublished(work_on(log.topics().values()), records)
        for work in with_pins(works, run(snapshot_records(), log.store)):
            deleted += retained_by(RetainJob("memory://s"), clock)(log, work)["deleted_objects"]
    return deleted


def read(log: Log, name: str = "s", topic: str = "t", partition: int = 0) -> list[bytes]:
    with ThreadPoolExecutor(2) as pool:
        reader = SnapshotReader(log.store, read_snapshot(log.store, name), pool)
        return [
            value
            for batch in reader.read(topic, partition)
            for value in batch.column("value").to_pylist()
        ]


def stored(log: Log, part: str) -> list[str]:
    return [info.key for info in log.store.list("") if part in info.key]


def test_snapshot_keeps_records_until_it_is_dropped(log: Log, clock: ManualClock) -> None:
    snapshot = made(log, clock)
    assert [(p.place, p.log_start_offset, p.end_offset, p.rows) for p in snapshot.partitions] == [
        (TopicPartition("t", 0), 0, 5, 5),
        (TopicPartition("t", 1), 0, 4, 4),
    ]
    kept = read(log)
    assert len(kept) == 5
    log.partition("t", 0).append([numbered(5, 1)])
    retain(log, clock)
    assert log.partition("t", 0).view().log_start_offset == 6
    assert read(log) == kept
    assert len(read(log, partition=1)) == 4
    drop_snapshot(log.store, "s")
    assert not stored(log, PINS)
    assert retain(log, clock) >= 3
    assert not stored(log, "/log/00000000000000000003.arrow")
    with pytest.raises(InvalidRequest, match="no such snapshot"):
        read_snapshot(log.store, "s")


def test_snapshot_is_readable_after_merge_and_deletion(log: Log, clock: ManualClock) -> None:
    made(log, clock, "first")
    kept = read(log, "first")
    partition = log.partition("t", 0)
    policy = CompactionPolicy.of(parse_topic_configs({}))
    for number in range(8):
        partition.append([numbered(5 + number, 1)])
    with ThreadPoolExecutor(2) as pool:
        merging = Compactor(log.store, partition.layout, policy, Encoding("lz4"), pool, clock=clock)
        assert merging.merge() is not None
    assert len(partition.view().entries) == 1
    made(log, clock, "merged")
    partition.delete_records(12)
    made(log, clock, "later")
    retain(log, clock)
    log.delete_topic("t")
    assert read(log, "first") == kept
    assert len(read(log, "merged")) == 13
    assert len(read(log, "later")) == 1


class ReplacedStore(DelegatingStore):
    """A store in which another process replaces the snapshot right before its deletion."""

    def delete_if(self, key: str, data: bytes) -> bool:
        later = replace(decode(data, "s"), timestamp_ms=7)
        self._store.delete(key)
        self._store.put_if_absent(key, encode(later))
        return super().delete_if(key, data)


def test_late_drop_spares_a_newer_snapshot_of_the_name(log: Log, clock: ManualClock) -> None:
    made(log, clock)
    kept = read(log)
    with pytest.raises(InvalidRequest, match="another snapshot got the name meanwhile"):
        drop_snapshot(ReplacedStore(log.store), "s")
    assert len(stored(log, PINS)) == 2
    retain(log, clock)
    assert read(log) == kept


class CreationCounter(MemoryStore):
    """Counts how often each name was created."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__("counted", clock)
        self.created: Counter[str] = Counter()

    def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        outcome = super().put_if_absent(key, data)
        self.created[key] += outcome is PutOutcome.CREATED
        return outcome


def test_no_name_is_created_again_after_retention_deleted_it(clock: ManualClock) -> None:
    store = CreationCounter(clock)
    log = Log(store, clock=clock)
    deleted = 0
    for topic in range(3):
        log.create_topic("t", 1, {"retention.bytes": "0"})
        for number in range(4):
            log.partition("t", 0).append([numbered(3 * number, 3)])
            made(log, clock, f"s{topic}-{number}")
            drop_snapshot(store, f"s{topic}-{number}")
            deleted += retain(log, clock)
        log.delete_topic("t")
    assert deleted >= 9
    assert max(store.created.values()) == 1


def strays(log: Log, clock: ManualClock, topic_id: str) -> list[str]:
    pins = run(snapshot_records(), log.store).all_pins()
    folder = topic_folder("t", topic_id)
    found = run(orphans.strays(folder, pins, clock.now_ms() - ORPHAN_AGE_MS), log.store)
    assert found.unknown == found.problems == ()
    return [info.key for info in found.doomed]


def test_deleted_topic_keeps_snapshot_objects_until_the_drop(log: Log, clock: ManualClock) -> None:
    topic_id = log.topic("t").topic_id
    made(log, clock)
    log.partition("t", 0).append([numbered(5, 1)])
    log.delete_topic("t")
    assert strays(log, clock, topic_id) == []
    assert not stored(log, "/log/00000000000000000005.arrow")
    drop_snapshot(log.store, "s")
    assert len(strays(log, clock, topic_id)) == 3
    for key in strays(log, clock, topic_id):
        log.store.delete(key)
    assert len(stored(log, topic_id)) == 2, "the graves"


def test_snapshot_name_is_taken_once_and_the_loser_cleans_up(log: Log, clock: ManualClock) -> None:
    made(log, clock)
    pins = stored(log, PINS)
    with pytest.raises(InvalidRequest, match="exists already"):
        made(log, clock)
    assert stored(log, PINS) == pins
    for name in ("", "..", "a/b", "x" * 250):
        with pytest.raises(InvalidRequest, match="not a name"):
            made(log, clock, name)
    with pytest.raises(UnknownTopicOrPartition):
        create_snapshot(log, "other", ["t", "nosuch"], clock=clock)
    assert stored(log, PINS) == pins


def test_creation_removes_its_pins_when_it_loses_the_race(
    log: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    rival = made(log, clock, "rival")
    pins = stored(log, PINS)
    put = log.store.put_if_absent

    def late(key: str, data: bytes) -> PutOutcome:
        if key == named_snapshot_key("s"):
            log.store.put(key, encode(NamedSnapshot("s", 1, rival.partitions)))
        return put(key, data)

    monkeypatch.setattr(log.store, "put_if_absent", late)
    with pytest.raises(InvalidRequest, match="exists already"):
        made(log, clock)
    assert stored(log, PINS) == pins


def test_creation_detects_retention_between_refresh_and_pin(
    log: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention moves the log start and deletes, just before the pin exists."""
    encode_manifest = manifests.encode
    moved: list[int] = []

    def slow(manifest: Manifest, layout: PartitionLayout) -> bytes:
        if layout.partition == 0 and not moved:
            moved.append(log.partition("t", 0).delete_records(3))
        return encode_manifest(manifest, layout)

    monkeypatch.setattr(manifests, "encode", slow)
    snapshot = made(log, clock)
    starts = {p.partition: p.log_start_offset for p in snapshot.partitions}
    assert starts == {0: 3, 1: 0}
    assert len(stored(log, PINS)) == 2, "the pin that came too late is gone"


def test_creation_leaves_nothing_when_a_partition_is_damaged(log: Log, clock: ManualClock) -> None:
    layout = log.partition("t", 1).layout
    log.store.put(layout.key(layout.chain_name(4)), b"damaged")
    with pytest.raises(DataCorrupt):
        made(log, clock)
    assert not stored(log, PINS)
    assert not stored(log, "snapshots/")


def test_creation_waits_for_leaders_to_flush_until_a_limit(log: Log, clock: ManualClock) -> None:
    wanted = {TopicPartition("t", 1): 6}
    with pytest.raises(Unavailable, match="did not flush"):
        create_snapshot(log, "s", ["t"], flushed=wanted, patience_s=5, clock=clock)
    assert not stored(log, PINS)
    log.partition("t", 1).append([numbered(4, 2)])
    snapshot = create_snapshot(log, "s", ["t"], flushed=wanted, patience_s=5, clock=clock)
    assert snapshot.by_place[TopicPartition("t", 1)].end_offset == 6


def test_creation_waits_for_an_open_transaction_of_a_query(log: Log, clock: ManualClock) -> None:
    partition = log.partition("t", 1)
    layout = partition.layout
    view = run(take_leadership(partition.view(), 1, "a" * 32), log.store)

    def flush(number: int, data: bytes) -> int:
        nonlocal view
        stamped = placed(data, view.end_offset, 1)
        draft = build_flush(layout, [stamped], f"{number:032x}", codec="none")
        view = run(flush_at(view, draft, 1), log.store)
        return view.end_offset

    staged = partition.stage([numbered(0, 5)])
    referring = encode_references(reference_batch([staged], None), ReferencedObject(7, 0, 0))
    flush(1, bytes(referring))
    end = flush(2, bytes(produced([1] * 2).data))
    wanted = {TopicPartition("t", 1): end}
    with pytest.raises(Unavailable, match="transaction"):
        create_snapshot(log, "s", ["t"], flushed=wanted, patience_s=5, clock=clock)
    marker = EndTransactionMarker(is_commit=True, coordinator_epoch=0)
    flush(
        3,
        encode_end_transaction(
            marker, base_offset=end, timestamp_ms=1, producer_id=7, producer_epoch=0,
            leader_epoch=1,
        ),
    )  # fmt: skip
    create_snapshot(log, "s", ["t"], flushed=wanted, patience_s=5, clock=clock)
    assert len(read(log, partition=1)) == 4 + 5 + 2


def test_retention_deletes_old_pins_without_a_snapshot(log: Log, clock: ManualClock) -> None:
    made(log, clock)
    log.store.delete(named_snapshot_key("s"))
    made(log, clock, "kept")
    retain(log, clock)
    assert len(stored(log, PINS)) == 4, "somebody may be about to name them"
    clock.sleep_s(ORPHAN_AGE_MS / 1000)
    log.store.put(named_snapshot_key("damaged"), b"{}")
    retain(log, clock)
    assert len(stored(log, PINS)) == 4, "the damaged one may name them"
    drop_snapshot(log.store, "damaged")
    retain(log, clock)
    assert len(stored(log, PINS)) == 2
    assert len(read(log, "kept")) == 5


def test_retention_deletes_nothing_when_a_pin_is_damaged(log: Log, clock: ManualClock) -> None:
    made(log, clock)
    (pin,) = [key for key in stored(log, PINS) if "/0/pinned" in key]
    log.store.put(pin, b"damaged")
    clock.sleep_s(61)
    works = with_unpublished(
        work_on(log.topics().values()), run(orphans.publication_records(0), log.store)
    )
    work = with_pins(works, run(snapshot_records(), log.store))[0]
    retained_by(RetainJob("memory://s"), clock)(log, work)
    clock.sleep_s(61)
    done = retained_by(RetainJob("memory://s"), clock)(log, work)
    assert done["deleted_objects"] == 0
    assert "a pin cannot be read" in done["problem"]
    with pytest.raises(DataCorrupt, match="objects of it stay"):
        log.delete_topic("t")
    assert stored(log, "/0/log/00000000000000000003.arrow")


def test_creation_fails_when_it_takes_too_long(
    log: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode_manifest = manifests.encode

    def slow(manifest: Manifest, layout: PartitionLayout) -> bytes:
        clock.sleep_s(CREATION_MAX_S + 1)
        return encode_manifest(manifest, layout)

    monkeypatch.setattr(manifests, "encode", slow)
    with pytest.raises(Unavailable, match="too long"):
        made(log, clock)
    assert not stored(log, PINS)


def test_creation_keeps_pins_when_the_outcome_is_unknown(
    log: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = log.store.put_if_absent

    def unknown(key: str, data: bytes) -> PutOutcome:
        return PutOutcome.UNKNOWN if key.startswith("snapshots/") else put(key, data)

    monkeypatch.setattr(log.store, "put_if_absent", unknown)
    with pytest.raises(OutcomeUnknown, match="drop it"):
        made(log, clock)
    assert len(stored(log, PINS)) == 2


def test_malformed_snapshot_object_is_rejected(log: Log, clock: ManualClock) -> None:
    data = encode(made(log, clock))
    assert decode(data, "s") == read_snapshot(log.store, "s")
    for bad in (
        b"",
        b"[]",
        b"{}",
        data.replace(b'"format":1', b'"format":2'),
        data.replace(b"timestamp", b"timestemp"),
    ):
        with pytest.raises(DataCorrupt):
            decode(bad, "s")
    with pytest.raises(DataCorrupt, match="another name"):
        decode(data, "other")
