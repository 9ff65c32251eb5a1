"""Records that a coordinator replays of a batch: the current ones in order, and no outdated one."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sparklog.broker.coordinator.shard_loader import (
    DEDUPLICATED_MIN,
    _is_decoded_inline,
    _newest_of_each_key,
)
from sparklog.protocol.records.header import Codec
from sparklog.protocol.records.unfolded_size import unfolded_bytes_max
from tests.harness.wire_batches import raw_batch, record

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b""])


def batch(pairs: list[tuple[bytes | None, bytes | None]]) -> pa.RecordBatch:
    """Return records with these keys and values; the values are distinct."""
    columns = {
        "offset": pa.array(range(len(pairs)), pa.int64()),
        "key": pa.array([key for key, _ in pairs], pa.binary()),
        "value": pa.array([value for _, value in pairs], pa.binary()),
    }
    return pa.record_batch(columns)


@given(st.lists(KEYS, max_size=200))
def test_the_newest_of_each_key_stays_in_order(keys: list[bytes]) -> None:
    rows = batch([(key, b"%d" % n) for n, key in enumerate(keys)])
    left = _newest_of_each_key(rows).to_pylist()
    by_key = {row["key"]: row for row in rows.to_pylist()}
    assert {row["key"]: row for row in left} == by_key
    assert [row["offset"] for row in left] == sorted(row["offset"] for row in left)
    if len(keys) >= DEDUPLICATED_MIN:
        assert len(left) == len(by_key)


def test_batch_with_tombstones_or_null_keys_stays_unchanged() -> None:
    many: list[tuple[bytes | None, bytes | None]] = [(b"k", b"v")] * (2 * DEDUPLICATED_MIN)
    assert _newest_of_each_key(batch(many)).num_rows == 1
    for odd in ((b"k", None), (None, b"v")):
        assert _newest_of_each_key(batch([*many, odd])).num_rows == 2 * DEDUPLICATED_MIN + 1


def test_load_decodes_inline_only_if_it_decompresses_to_little() -> None:
    small = raw_batch([record(0, b"v")])
    large = raw_batch([record(0, bytes(1 << 20))], codec=Codec.ZSTD)
    assert len(large) < 1024
    assert _is_decoded_inline(small, unfolded_bytes_max(small, 1 << 27))
    assert not _is_decoded_inline(large, unfolded_bytes_max(large, 1 << 27))
