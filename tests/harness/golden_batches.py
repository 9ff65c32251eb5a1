"""The record batches that real clients wrote, and any batch described the way they are."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from sparklog.protocol.records.memory_records import split_batches
from sparklog.protocol.records.record_batch import DecodedBatch, decode

FOLDER = Path(__file__).parents[1] / "golden" / "record_batch"
INLINE_BYTES = 64


def expected() -> dict[str, list[dict[str, Any]]]:
    """Return what every file holds, by its name."""
    found: dict[str, list[dict[str, Any]]] = {}
    for client in ("java", "librdkafka", "kafka_python"):
        found |= json.loads((FOLDER / f"{client}.json").read_text())
    return found


def data_of(name: str) -> bytes:
    """Return the bytes of a file."""
    return (FOLDER / f"{name}.bin").read_bytes()


def describe(data: bytes) -> list[dict[str, Any]]:
    """Describe all batches of a buffer as the JSON files do."""
    return [describe_batch(decode(one.data)) for one in split_batches(data)]


def describe_batch(batch: DecodedBatch) -> dict[str, Any]:
    """Describe one batch as the JSON files do."""
    header = batch.header
    batch.records.validate(full=True)
    rows = batch.records.set_column(
        1, "timestamp", batch.records.column("timestamp").cast(pa.int64())
    ).to_pylist()
    return {
        "size_bytes": header.size_bytes,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "leader_epoch": header.leader_epoch,
        "codec": int(header.codec),
        "timestamp_type": int(header.timestamp_type),
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "delete_horizon_ms": header.delete_horizon_ms,
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "record_count": header.record_count,
        "records": [
            {
                "offset": row["offset"],
                "timestamp": row["timestamp"],
                "key": octets(row["key"]),
                "value": octets(row["value"]),
                "headers": [
                    [octets(header["key"].encode()), octets(header["value"])]
                    for header in row["headers"] or []
                ],
            }
            for row in rows
        ],
    }


def octets(value: bytes | None) -> object:
    """Describe bytes: in hexadecimal, or by length and digest where they are many."""
    if value is None:
        return None
    if len(value) <= INLINE_BYTES:
        return value.hex()
    return {"length": len(value), "sha256": hashlib.sha256(value).hexdigest()}
