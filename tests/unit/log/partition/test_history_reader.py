"""History for consumers: what is fetched, what is kept, and what takes no record's place."""

from __future__ import annotations

import pytest

from sparklog.core.errors import DataCorrupt, OffsetOutOfRange
from sparklog.core.types import TimestampType
from sparklog.log.effects import Effect, GetMany, Program, Result
from sparklog.log.manifest.change import absorb_tail, change, raise_log_start
from sparklog.log.manifest.manifest import REWRITTEN_NONCE, Entry, Manifest
from sparklog.log.manifest.refresh import refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.history_reader import EncodedHistory, HistoryCache, HistoryReader
from sparklog.log.partition.leader_append import flush_at, hand_back, take_leadership
from sparklog.log.partition.offset_lookup import end_of_epoch, epoch_at
from sparklog.log.partition.partition_log import LogConfig
from sparklog.log.schema import normalized
from sparklog.log.segment.builder import build_records
from sparklog.log.segment.segment import ProducerBatch, Segment
from sparklog.log.segment.to_batches import BATCH_BYTES, OffsetSpans
from sparklog.log.tail.to_segment import build_flush
from sparklog.protocol.records.header import BatchHeader, parse_header
from sparklog.protocol.records.record_batch import BatchSettings, Codec, decode, encode
from sparklog.store.memory import MemoryStore
from tests.harness.counted_requests import run_noting
from tests.harness.log_records import LAYOUT, batch, numbered, open_partition

COLD = PartitionView(LAYOUT)
CACHE_BYTES = 64 << 20


class World:
    """A store that counts what is asked of it, and a reader of its one partition."""

    def __init__(self, cache_bytes: int = CACHE_BYTES, codec: Codec = Codec.NONE) -> None:
        """Begin empty."""
        self.store = MemoryStore("memory://history")
        self.log = open_partition(self.store, LogConfig(codec="none"))
        self.cache = HistoryCache(cache_bytes)
        self.reader = HistoryReader(LAYOUT, self.cache, codec)
        self.effects: list[Effect] = []

    def run(self, protocol: Program[Result]) -> Result:
        return run_noting(protocol, self.store, self.effects)

    @property
    def gets(self) -> int:
        """Return how many objects' ranges the last protocol read."""
        return sum(len(e.ranges) for e in self.effects if isinstance(e, GetMany))

    def view(self) -> PartitionView:
        return self.run(refresh(COLD))

    def read(
        self, offset: int, max_bytes: int = 1 << 30, limit: int | None = None
    ) -> EncodedHistory:
        return self.run(self.reader.read(self.view(), offset, max_bytes, limit))


@pytest.fixture
def world() -> World:
    return World()


def values(history: EncodedHistory) -> list[bytes | None]:
    found: list[bytes | None] = []
    for data in history.batches:
        if not parse_header(data).is_control:
            found += decode(data).records.column("value").to_pylist()
    return found


def heads(history: EncodedHistory) -> list[BatchHeader]:
    return [parse_header(data) for data in history.batches]


def big(count: int, size: int = (1 << 20) - 100) -> list[bytes | None]:
    """Return values of which each fills a record batch of a segment."""
    return [bytes([i]) * size for i in range(count)]


def test_direct_appends_staged_ones_and_flushed_ones_read_alike(world: World) -> None:
    world.log.append([numbered(0, 2)])
    world.log.append_staged([world.log.stage([numbered(2, 1)]), world.log.stage([numbered(3, 1)])])
    view = world.run(take_leadership(COLD, 1, "a" * 32))
    data = encode(numbered(4, 2), BatchSettings(leader_epoch=1), base_offset=4)
    world.run(flush_at(view, build_flush(LAYOUT, [data], "b" * 32, codec="lz4"), 1))
    history = world.read(0)
    assert values(history) == [b"value-%d" % i for i in range(6)]
    assert history.next_offset == 6
    assert [(h.base_offset, h.end_offset, h.leader_epoch) for h in heads(history)] == [
        (0, 2, -1),
        (2, 3, -1),
        (3, 4, -1),
        (4, 6, 1),
    ]


def test_a_fence_is_no_batch_for_consumers(world: World) -> None:
    world.run(take_leadership(COLD, 0, "a" * 32))
    history = world.read(0)
    assert (history.batches, history.next_offset) == ([], 0)


