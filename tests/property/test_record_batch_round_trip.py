"""Round trip of encoded rows: whole, sliced, split and with gaps."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sparklog.protocol.records import record_batch
from sparklog.protocol.records.columns import RECORDS_SCHEMA
from sparklog.protocol.records.memory_records import split_batches
from sparklog.protocol.records.record_batch import BatchSettings, Codec, decode, encode, encode_many

Rows = list[dict[str, Any]]

octets = st.none() | st.binary(max_size=40) | st.binary(min_size=120, max_size=300)
headers = st.lists(st.fixed_dictionaries({"key": st.text(max_size=9), "value": octets}), max_size=4)
timestamps = (
    st.integers(1_600_000_000_000, 1_700_000_000_000)
    | st.integers(-(2**63), 2**63 - 1)
    | st.sampled_from([-1, 0, 2**63 - 1, -(2**63)])
)
codecs = st.sampled_from(list(Codec))


@st.composite
def rows_with_offsets(draw: st.DrawFn) -> Rows:
    """Draw rows whose offsets rise, sometimes by a lot."""
    steps = st.integers(1, 3) | st.integers(1, 2**20)
    offset = draw(st.integers(0, 5) | st.integers(0, 2**62))
    rows: Rows = []
    for _ in range(draw(st.integers(1, 20))):
        offset += draw(steps)
        rows.append(
            {
                "offset": offset,
                "timestamp": draw(timestamps),
                "key": draw(octets),
                "value": draw(octets),
                "headers": draw(headers),
            }
        )
    return rows


def arrow(rows: Rows) -> pa.RecordBatch:
    """Return rows as Arrow columns; timestamps may be any 64 bits."""
    columns = {name: [row[name] for row in rows] for name in RECORDS_SCHEMA.names}
    arrays = [
        pa.array(columns[field.name], pa.int64()).view(field.type)
        if pa.types.is_timestamp(field.type)
        else pa.array(columns[field.name], field.type)
        for field in RECORDS_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORDS_SCHEMA)


def plain(records: pa.RecordBatch) -> Rows:
    """Return Arrow columns as rows; no headers are an empty list again."""
    records.validate(full=True)
    index = records.schema.get_field_index("timestamp")
    numbers = records.column("timestamp").view(pa.int64())
    rows = records.set_column(index, "timestamp", numbers).to_pylist()
    return [{**row, "headers": row["headers"] or []} for row in rows]


@given(rows_with_offsets(), codecs, st.integers(0, 3), st.integers(0, 3))
def test_any_rows_come_back(rows: Rows, codec: Codec, before: int, after: int) -> None:
    base_offset = max(0, rows[0]["offset"] - before)
    last_offset = rows[-1]["offset"] + after
    data = encode(
        arrow(rows), BatchSettings(codec), base_offset=base_offset, last_offset=last_offset
    )
    batch = decode(data)
    assert plain(batch.records) == rows
    assert (batch.header.base_offset, batch.header.last_offset) == (base_offset, last_offset)
    assert batch.header.size_bytes == len(data)
    assert batch.header.max_timestamp == max(-1, *(row["timestamp"] for row in rows))


@given(rows_with_offsets(), st.data())
def test_any_slice_comes_back(rows: Rows, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows) - 1))
    end = data.draw(st.integers(start + 1, len(rows)))
    part = arrow(rows).slice(start, end - start)
    found = decode(encode(part, base_offset=rows[start]["offset"])).records
    assert plain(found) == rows[start:end]


@given(rows_with_offsets(), st.data())
def test_parts_of_rows_are_encoded_as_if_each_was_alone(rows: Rows, data: st.DataObject) -> None:
    records = arrow(rows)
    first = data.draw(st.integers(0, len(rows) - 1))
    end = data.draw(st.integers(first + 1, len(rows)))
    base = rows[first]["offset"] - data.draw(st.integers(0, 1))
    settings = BatchSettings(producer_id=7, producer_epoch=1, base_sequence=2**31 - 2)
    alone = encode_many(
        records.slice(first, end - first), settings, base_offset=base, max_batch_bytes=2_000
    )
    whole = record_batch.Rows(records)
    part = whole.batches(first, end, settings, base_offset=base, max_batch_bytes=2_000)
    assert list(part) == list(alone)


@given(rows_with_offsets(), codecs, st.integers(2_000, 6_000))
def test_any_split_comes_back_within_the_limit(rows: Rows, codec: Codec, limit: int) -> None:
    data = b"".join(
        encode_many(arrow(rows), BatchSettings(codec), base_offset=0, max_batch_bytes=limit)
    )
    batches = list(split_batches(data, max_batch_bytes=limit))
    assert [row for one in batches for row in plain(decode(one.data).records)] == rows
    ends = [0, *(one.header.end_offset for one in batches)]
    starts = [one.header.base_offset for one in batches]
    assert all(start >= end for start, end in zip(starts, ends, strict=False))


@given(rows_with_offsets())
def test_decoded_batch_encodes_to_the_same_bytes(rows: Rows) -> None:
    data = encode(arrow(rows), base_offset=rows[0]["offset"])
    again = encode(decode(data).records, base_offset=rows[0]["offset"])
    assert again == data
