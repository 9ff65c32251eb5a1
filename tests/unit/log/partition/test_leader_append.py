"""Flushing wire batches into the log, fences of leaders, and what direct writers make of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from sparklog.core.errors import DataCorrupt, Fenced, InvalidRequest, NotServing, UnreadableRecords
from sparklog.core.types import TimestampType
from sparklog.log.cleanup.garbage import GarbageRules, find_garbage, list_folder
from sparklog.log.effects import Program, Result, run
from sparklog.log.manifest.change import absorb_tail, change, raise_log_start
from sparklog.log.manifest.refresh import refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.history_reader import HistoryCache, HistoryReader
from sparklog.log.partition.leader_append import flush_at, hand_back, take_leadership
from sparklog.log.segment.unread_batches import Unread
from sparklog.log.tail import to_segment
from sparklog.log.tail.to_segment import FlushBuilder, build_flush
from sparklog.protocol.records.compression import DECOMPRESSED_BYTES_MAX, compress
from sparklog.protocol.records.control import EndTransactionMarker, encode_end_transaction
from sparklog.protocol.records.decoder import decode_runs
from sparklog.protocol.records.header import parse_header, seal_header
from sparklog.protocol.records.record_batch import BatchSettings, Codec, encode
from sparklog.store.base import ObjectInfo, ObjectStore
from sparklog.store.memory import MemoryStore
from tests.harness.log_records import LAYOUT, batch, numbered, open_partition, values
from tests.harness.wire_batches import raw_batch, record

COLD = PartitionView(LAYOUT)


@pytest.fixture
def store() -> ObjectStore:
    return MemoryStore("memory://flush")


def wire(base_offset: int, count: int, epoch: int = 1, **settings: object) -> bytes:
    """Return records number `base_offset` on as one batch at that offset."""
    chosen = BatchSettings(leader_epoch=epoch, **settings)  # type: ignore[arg-type]
    return encode(numbered(base_offset, count), chosen, base_offset=base_offset)


def drafted(batches: list[bytes], nonce: str = "b" * 32) -> FlushBuilder:
    return build_flush(LAYOUT, batches, nonce, codec="lz4")


def on(store: ObjectStore, protocol: Program[Result]) -> Result:
    return run(protocol, store)


def led(store: ObjectStore, epoch: int = 1) -> PartitionView:
    return on(store, take_leadership(COLD, epoch, f"{epoch:032x}"))


def expected(base_offset: int, end_offset: int) -> list[bytes | None]:
    return [b"value-%d" % i for i in range(base_offset, end_offset)]


def test_direct_readers_see_flushed_records_and_fences_take_no_offset(
    store: ObjectStore,
) -> None:
    log = open_partition(store)
    log.append([numbered(0, 3)])
    view = led(store)
    assert (view.end_offset, view.is_led, view.leader_epoch) == (3, True, 1)
    assert (view.tail[-1].name, view.next_name) == (
        "log/00000000000000000003.arrow",
        "log/00000000000000000003~0000000001.arrow",
    )
    view = on(store, flush_at(view, drafted([wire(3, 6), wire(9, 1)]), 1))
    assert view.end_offset == log.view().end_offset == 10
    assert view.next_name == "log/00000000000000000010.arrow"
    assert values(log, 0, 10) == expected(0, 10)
    assert sum(b.num_rows for b in log.read(0, 10, ("offset",))) == 10
    assert on(store, refresh(COLD)) == view


def test_direct_writer_is_rejected_until_the_hand_back(
    store: ObjectStore,
) -> None:
    early = open_partition(store)
    early.append([numbered(0, 1)])
    led(store)
    for log in (early, open_partition(store)):
        with pytest.raises(NotServing, match="led by a broker"):
            log.append([batch([b"mine"])])
    view = on(store, change(COLD, absorb_tail(1, 0), "c" * 32))
    assert not view.tail
    with pytest.raises(NotServing, match="led by a broker"):
        open_partition(store).append([batch([b"mine"])])
    on(store, change(COLD, raise_log_start(-1), "d" * 32))
    with pytest.raises(NotServing, match="led by a broker"):
        open_partition(store).append([batch([b"mine"])])
    view = on(store, hand_back(view, 2, "e" * 32))
    assert not view.is_led
    assert early.append([batch([b"mine"])]).base_offset == 1
    on(store, change(COLD, absorb_tail(1, 0), "f" * 32))
    assert open_partition(store).append([batch([b"mine"])]).base_offset == 2


def test_fences_may_be_put_again_and_do_nothing_then(store: ObjectStore) -> None:
    view = led(store, 0)
    assert on(store, take_leadership(COLD, 0, "2" * 32)) == view
    back = on(store, hand_back(view, 1, "3" * 32))
    assert back.position == (0, 2)
    assert on(store, hand_back(view, 1, "4" * 32)) == back
    assert led(store, 2).position == (0, 3)


def test_fences_are_absorbed_and_collected_without_records(store: ObjectStore) -> None:
    for epoch in range(40):
        led(store, epoch)
    view = on(store, change(COLD, absorb_tail(32, 0), "c" * 32))
    assert (view.tail, view.position, view.manifest.entries) == ((), (0, 40), ())
    listed = on(store, list_folder(LAYOUT))
    old = replace_times(listed)
    found = on(store, find_garbage(view, old, GarbageRules(now_ms=10_000, delay_ms=0)))
    assert len(found.doomed) == 40
    for info in found.doomed:
        store.delete(info.key)
    assert (led(store, 40).position, led(store, 41).position) == ((0, 41), (0, 42))
    on(store, hand_back(COLD, 42, "e" * 32))
    assert open_partition(store).append([batch([b"mine"])]).base_offset == 0


def replace_times(listed: list[ObjectInfo]) -> list[ObjectInfo]:
    """Return objects as if they were from long ago."""
    return [replace(info, modified_ms=1) for info in listed]


def test_a_leader_of_an_older_epoch_finds_itself_deposed(store: ObjectStore) -> None:
    old = led(store, 1)
    new = led(store, 2)
    assert new.end_offset == 0
    with pytest.raises(Fenced, match="epoch_in_log=2"):
        on(store, flush_at(old, drafted([wire(0, 2)]), 1))
    with pytest.raises(Fenced):
        on(store, take_leadership(COLD, 1, "5" * 32))
    with pytest.raises(Fenced):
        on(store, hand_back(old, 1, "6" * 32))


@pytest.mark.parametrize("absorbed", [False, True])
@pytest.mark.parametrize("others", [2, 4, 6])
def test_segment_of_another_leader_is_adopted_with_its_end(
    store: ObjectStore, others: int, absorbed: bool
) -> None:
    view = led(store)
    batches = [wire(0, 2), wire(2, 2), wire(4, 2)]
    on(store, flush_at(view, drafted(batches[: others // 2], "a" * 32), 1))
    if absorbed:
        on(store, change(view, absorb_tail(1, 0), "c" * 32))
    # The next leader recovers the same batches, which keep the epoch of their append.
    view = on(store, flush_at(view, drafted(batches[:2]), 2))
    assert view.end_offset == others
    rest = [b for b, base in zip(batches, (0, 2, 4), strict=True) if base >= view.end_offset]
    if rest:
        view = on(store, flush_at(view, drafted(rest), 2))
    assert values(open_partition(store), 0, 6) == expected(0, 6)
    assert view.end_offset == 6


def test_other_records_than_the_leaders_are_damage(store: ObjectStore) -> None:
    view = led(store)
    on(store, flush_at(view, drafted([wire(0, 2)], "a" * 32), 1))
    with pytest.raises(DataCorrupt, match="other records"):
        on(store, flush_at(view, drafted([wire(0, 2, epoch=2)]), 2))
    with pytest.raises(DataCorrupt, match="ends before"):
        on(store, flush_at(view, drafted([wire(9, 2)]), 1))


def test_a_segment_ends_where_the_epoch_or_the_timestamp_type_changes() -> None:
    append_time = TimestampType.LOG_APPEND_TIME
    batches = [
        wire(0, 2),
        wire(2, 1, epoch=2),
        wire(3, 1, epoch=2),
        wire(4, 1, epoch=2, timestamp_type=append_time),
    ]
    taken = []
    while batches:
        one = drafted(batches)
        taken.append((one.base_offset, one.end_offset, one.leader_epoch, one.batches))
        batches = batches[one.batches :]
    assert taken == [(0, 2, 1, 1), (2, 4, 2, 2), (4, 5, 2, 1)]


def test_a_segment_ends_when_its_records_unfold_to_too_much() -> None:
    zeros = pa.RecordBatch.from_pydict({"value": pa.array([bytes(1 << 20)] * 20, pa.binary())})
    settings = BatchSettings(codec=Codec.ZSTD, leader_epoch=1)
    batches = [encode(zeros, settings, base_offset=20 * i) for i in range(6)]
    assert sum(map(len, batches)) < 1 << 20
    one = build_flush(LAYOUT, batches, "b" * 32, codec="zstd", plain_bytes_max=50 << 20)
    assert (one.batches, one.end_offset) == (3, 60)


def test_producers_and_markers_are_kept_beside_the_rows(store: ObjectStore) -> None:
    view = led(store)
    producer = {"producer_id": 77, "producer_epoch": 3}
    marker = encode_end_transaction(
        EndTransactionMarker(is_commit=False, coordinator_epoch=9),
        base_offset=3,
        timestamp_ms=123,
        leader_epoch=1,
        **producer,
    )
    batches = [
        wire(0, 3, base_sequence=0, is_transactional=True, codec=Codec.GZIP, **producer),
        marker,
        wire(4, 2),
    ]
    view = on(store, flush_at(view, drafted(batches), 1))
    segment = view.tail[-1].segment
    assert [(p.producer_id, p.producer_epoch, p.base_sequence) for p in segment.producers] == [
        (77, 3, 0),
        (77, 3, -1),
    ]
    assert [(p.base, p.end, p.attributes) for p in segment.producers] == [
        (0, 3, 0x11),
        (3, 4, 0x30),
    ]
    assert [(m.base, m.timestamp_ms, m.key.hex()) for m in segment.markers] == [
        (3, 123, "00000000")
    ]
    assert (segment.rows, segment.end_offset) == (5, 6)
    read = pa.Table.from_batches(open_partition(store).read(0, 6, ("offset", "value")))
    assert read.column("offset").to_pylist() == [0, 1, 2, 4, 5]
    assert read.column("value").to_pylist() == expected(0, 3) + expected(4, 6)
    assert on(store, refresh(COLD)) == view


def test_a_segment_of_markers_alone_has_no_rows(store: ObjectStore) -> None:
    view = led(store)
    marker = encode_end_transaction(
        EndTransactionMarker(is_commit=True, coordinator_epoch=9),
        base_offset=0,
        timestamp_ms=123,
        producer_id=1,
        producer_epoch=0,
        leader_epoch=1,
    )
    view = on(store, flush_at(view, drafted([marker]), 1))
    assert view.end_offset == 1
    assert values(open_partition(store), 0, 1) == []
    assert open_partition(store).offset_of_max_timestamp() is None


def test_batches_that_do_not_join_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="do not join"):
        drafted([wire(0, 2), wire(3, 1)])
    with pytest.raises(InvalidRequest, match="no batches"):
        drafted([])
    with pytest.raises(DataCorrupt, match="bytes follow"):
        drafted([wire(0, 2) + wire(2, 1)])


def poisoned(base_offset: int, count: int, codec: Codec = Codec.NONE, size: int = 100) -> bytes:
    """Return a batch with the right checksum whose records are noise."""
    header = parse_header(wire(base_offset, count, codec=codec))
    noise = bytes(range(200, 250)) * (size // 50)
    return seal_header(header, noise) + noise


def test_batches_that_cannot_be_read_are_kept_as_they_came(store: ObjectStore) -> None:
    view = led(store)
    batches = [
        wire(0, 2),
        poisoned(2, 4),
        wire(6, 1, producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True),
        poisoned(7, 1, Codec.ZSTD),
        poisoned(8, 2, Codec.LZ4),
    ]
    draft = drafted(batches)
    assert draft.batches == 5
    assert drafted(batches).segment == draft.segment, "every leader makes the same of it"
    view = on(store, flush_at(view, draft, 1))
    assert [(u.base, u.end, u.data) for u in draft.segment.unread] == [
        (2, 6, batches[1]),
        (7, 8, batches[3]),
        (8, 10, batches[4]),
    ]
    log = open_partition(store)
    with pytest.raises(UnreadableRecords, match="partition=2 base_offset=2 end_offset=6"):
        values(log, 0, 10)
    assert values(log, 0, 2) == expected(0, 2)
    rows = list(log.read(0, 10, ["value"], unread=Unread.PASS_OVER))
    assert pa.Table.from_batches(rows)["value"].to_pylist() == expected(0, 2) + expected(6, 7)
    assert not log.find(b"no key").records
    assert on(store, refresh(COLD)) == view
    history = on(store, HistoryReader(LAYOUT, HistoryCache(1 << 20)).read(view, 0, 1 << 20))
    assert [history.batches[at] for at in (1, 3, 4)] == [batches[at] for at in (1, 3, 4)]
    assert [parse_header(data).base_offset for data in history.batches] == [0, 2, 6, 7, 8]
    assert parse_header(history.batches[2]).is_transactional


def test_a_segment_ends_when_it_keeps_much_unread() -> None:
    mib = 1 << 20
    batches = [wire(0, 1), *(poisoned(1 + i, 1, size=mib) for i in range(6)), wire(7, 1)]
    one = drafted(batches)
    assert (one.batches, len(one.segment.unread), one.segment.rows) == (5, 4, 1)
    rest = drafted(batches[5:])
    assert (rest.batches, len(rest.segment.unread), rest.segment.rows) == (3, 2, 1)


def test_accepted_batch_of_any_decompressed_size_is_stored() -> None:
    data = raw_batch([record(0, bytes(DECOMPRESSED_BYTES_MAX))], codec=Codec.ZSTD)
    one = drafted([data])
    assert (one.segment.rows, one.segment.unread) == (1, ())


OFFSETS = ("offset", "timestamp", "timestampType", "key", "value", "headers")


def test_records_unreadable_to_an_older_version_are_shown_as_rows(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It kept such a batch as it came; this version reads it."""
    view = led(store)
    padded = compress(b"".join(record(at, b"%d" % at) for at in range(4)), Codec.GZIP) + bytes(8)
    given = raw_batch([], codec=Codec.GZIP, packed=padded, count=4)
    header = parse_header(given)._replace(base_offset=2, leader_epoch=1)
    odd = seal_header(header, padded) + padded
    batches = [wire(0, 2), odd, wire(6, 1)]

    def decodes(data: Sequence[bytes], *others: object, **more: object) -> Any:
        if odd in data:
            raise DataCorrupt("as an older version says")
        return decode_runs(data, *others, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(to_segment, "decode_runs", decodes)
    monkeypatch.setattr(to_segment, "_unreadable", lambda *_: [1])
    draft = drafted(batches)
    assert [u.data for u in draft.segment.unread] == [odd]
    on(store, flush_at(view, draft, 1))
    log = open_partition(store)
    wanted = [*expected(0, 2), b"0", b"1", b"2", b"3", *expected(6, 7)]
    assert values(log, 0, 7) == wanted
    for low in range(7):
        for high in range(low + 1, 8):
            table = pa.Table.from_batches(log.read(low, high, OFFSETS))
            assert table["offset"].to_pylist() == list(range(low, high))
            assert table["value"].to_pylist() == wanted[low:high]