def test_read_begins_at_the_batch_of_the_offset_and_ends_at_limits(
    world: World,
) -> None:
    world.log.append([batch([b"x" * 1000] * 500)])
    world.log.append([batch([b"y"])])
    all_of_it = world.read(0)
    ends = [h.end_offset for h in heads(all_of_it)]
    assert len(ends) > 3
    assert ends[-1] == 501
    assert all(len(data) <= BATCH_BYTES for data in all_of_it.batches)
    one = world.read(ends[1] - 1, max_bytes=1)
    assert one.batches == all_of_it.batches[1:2]
    assert one.next_offset == ends[1]
    both = world.read(0, max_bytes=sum(len(data) for data in all_of_it.batches[:2]))
    assert both.batches == all_of_it.batches[:2]
    limited = world.read(0, limit=ends[1])
    assert limited.batches == all_of_it.batches[:2]
    nothing = world.read(501)
    assert (nothing.batches, nothing.next_offset) == ([], 501)
    for offset in (-1, 502):
        with pytest.raises(OffsetOutOfRange):
            world.read(offset)


def test_request_serves_several_reads_and_read_ahead_avoids_waits(
    world: World,
) -> None:
    world.log.append([batch(big(10))])
    view = world.view()
    first = world.run(world.reader.read(view, 0, 1))
    assert world.gets == 1, "the footer is in the view, four blocks come in one range"
    for offset in range(1, 4):
        assert world.run(world.reader.read(view, offset, 1)).next_offset == offset + 1
        assert world.effects == []
    world.run(world.reader.load(view, 4))
    assert world.gets == 1
    assert world.run(world.reader.read(view, 4, 1)).next_offset == 5
    assert world.effects == []
    assert world.run(world.reader.load(view, 10)) is view
    assert values(first) == big(1)


def test_cache_is_bounded_and_reports_its_size(world: World) -> None:
    world = World(cache_bytes=3 << 20)
    world.log.append([batch(big(12))])
    view = world.view()
    for offset in range(12):
        assert values(world.run(world.reader.read(view, offset, 1))) == big(12)[offset : offset + 1]
        assert 0 < world.cache.size_bytes <= 3 << 20
    world.run(world.reader.read(view, 0, 1))
    assert world.gets == 1, "what was read first is gone"


def test_objects_that_were_replaced_are_found_in_the_newer_manifest(world: World) -> None:
    world.log.append([numbered(0, 2)])
    world.log.append([numbered(2, 2)])
    stale = world.view()
    _merge(world)
    history = world.run(world.reader.read(stale, 1, 1 << 20))
    assert values(history) == [b"value-%d" % i for i in range(4)]
    assert history.view.manifest.version == 1
    found = world.run(HistoryReader(LAYOUT, world.cache).find_timestamp(stale, 1_000_030))
    assert found is not None
    assert found.offset == 3


def test_an_object_that_is_missing_for_good_is_damage(world: World) -> None:
    world.log.append([numbered(0, 2)])
    view = world.run(change(COLD, absorb_tail(1, 0), "c" * 32))
    world.store.delete(LAYOUT.key(LAYOUT.chain_name(0)))
    with pytest.raises(DataCorrupt, match="missing though the log names it"):
        world.run(world.reader.read(view, 0, 1))
    with pytest.raises(DataCorrupt, match="missing though the log names it"):
        world.run(world.reader.find_timestamp(view, 0))


def test_damaged_bytes_are_named_and_not_returned(world: World) -> None:
    world.log.append([numbered(0, 100)])
    view = world.view()
    key = LAYOUT.key(LAYOUT.chain_name(0))
    data = bytearray(world.store.get(key))
    data[data.index(b"value-7")] ^= 1
    world.store.put(key, bytes(data))
    with pytest.raises(DataCorrupt, match="checksum"):
        world.run(world.reader.read(view, 0, 1))


def test_append_time_stays_append_time() -> None:
    world = World(codec=Codec.LZ4)
    view = world.run(take_leadership(COLD, 1, "a" * 32))
    settings = BatchSettings(timestamp_type=TimestampType.LOG_APPEND_TIME, leader_epoch=1)
    data = [
        encode(batch([b"v"] * 3, timestamps_ms=[stamp] * 3), settings, base_offset=base)
        for base, stamp in ((0, 500), (3, 500), (6, 600))
    ]
    world.run(flush_at(view, build_flush(LAYOUT, data, "b" * 32, codec="lz4"), 1))
    found = heads(world.read(0))
    assert [(h.base_offset, h.max_timestamp, h.timestamp_type) for h in found] == [
        (0, 500, TimestampType.LOG_APPEND_TIME),
        (6, 600, TimestampType.LOG_APPEND_TIME),
    ]
    assert {h.codec for h in found} == {Codec.LZ4}


def test_a_record_larger_than_a_batch_is_one_batch(world: World) -> None:
    world.log.append([batch([b"a", b"b" * (BATCH_BYTES + 1), b"c"])])
    assert values(world.read(0)) == [b"a", b"b" * (BATCH_BYTES + 1), b"c"]


