"""Partitions of keys; test_golden_batches checks Java's results."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sparklog.core.errors import DataCorrupt, InvalidPartitions, InvalidRequest
from sparklog.protocol.partitioner.murmur2 import murmur2
from sparklog.protocol.partitioner.partitioner import partition_for_key, partitions_for_keys

# From Kafka's own UtilsTest.testMurmur2.
KAFKAS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", KAFKAS)
def test_hashes_equal_those_of_kafkas_own_test(key: bytes) -> None:
    assert murmur2(key, 0, len(key)) == KAFKAS[key] % 2**32
    assert murmur2(b"xx" + key + b"yy", 2, 2 + len(key)) == KAFKAS[key] % 2**32


def test_column_is_partitioned_like_single_keys() -> None:
    keys = [None if i % 5 == 0 else bytes(range(i % 23)) for i in range(300)]
    array = pa.array(keys, pa.binary())
    wanted = [2 if key is None else partition_for_key(key, 7) for key in keys]
    assert partitions_for_keys(array, 7, sticky_partition=2).tolist() == wanted
    assert partitions_for_keys(array[13:90], 7, sticky_partition=2).tolist() == wanted[13:90]
    assert partitions_for_keys(array[:0], 7, sticky_partition=2).tolist() == []


@pytest.mark.parametrize("kind", [pa.string(), pa.large_binary(), pa.binary_view(), pa.binary(3)])
def test_other_byte_columns_are_partitioned_alike(kind: pa.DataType) -> None:
    array = pa.array([b"abc", None, b"xyz"], pa.binary()).cast(kind)
    wanted = [partition_for_key(b"abc", 9), 4, partition_for_key(b"xyz", 9)]
    assert partitions_for_keys(array, 9, sticky_partition=4).tolist() == wanted


def test_null_keys_go_to_the_sticky_partition() -> None:
    assert partitions_for_keys(pa.nulls(3), 5, sticky_partition=1).tolist() == [1, 1, 1]


def test_key_column_without_bytes_is_rejected() -> None:
    with pytest.raises(InvalidRequest, match=r"key must be binary or string.*type=int64"):
        partitions_for_keys(pa.array([1]), 5, sticky_partition=1)


@pytest.mark.parametrize(("partitions", "sticky"), [(0, 0), (-1, 0), (3, 3), (3, -1)])
def test_sticky_partition_is_rejected_when_it_does_not_exist(partitions: int, sticky: int) -> None:
    with pytest.raises(InvalidPartitions):
        partitions_for_keys(pa.nulls(1), partitions, sticky_partition=sticky)


def test_single_key_is_rejected_without_partitions() -> None:
    with pytest.raises(InvalidPartitions):
        partition_for_key(b"k", 0)


def test_arrow_offsets_outside_the_data_are_corrupt() -> None:
    ends = pa.array([0, 900, 4], pa.int32()).buffers()[1]
    bad = pa.Array.from_buffers(pa.binary(), 2, [None, ends, pa.py_buffer(b"abcd")])
    with pytest.raises(DataCorrupt, match="column=key row=0"):
        partitions_for_keys(bad, 3, sticky_partition=0)
