"""Batches of a few records have the same bytes from both encoders."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sparklog.protocol.records.columns import TIMESTAMP_TYPE
from sparklog.protocol.records.encoder import BatchSettings, encode, encode_small

texts = st.none() | st.binary(max_size=300)


@given(
    st.lists(st.tuples(texts, texts), min_size=1, max_size=130),
    st.integers(0, 2**42),
    st.booleans(),
    st.booleans(),
)
def test_small_batch_equals_the_column_encoders_bytes(
    records: list[tuple[bytes | None, bytes | None]],
    timestamp_ms: int,
    is_transactional: bool,
    is_control: bool,
) -> None:
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array([timestamp_ms] * len(records), pa.int64()).view(TIMESTAMP_TYPE),
            pa.array([key for key, _ in records], pa.binary()),
            pa.array([value for _, value in records], pa.binary()),
        ],
        names=["timestamp", "key", "value"],
    )
    producer_id, producer_epoch = (1234, 5) if is_transactional else (-1, -1)
    settings = BatchSettings(
        leader_epoch=7,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=is_transactional,
        is_control=is_control,
    )
    small = encode_small(
        records,
        timestamp_ms,
        base_offset=9,
        leader_epoch=7,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=is_transactional,
        is_control=is_control,
    )
    assert small == encode(rows, settings, base_offset=9)
