"""Flushed batches of a leader: consumers of history read the same records and markers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sparklog.log.effects import run
from sparklog.log.manifest.change import absorb_tail, change
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.history_reader import HistoryCache, HistoryReader
from sparklog.log.partition.leader_append import flush_at, take_leadership
from sparklog.log.partition.partition_log import PartitionLog
from sparklog.log.tail.to_segment import build_flush
from sparklog.protocol.records.columns import RECORDS_SCHEMA
from sparklog.protocol.records.control import EndTransactionMarker, encode_end_transaction
from sparklog.protocol.records.header import BatchHeader, Codec
from sparklog.protocol.records.header_names import text_of
from sparklog.protocol.records.record_batch import BatchSettings, decode, encode
from sparklog.store.memory import MemoryStore
from tests.harness.log_records import LAYOUT

EPOCH = 3
Row = dict[str, Any]

octets = st.none() | st.binary(max_size=12)
header_keys = st.text(max_size=3) | st.binary(max_size=3).map(text_of)
headers = st.none() | st.lists(
    st.fixed_dictionaries({"key": header_keys, "value": octets}), min_size=1, max_size=2
)


@dataclass
class Taken:
    """A batch as a leader holds it, and what consumers must find of it."""

    data: bytes
    rows: list[Row]
    producer: tuple[int, int] | None
    """Of a transaction: id and epoch."""


@st.composite
def taken_batches(draw: st.DrawFn) -> list[Taken]:
    """Draw batches that join from offset 0 on."""
    made: list[Taken] = []
    offset = 0
    sequences: dict[int, int] = {}
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["plain", "idempotent", "transactional", "marker"]))
        producer = draw(st.integers(0, 2))
        one = (
            _marker(draw, offset, producer)
            if kind == "marker"
            else _batch(draw, offset, kind, producer, sequences)
        )
        made.append(one)
        offset = decode(one.data).header.end_offset
    return made


def _marker(draw: st.DrawFn, offset: int, producer: int) -> Taken:
    marker = EndTransactionMarker(draw(st.booleans()), draw(st.integers(0, 9)))
    data = encode_end_transaction(
        marker,
        base_offset=offset,
        timestamp_ms=draw(st.integers(0, 2000)),
        producer_id=producer,
        producer_epoch=1,
        leader_epoch=EPOCH,
    )
    return Taken(data, [], (producer, 1))


def _batch(
    draw: st.DrawFn, offset: int, kind: str, producer: int, sequences: dict[int, int]
) -> Taken:
    rows: list[Row] = []
    base = offset
    for _ in range(draw(st.integers(1, 4))):
        rows.append(
            {
                "offset": offset,
                "timestamp": draw(st.integers(0, 2000)),
                "key": draw(octets),
                "value": draw(octets | st.just(b"x" * 5000)),
                "headers": draw(headers),
            }
        )
        offset += draw(st.sampled_from([1, 1, 1, 3]))
    settings = BatchSettings(codec=draw(st.sampled_from(list(Codec))), leader_epoch=EPOCH)
    if kind != "plain":
        sequence = sequences.get(producer, 0)
        sequences[producer] = sequence + offset - base
        settings = BatchSettings(
            codec=settings.codec,
            leader_epoch=EPOCH,
            producer_id=producer,
            producer_epoch=1,
            base_sequence=sequence,
            is_transactional=kind == "transactional",
        )
    columns = {name: [row[name] for row in rows] for name in RECORDS_SCHEMA.names}
    arrays = [
        pa.array(columns[field.name], pa.int64()).view(field.type)
        if pa.types.is_timestamp(field.type)
        else pa.array(columns[field.name], field.type)
        for field in RECORDS_SCHEMA
    ]
    records = pa.RecordBatch.from_arrays(arrays, schema=RECORDS_SCHEMA)
    data = encode(records, settings, base_offset=base, last_offset=offset - 1)
    return Taken(data, rows, (producer, 1) if kind == "transactional" else None)


def _rows_of(records: pa.RecordBatch) -> list[Row]:
    at = records.schema.get_field_index("timestamp")
    numbers = records.column("timestamp").view(pa.int64())
    return list(records.set_column(at, "timestamp", numbers).to_pylist())


def _producer_of(header: BatchHeader) -> tuple[int, int] | None:
    if not header.is_transactional:
        return None
    return header.producer_id, header.producer_epoch


@given(
    taken=taken_batches(),
    codec=st.sampled_from(["none", "lz4", "zstd"]),
    out=st.sampled_from([Codec.NONE, Codec.LZ4, Codec.ZSTD]),
    cut=st.integers(1, 12),
    absorbed=st.booleans(),
    max_bytes=st.sampled_from([1, 300, 1 << 20]),
    cache_bytes=st.sampled_from([1, 1 << 20]),
)
def test_history_returns_the_flushed_batches(
    taken: list[Taken],
    codec: str,
    out: Codec,
    cut: int,
    absorbed: bool,
    max_bytes: int,
    cache_bytes: int,
) -> None:
    store = MemoryStore("memory://wire")
    view = run(take_leadership(PartitionView(LAYOUT), EPOCH, "a" * 32), store)
    batches = [one.data for one in taken]
    for at in range(0, len(batches), cut):
        draft = build_flush(LAYOUT, batches[at : at + cut], f"{at:032x}", codec=codec)
        view = run(flush_at(view, draft, EPOCH), store)
    if absorbed:
        view = run(change(view, absorb_tail(1, 0), "c" * 32), store)
    reader = HistoryReader(LAYOUT, HistoryCache(cache_bytes), out)
    found: list[tuple[Row, tuple[int, int] | None]] = []
    markers: list[bytes] = []
    offset = 0
    while offset < view.end_offset:
        history = run(reader.read(view, offset, max_bytes), store)
        assert history.batches, f"no way on from offset {offset}"
        assert len(history.batches) == 1 or sum(map(len, history.batches)) <= max_bytes
        for data in history.batches:
            header, records = (one := decode(data)).header, one.records
            assert header.base_offset <= offset < header.end_offset
            assert header.leader_epoch == EPOCH
            if not header.is_control:
                found += [(row, _producer_of(header)) for row in _rows_of(records)]
            elif header.has_producer_id:
                markers.append(data)
            offset = header.end_offset
        assert offset == history.next_offset
    assert found == [(row, one.producer) for one in taken for row in one.rows]
    assert markers == [one.data for one in taken if not one.rows]
    direct = PartitionLog(store, LAYOUT).read(0, view.end_offset, RECORDS_SCHEMA.names)
    assert [row for batch in direct for row in _rows_of(batch)] == [row for row, _ in found]
    _check_timestamps(reader, view, store, [row for row, _ in found])


def _check_timestamps(
    reader: HistoryReader, view: PartitionView, store: MemoryStore, rows: list[Row]
) -> None:
    for wanted in (0, 700, 1999, 2001):
        expected = next((r for r in rows if r["timestamp"] >= wanted), None)
        got = run(reader.find_timestamp(view, wanted), store)
        if expected is None:
            assert got is None
        else:
            assert got is not None
            assert (got.offset, got.timestamp_ms) == (expected["offset"], expected["timestamp"])
    newest = run(reader.find_max_timestamp(view), store)
    stamps = [row["timestamp"] for row in rows]
    if stamps:
        assert newest is not None
        assert newest.offset == rows[stamps.index(max(stamps))]["offset"]
    else:
        assert newest is None
