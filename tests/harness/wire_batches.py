"""Record batches as producers send them, for tests of the tail and of what is checked before."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from sparklog.core.types import NO_PRODUCER_ID
from sparklog.log.effects import run
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.leader_append import flush_at, take_leadership
from sparklog.log.tail.batch_validator import CheckedBatch
from sparklog.log.tail.to_segment import build_flush
from sparklog.protocol.messages.encoder import put_varint
from sparklog.protocol.records.columns import TIMESTAMP_TYPE
from sparklog.protocol.records.compression import compress
from sparklog.protocol.records.header import (
    HEADER_BYTES,
    BatchHeader,
    BytesLike,
    parse_header,
    seal_header,
)
from sparklog.protocol.records.record_batch import BatchSettings, Codec, encode
from sparklog.store.base import ObjectStore


def produced(
    timestamps_ms: Sequence[int] = (1_000,),
    *,
    keys: Sequence[bytes | None] | None = None,
    codec: Codec = Codec.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> CheckedBatch:
    """Return one batch with a record per timestamp."""
    count = len(timestamps_ms)
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array(timestamps_ms, pa.int64()).view(TIMESTAMP_TYPE),
            pa.array(keys or [b"key"] * count, pa.binary()),
            pa.array([b"value-%d" % n for n in range(count)], pa.binary()),
        ],
        names=["timestamp", "key", "value"],
    )
    settings = BatchSettings(
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
        leader_epoch=leader_epoch,
    )
    data = encode(rows, settings, base_offset=base_offset)
    return CheckedBatch(parse_header(data), data)


def placed(data: BytesLike, base_offset: int, leader_epoch: int) -> bytes:
    """Return a batch as a leader places it in the log; its checksum covers neither number."""
    header = parse_header(data)._replace(base_offset=base_offset, leader_epoch=leader_epoch)
    return header.to_bytes() + bytes(data)[HEADER_BYTES:]


def zigzag(value: int) -> bytes:
    """Return a signed number as records have it."""
    out = bytearray()
    put_varint(out, (value << 1 ^ value >> 63) & (1 << 64) - 1)
    return bytes(out)


def record(
    delta: int,
    value: bytes = b"value",
    *,
    key: bytes | None = b"key",
    timestamp_delta: int = 0,
    headers: bytes = b"\x00",
    value_length: int | None = None,
) -> bytes:
    """Return one record byte by byte, as any client might write it.

    Args:
        delta: of its offset.
        value: its bytes.
        key: its key.
        timestamp_delta: to the batch's base timestamp.
        headers: their number and bytes.
        value_length: where it is a lie.
    """
    length = len(value) if value_length is None else value_length
    keyed = zigzag(-1) if key is None else zigzag(len(key)) + key
    head = b"\x00" + zigzag(timestamp_delta) + zigzag(delta)
    body = head + keyed + zigzag(length) + value + headers
    return zigzag(len(body)) + body


def raw_batch(
    records: Sequence[bytes],
    *,
    codec: Codec = Codec.NONE,
    packed: bytes | None = None,
    count: int | None = None,
    last_delta: int | None = None,
    base_timestamp: int = 1_000,
    max_timestamp: int | None = None,
    sequence: int = -1,
    producer_id: int = NO_PRODUCER_ID,
) -> bytes:
    """Return a batch of these records with a right checksum and the given header fields.

    Args:
        records: see `record`.
        codec: what the attributes say.
        packed: the bytes behind the header, if not the records compressed.
        count: of records, in the header.
        last_delta: last offset delta, in the header.
        base_timestamp: in the header.
        max_timestamp: in the header; None: the base timestamp.
        sequence: base sequence.
        producer_id: with an epoch of 0.
    """
    number = len(records) if count is None else count
    body = compress(b"".join(records), codec) if packed is None else packed
    header = BatchHeader(
        base_offset=0,
        length=0,
        leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=int(codec),
        last_offset_delta=number - 1 if last_delta is None else last_delta,
        base_timestamp=base_timestamp,
        max_timestamp=base_timestamp if max_timestamp is None else max_timestamp,
        producer_id=producer_id,
        producer_epoch=-1 if producer_id == NO_PRODUCER_ID else 0,
        base_sequence=sequence,
        record_count=number,
    )
    return seal_header(header, body) + body


def put_unreadable(store: ObjectStore, layout: PartitionLayout) -> None:
    """Write an empty log as an older version did: offsets 0 and 1 are noise, 2 is a record."""
    noise = b"\xff" * 40
    header = parse_header(raw_batch([record(0)] * 2))._replace(base_offset=0, leader_epoch=1)
    good = raw_batch([record(0, b"good")])
    after = parse_header(good)._replace(base_offset=2, leader_epoch=1)
    batches = [seal_header(header, noise) + noise, after.to_bytes() + good[HEADER_BYTES:]]
    view = run(take_leadership(PartitionView(layout), 1, "1" * 32), store)
    run(flush_at(view, build_flush(layout, batches, "b" * 32, codec="lz4"), 1), store)
