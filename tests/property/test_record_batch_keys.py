"""Partitions of keys, against a second implementation written from Java's with its signed words."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sparklog.protocol.partitioner.partitioner import partition_for_key, partitions_for_keys


def signed(number: int) -> int:
    """Wrap to 32 bits with a sign, as Java's int does."""
    return (number + 2**31) % 2**32 - 2**31


def shifted(number: int, bits: int) -> int:
    """Shift right without the sign, as Java's >>> does."""
    return signed(number % 2**32 >> bits)


def java_murmur2(key: bytes) -> int:
    """Follow Utils.murmur2 line by line."""
    m, r = 0x5BD1E995, 24
    h = signed(0x9747B28C ^ len(key))
    for start in range(0, len(key) // 4 * 4, 4):
        k = signed(int.from_bytes(key[start : start + 4], "little") * m)
        k = signed((k ^ shifted(k, r)) * m)
        h = signed(h * m) ^ k
    tail = key[len(key) // 4 * 4 :]
    if tail:
        h = signed((h ^ int.from_bytes(tail, "little")) * m)
    h = signed((h ^ shifted(h, 13)) * m)
    return h ^ shifted(h, 15)


@given(st.lists(st.none() | st.binary(max_size=50), max_size=30), st.integers(1, 5_000), st.data())
def test_every_key_goes_where_java_sends_it(
    keys: list[bytes | None], partitions: int, draw: st.DataObject
) -> None:
    sticky = draw.draw(st.integers(0, partitions - 1))
    start = draw.draw(st.integers(0, len(keys)))
    wanted = [
        sticky if key is None else (java_murmur2(key) & 0x7FFFFFFF) % partitions for key in keys
    ]
    array = pa.array(keys, pa.binary())
    found = partitions_for_keys(array[start:], partitions, sticky_partition=sticky)
    assert found.tolist() == wanted[start:]
    assert [sticky if key is None else partition_for_key(key, partitions) for key in keys] == wanted
