"""The newest row of each key, against a dictionary: few keys and many, in memory and in files."""

from __future__ import annotations

from collections.abc import Sequence

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from sparklog.core.entropy import SeededEntropy
from sparklog.core.errors import DataCorrupt
from sparklog.log.cleanup.offset_map import OffsetMap

KEYS = st.none() | st.binary(max_size=20) | st.sampled_from([b"a", b"b", b"c"])
ROWS = st.lists(st.tuples(KEYS, st.booleans()), max_size=30)


def marked(batches: Sequence[Sequence[tuple[bytes | None, bool]]], keys_max: int) -> list[int]:
    total = sum(map(len, batches))
    with OffsetMap(total, keys_max=keys_max, entropy=SeededEntropy(7)) as newest:
        for batch in batches:
            # A slice, as readers give them: its first row is not the array's.
            keys = pa.array([b"before", *(key for key, _ in batch)], pa.binary()).slice(1)
            newest.add(keys, np.array([counts for _, counts in batch], bool))
        bits = np.unpackbits(newest.finish(), bitorder="little")[:total]
        distinct = {key for batch in batches for key, counts in batch if counts} - {None}
        assert newest.spilled == (len(distinct) > keys_max)
        return np.flatnonzero(bits).tolist()


def expected(batches: Sequence[Sequence[tuple[bytes | None, bool]]]) -> list[int]:
    rows = [row for batch in batches for row in batch]
    return sorted({key: at for at, (key, counts) in enumerate(rows) if key is not None and counts}
                  .values())  # fmt: skip


@given(st.lists(ROWS, max_size=6), st.integers(1, 8))
@settings(max_examples=200, deadline=None)
def test_the_newest_row_of_each_key_is_marked(
    batches: list[list[tuple[bytes | None, bool]]], keys_max: int
) -> None:
    assert marked(batches, 1000) == expected(batches)
    assert marked(batches, keys_max) == expected(batches)


@pytest.mark.parametrize("keys_max", [1_000, 40_000, 1_000_000])
def test_keys_beyond_the_table_go_to_files(keys_max: int) -> None:
    rows, keys = 300_000, 100_000
    numbers = np.random.default_rng(3).integers(0, keys, rows)
    with OffsetMap(rows, keys_max=keys_max) as newest:
        for at in range(0, rows, 16_384):
            part = pa.array(numbers[at : at + 16_384]).cast(pa.string()).cast(pa.binary())
            newest.add(part)
        assert newest.spilled == (keys_max < keys)
        found = np.flatnonzero(np.unpackbits(newest.finish(), bitorder="little")[:rows])
    last = np.zeros(keys, np.int64)
    last[numbers] = np.arange(rows)
    assert found.tolist() == np.sort(np.unique(last[np.unique(numbers)])).tolist()


def test_a_broken_array_is_no_key() -> None:
    ends = pa.array([0, 5, 3], pa.int32()).buffers()[1]
    broken = pa.Array.from_buffers(pa.binary(), 2, [None, ends, pa.py_buffer(b"abcde")])
    with OffsetMap(2) as newest, pytest.raises(DataCorrupt, match="row=1"):
        newest.add(broken)
