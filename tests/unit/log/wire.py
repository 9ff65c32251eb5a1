"""Record batches as producers send them, for tests of the tail and of what is checked before."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from sparklog.core.types import NO_PRODUCER_ID
from sparklog.log.batch_check import CheckedBatch
from sparklog.protocol.arrow_records import TIMESTAMP_TYPE
from sparklog.protocol.batch_header import parse_header
from sparklog.protocol.record_batch import BatchSettings, Codec, encode


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