def test_compacted_gap_is_covered_by_an_empty_batch(world: World) -> None:
    world.log.append([numbered(0, 5)])
    world.log.append([numbered(5, 1)])
    name = LAYOUT.rewritten_name(0, "e" * 32)
    nothing = normalized(batch([b"gone"]), 0).slice(0, 0)
    draft = build_records(LAYOUT, [nothing], "e" * 32, codec="none")
    data = draft.at(0)
    world.store.put_if_absent(LAYOUT.key(name), data)

    def plan(view: PartitionView) -> Manifest | None:
        entry = Entry(0, 5, name, len(data), 0, -1, -1, -1, REWRITTEN_NONCE)
        return None if view.manifest.entries else Manifest(end_offset=5, entries=(entry,))

    world.run(change(COLD, plan, "f" * 32))
    history = world.read(2)
    assert [(h.base_offset, h.end_offset, h.record_count) for h in heads(history)] == [
        (0, 5, 0),
        (5, 6, 1),
    ]


def test_records_below_the_log_start_are_not_searched(world: World) -> None:
    world.log.append([numbered(0, 10)])
    world.run(change(COLD, raise_log_start(4), "d" * 32))
    found = world.run(world.reader.find_timestamp(world.view(), 0))
    assert found is not None
    assert found.offset == 4


def test_spans_separate_transactions_and_join_continued_ones() -> None:
    plain, transactional, marker = 0x00, 0x10, 0x30
    segment = Segment(
        LAYOUT.topic_id,
        LAYOUT.partition,
        0,
        40,
        39,
        "n",
        producers=(
            ProducerBatch(1, 0, 0, 2, 5, transactional),
            ProducerBatch(1, 0, 3, 5, 7, transactional),
            ProducerBatch(2, 0, 0, 7, 9, transactional),
            ProducerBatch(3, 0, 0, 9, 12, plain),
            ProducerBatch(1, 0, 5, 15, 16, transactional),
            ProducerBatch(1, 0, 6, 17, 20, transactional),
            ProducerBatch(1, 0, -1, 20, 21, marker),
            ProducerBatch(1, 1, 0, 21, 30, transactional),
        ),
    )
    stretches = OffsetSpans(segment)

    def found(base: int, end: int) -> list[tuple[int, int, int | None]]:
        return [
            (s.base, s.end, s.producer.base_sequence if s.producer else None)
            for s in stretches.within(base, end)
        ]

    assert found(0, 40) == [
        (0, 2, None),
        (2, 7, 0),
        (7, 9, 0),
        (9, 15, None),
        (15, 16, 5),
        (16, 17, None),
        (17, 20, 6),
        (20, 21, -1),
        (21, 30, 0),
        (30, 40, None),
    ]
    assert found(4, 8) == [(4, 7, 0), (7, 8, 0)]
    assert found(9, 12) == [(9, 12, None)]


def test_epochs_never_fall_though_direct_writers_return(world: World) -> None:
    world.log.append([numbered(0, 2)])
    assert epoch_at(world.view(), 0) == -1
    assert end_of_epoch(world.view(), 5) == (-1, 2)
    view = world.run(take_leadership(COLD, 0, "a" * 32))
    data = encode(numbered(2, 1), BatchSettings(leader_epoch=0), base_offset=2)
    world.run(flush_at(view, build_flush(LAYOUT, [data], "c" * 32, codec="none"), 0))
    world.run(hand_back(COLD, 1, "b" * 32))
    world.log.append([numbered(3, 3)])
    view = world.view()
    assert [epoch_at(view, offset) for offset in range(6)] == [-1, -1, 0, 0, 0, 0]
    assert [end_of_epoch(view, epoch) for epoch in (-1, 0, 1)] == [(-1, 2), (0, 6), (0, 6)]
    assert [h.leader_epoch for h in heads(world.read(0))] == [-1, 0, 0]


def _merge(world: World) -> None:
    """Rewrite all records into one object and delete the others."""
    view = world.view()
    draft = build_records(LAYOUT, [normalized(numbered(0, 4), 0)], "e" * 32, codec="none")
    name, data = LAYOUT.rewritten_name(0, "e" * 32), draft.at(0)
    world.store.put_if_absent(LAYOUT.key(name), data)
    (low, high) = draft.segment.min_timestamp_ms, draft.segment.max_timestamp_ms

    def plan(now: PartitionView) -> Manifest | None:
        entry = Entry(0, 4, name, len(data), 4, low, high, -1, REWRITTEN_NONCE)
        return None if now.manifest.entries else Manifest(end_offset=4, entries=(entry,))

    world.run(change(COLD, plan, "f" * 32))
    for entry in view.entries:
        world.store.delete(LAYOUT.key(entry.object))
