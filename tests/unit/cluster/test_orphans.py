"""Objects beside partitions: publication records, write-ahead logs, strays of deleted topics."""

from __future__ import annotations

import pytest

from sparklog.cluster import orphans
from sparklog.cluster.log import Log
from sparklog.cluster.metadata.image import Broker, MetadataImage, PartitionState, Topic
from sparklog.cluster.publication import StagedPartition, publish
from sparklog.core.clock import ManualClock
from sparklog.core.types import PartitionId
from sparklog.log.cleanup.garbage import ORPHAN_AGE_MS
from sparklog.log.effects import run
from sparklog.log.layout import METADATA_TOPIC, METADATA_TOPIC_ID, WalLayout, topic_folder
from sparklog.log.segment.segment import CommitKey
from sparklog.log.wal.objects import WalHeader, WalKind, encode
from sparklog.log.wal.sealing import seal
from sparklog.store.memory import MemoryStore
from tests.harness.log_records import batch

REGISTRY = topic_folder(METADATA_TOPIC, METADATA_TOPIC_ID)


@pytest.fixture
def log(clock: ManualClock) -> Log:
    return Log(MemoryStore("leftovers", clock), clock=clock)


def published(log: Log, clock: ManualClock, writer: str, sequence: int) -> StagedPartition:
    topic = log.topic("t")
    reference = log.partition("t", 0).stage([batch([b"%d" % sequence])])
    part = StagedPartition("t", topic.topic_id, 0, (reference,))
    publish(log, writer, sequence, [part], clock=clock)
    return part


def test_newest_record_of_each_writer_stays(log: Log, clock: ManualClock) -> None:
    log.create_topic("t")
    for sequence in range(3):
        published(log, clock, "q", sequence)
    mine = published(log, clock, "r", 0)
    log.store.put("commits/q/notes.txt", b"mine")
    found = run(orphans.publication_records(clock.now_ms()), log.store)
    assert {(r.writer, r.sequence) for r in found.newest} == {("q", 2), ("r", 0)}
    assert not found.doomed
    topic_id = log.topic("t").topic_id
    unpublished = found.unpublished()[PartitionId(topic_id, 0)]
    assert (CommitKey("r", 0), (mine.staged[0].object,)) in unpublished

    clock.sleep_s(ORPHAN_AGE_MS / 1000 + 1)
    published(log, clock, "r", 1)
    later = run(orphans.publication_records(clock.now_ms()), log.store)
    assert sorted(i.key[-8:] for i in later.doomed) == ["000.json", "000.json", "001.json"]
    # An expired record, which can no longer be published, protects no object.
    assert {(r.writer, r.sequence) for r in later.newest} == {("r", 1)}


def test_damaged_publication_record_is_reported(log: Log, clock: ManualClock) -> None:
    key = "commits/q/00000000000000000007.json"
    log.store.put(key, b"{}")
    found = run(orphans.publication_records(clock.now_ms()), log.store)
    assert found.damaged == (key,)


def wal(store: MemoryStore, layout: WalLayout, objects: int) -> None:
    for sequence in range(objects):
        kind = WalKind.WINDOW if sequence else WalKind.REGISTRATION
        store.put(layout.key(sequence), encode(layout, WalHeader(kind, sequence, 0, "a" * 32)))


def test_unreferenced_wal_is_cleared_except_its_seal(
    clock: ManualClock,
) -> None:
    store = MemoryStore("wals", clock)
    live, needed, sealed, abandoned = (WalLayout(n, f"{n:032x}") for n in range(4))
    for layout in (live, needed, sealed, abandoned):
        wal(store, layout, 3)
    run(seal(sealed, "b" * 32), store)
    state = PartitionState(wals=(f"{needed.broker_id}-{needed.incarnation}",))
    image = MetadataImage(
        topics={"t": Topic("t", "A" * 22, (state,))},
        brokers={0: Broker(0, live.incarnation, "h", 1, None, 7)},
    )

    def left() -> list[WalLayout]:
        listed = run(orphans.list_wals(), store)
        return orphans.left_wals(listed, image, clock.now_ms())

    assert left() == []
    clock.sleep_s(ORPHAN_AGE_MS / 1000 + 1)
    wal(store, young := WalLayout(9, "9" * 32), 2)
    assert left() == [sealed, abandoned]
    for layout in left():
        run(orphans.clear_wal(layout, "c" * 32), store)
    assert [i.key for i in store.list(abandoned.folder)] == [abandoned.key(3)]
    assert [i.key for i in store.list(sealed.folder)] == [sealed.key(3)]
    assert len(list(store.list(young.folder))) == 2
    assert left() == []


def test_strays_of_deleted_topics_go_and_tombstones_stay(log: Log, clock: ManualClock) -> None:
    kept, gone = log.create_topic("kept"), log.create_topic("gone", 2)
    log.partition("gone", 0).append([batch([b"x"])])
    log.delete_topic("gone")
    folder = topic_folder("gone", gone.topic_id)
    graves = [info.key for info in log.store.list(folder)]
    assert len(graves) == 2
    known = {REGISTRY, topic_folder("kept", kept.topic_id)}
    log.store.put("topics/notes.txt", b"mine")
    assert list(orphans.unknown_folders(log.store, known)) == [folder]
    assert run(orphans.strays(folder), log.store).doomed == ()

    late = folder + "0/log/00000000000000000001.arrow"
    log.store.put(late, b"of a writer that had not heard of it")
    found = run(orphans.strays(folder), log.store)
    assert [info.key for info in found.doomed] == [late]
    assert found.unknown == ()


def test_folder_without_tombstones_is_reported_and_kept(log: Log) -> None:
    strange = log.create_topic("strange")
    log.partition("strange", 0).append([batch([b"x"])])
    log.partition("strange", 0).absorb_tail()
    found = run(orphans.strays(topic_folder("strange", strange.topic_id)), log.store)
    assert found.doomed == ()
    assert len(found.unknown) == 1


def test_old_registry_snapshots_are_deleted(log: Log) -> None:
    for number in range(1, 5):
        log.store.put(f"{REGISTRY}0/snapshot/{number:020d}.json", b"{}")
    log.store.put(f"{REGISTRY}0/snapshot/notes.txt", b"mine")
    doomed = run(orphans.old_registry_snapshots(), log.store)
    assert [info.key[-6:] for info in doomed] == ["1.json", "2.json"]
