"""kafka-python's reader, unmodified, reads what sparklog writes.

Java's reader does so for all codecs in tests/golden/record_batch; this one knows gzip and zstd
without further packages.
"""

from __future__ import annotations

import warnings
from typing import Any

import pyarrow as pa
import pytest

from sparklog.core.types import TimestampType
from sparklog.protocol.records.columns import RECORDS_SCHEMA
from sparklog.protocol.records.control import EndTransactionMarker, encode_end_transaction
from sparklog.protocol.records.record_batch import BatchSettings, Codec, encode, encode_many

with warnings.catch_warnings():
    # kafka-python 3.0 reads its schemas by a function that Python 3.11 calls deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.memory_records import MemoryRecords  # type: ignore[import-untyped]

T = 1_700_000_000_000
READABLE = [Codec.NONE, Codec.GZIP, Codec.ZSTD]
ROWS: list[dict[str, Any]] = [
    {
        "offset": 10 + i + i // 7,
        "timestamp": T + i * i - 5 * i,
        "key": None if i % 5 == 0 else b"" if i % 5 == 1 else b"key%d" % i,
        "value": None if i % 4 == 0 else bytes(i % 256 for i in range(i * 3)),
        "headers": [{"key": f"größe{j}", "value": b"v" * j if j else None} for j in range(i % 3)],
    }
    for i in range(400)
]
RECORDS = pa.RecordBatch.from_pylist(ROWS, RECORDS_SCHEMA)


def read(data: bytes) -> list[dict[str, Any]]:
    """Return kafka-python's rows; it verifies checksums, too."""
    rows = []
    for batch in MemoryRecords(data):
        assert batch.validate_crc()
        rows += [
            {
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": record.key,
                "value": record.value,
                "headers": [{"key": key, "value": value} for key, value in record.headers],
            }
            for record in batch
        ]
    return rows


@pytest.mark.parametrize("codec", READABLE)
def test_kafka_python_reads_every_field_of_a_batch(codec: Codec) -> None:
    assert read(encode(RECORDS, BatchSettings(codec), base_offset=10)) == ROWS


@pytest.mark.parametrize("codec", READABLE)
def test_kafka_python_reads_many_batches_as_one_log(codec: Codec) -> None:
    batches = encode_many(RECORDS, BatchSettings(codec), base_offset=0, max_batch_bytes=2_000)
    assert read(b"".join(batches)) == ROWS


def test_kafka_python_reads_log_append_time() -> None:
    same = [dict(row, timestamp=T) for row in ROWS]
    rows = pa.RecordBatch.from_pylist(same, RECORDS_SCHEMA)
    settings = BatchSettings(timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert read(encode(rows, settings, base_offset=0)) == same


def test_kafka_python_reads_producer_fields_and_markers() -> None:
    settings = BatchSettings(
        producer_id=7, producer_epoch=3, base_sequence=90, is_transactional=True, leader_epoch=4
    )
    marker = encode_end_transaction(
        EndTransactionMarker(True, 2),
        base_offset=900,
        timestamp_ms=T,
        producer_id=7,
        producer_epoch=3,
        leader_epoch=4,
    )
    data, end = list(MemoryRecords(encode(RECORDS, settings, base_offset=10) + marker))
    assert (data.producer_id, data.producer_epoch, data.base_sequence) == (7, 3, 90)
    assert (data.is_transactional, data.is_control_batch, data.leader_epoch) == (True, False, 4)
    assert data.last_sequence == 90 + ROWS[-1]["offset"] - 10
    assert (end.is_transactional, end.is_control_batch) == (True, True)
    (record,) = end
    assert (record.offset, record.commit, record.abort) == (900, True, False)
