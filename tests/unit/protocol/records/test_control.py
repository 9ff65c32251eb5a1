"""Transaction markers and other control batches."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sparklog.core.errors import DataCorrupt
from sparklog.protocol.records.control import (
    ControlRecord,
    ControlType,
    EndTransactionMarker,
    encode_end_transaction,
    end_transaction,
    read_control,
)
from sparklog.protocol.records.record_batch import BatchSettings, decode, encode
from tests.harness.golden_batches import data_of


def control_batch(key: bytes | None, value: bytes | None) -> bytes:
    rows = pa.RecordBatch.from_arrays(
        [pa.array([key], pa.binary()), pa.array([value], pa.binary())], names=["key", "value"]
    )
    return encode(rows, BatchSettings(is_control=True), base_offset=5)


@pytest.mark.parametrize(
    ("name", "marker"),
    [("commit", EndTransactionMarker(True, 9)), ("abort", EndTransactionMarker(False, 0))],
)
def test_markers_equal_javas_bytes(name: str, marker: EndTransactionMarker) -> None:
    data = data_of(name)
    (record,) = read_control(decode(data))
    assert record.offset == 99
    assert end_transaction(record) == marker
    ours = encode_end_transaction(
        marker,
        base_offset=99,
        timestamp_ms=1_700_000_000_000,
        producer_id=78,
        producer_epoch=4,
        leader_epoch=6,
    )
    assert ours == data


def test_other_marker_has_a_type_but_no_end() -> None:
    (record,) = read_control(decode(data_of("leader-change")))
    assert record.type is ControlType.LEADER_CHANGE
    assert end_transaction(record) is None


def test_unknown_control_type_is_a_marker() -> None:
    (record,) = read_control(decode(control_batch(b"\x00\x09\x03\xe7more", b"value")))
    assert record == ControlRecord(5, ControlType.UNKNOWN, b"value")
    assert end_transaction(record) is None


def test_longer_marker_value_is_decoded_as_far_as_known() -> None:
    value = b"\x00\x01\x00\x00\x00\x07" + b"\x00\x02"
    (record,) = read_control(decode(control_batch(b"\x00\x00\x00\x01", value)))
    assert end_transaction(record) == EndTransactionMarker(True, 7)


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x01", b"\xff\xff\x00\x01"])
def test_control_record_without_a_valid_key_is_corrupt(key: bytes | None) -> None:
    with pytest.raises(DataCorrupt, match="control record has no valid"):
        read_control(decode(control_batch(key, b"")))


@pytest.mark.parametrize("value", [None, b"", b"\x00\x00\x00\x00\x00", b"\xff\xff\x00\x00\x00\x00"])
def test_marker_without_a_valid_value_is_corrupt(value: bytes | None) -> None:
    (record,) = read_control(decode(control_batch(b"\x00\x00\x00\x00", value)))
    with pytest.raises(DataCorrupt, match="transaction marker"):
        end_transaction(record)


def test_data_batch_is_not_decoded_as_markers() -> None:
    with pytest.raises(DataCorrupt, match="batch holds data"):
        read_control(decode(data_of("transactional")))
