"""Kernels that hash keys, find the newest row of each key, and fill the key filter.

The table identifies a key by 88 of the 128 bits of SipHash-1-3, keyed at random in each run. So a
client cannot make two keys collide on purpose. By chance two collide once in 10**11 runs of 50
million keys. (Kafka's cleaner identifies keys by their MD5.)

The table uses open addressing. A slot has two words: 64 bits of the hash, and the other 24 bits
above the row's number. So a lookup touches one cache line. A bitmap marks rows: bit `row & 7` of
byte `row >> 3`.

Importing this module compiles (or loads) the kernels; see `protocol.jit`.
Source: Aumasson and Bernstein, SipHash: a fast short-input PRF; Kafka's SkimpyOffsetMap.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sparklog.log.schema import KEY_FILTER_SALTS
from sparklog.protocol.arrays import Bytes, Int32s
from sparklog.protocol.jit import inlined, kernel

UInt64s: TypeAlias = npt.NDArray[np.uint64]
UInt32s: TypeAlias = npt.NDArray[np.uint32]
ROW_BITS = 40
EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
_SALTS = np.array(KEY_FILTER_SALTS, np.uint32)


@inlined
def _rotated(word: np.uint64, bits: int) -> np.uint64:
    return np.uint64((word << np.uint64(bits)) | (word >> np.uint64(64 - bits)))


@inlined
def _load(data: Bytes, at: int, count: int) -> np.uint64:
    word = np.uint64(0)
    for index in range(count):
        word |= np.uint64(data[at + index]) << np.uint64(8 * index)
    return word


@kernel(
    "int64(Array(uint8, 1, 'C', True), Array(int32, 1, 'C', True), uint64, uint64, "
    "uint64[::1], uint64[::1])"
)
def hash_keys(data: Bytes, ends: Int32s, key0: int, key1: int, low: UInt64s, high: UInt64s) -> int:
    """Fill `low` and `high` with the halves of each key's hash; a null key's have no meaning.

    Returns -1, or the first row whose Arrow offsets point outside the data.
    """
    k0, k1 = np.uint64(key0), np.uint64(key1)
    for row in range(low.size):
        start = int(np.int64(ends[row]))
        end = int(np.int64(ends[row + 1]))
        if start < 0 or end < start or end > data.size:
            return row
        v0 = k0 ^ np.uint64(0x736F6D6570736575)
        v1 = k1 ^ np.uint64(0x646F72616E646F6D) ^ np.uint64(0xEE)
        v2 = k0 ^ np.uint64(0x6C7967656E657261)
        v3 = k1 ^ np.uint64(0x7465646279746573)
        length = end - start
        words = length >> 3
        for index in range(words + 7):
            word = np.uint64(0)
            if index < words:
                word = _load(data, start + 8 * index, 8)
            elif index == words:
                word = _load(data, start + 8 * words, length & 7)
                word |= np.uint64(length & 0xFF) << np.uint64(56)
            elif index == words + 1:
                v2 ^= np.uint64(0xEE)
            v3 ^= word
            v0 += v1
            v2 += v3
            v1 = _rotated(v1, 13) ^ v0
            v3 = _rotated(v3, 16) ^ v2
            v0 = _rotated(v0, 32)
            v2 += v1
            v0 += v3
            v1 = _rotated(v1, 17) ^ v2
            v3 = _rotated(v3, 21) ^ v0
            v2 = _rotated(v2, 32)
            v0 ^= word
            if index == words + 3:
                low[row] = v0 ^ v1 ^ v2 ^ v3
                v1 ^= np.uint64(0xDD)
        high[row] = v0 ^ v1 ^ v2 ^ v3
    return -1


@kernel("int64(uint64[::1], uint64[::1], uint64[::1], uint8[::1], int64)")
def keep_newest(low: UInt64s, marked: UInt64s, table: UInt64s, bits: Bytes, capacity: int) -> int:
    """Add rows to the table in order; mark each key's newest row in `bits`, clear the previous.

    Args:
        `low`: half of each key's hash.
        `marked`: 24 more bits of the hash, above the `ROW_BITS` of the row's number.
        `table`: slots of these two words; an unused one has EMPTY in the second.
        `bits`: a bitmap of all rows.
        `room`: the most new keys to add.

    Stops before the first new key beyond `room`. Returns the number of added rows times 2**32,
    plus the number of new keys.
    """
    row_mask = np.uint64((1 << ROW_BITS) - 1)
    mask = np.uint64((table.size >> 1) - 1)
    fresh = 0
    for index in range(low.size):
        key, mine = low[index], marked[index]
        slot = np.int64(key & mask) << 1
        found = table[slot + 1]
        while found != EMPTY and (table[slot] != key or (found ^ mine) > row_mask):
            slot = (slot + 2) & (table.size - 1)
            found = table[slot + 1]
        if found == EMPTY:
            if fresh == capacity:
                return (index << 32) + fresh
            fresh += 1
            table[slot] = key
        else:
            before = np.int64(found & row_mask)
            bits[before >> 3] &= np.uint8(255 ^ (1 << (before & 7)))
        table[slot + 1] = mine
        row = np.int64(mine & row_mask)
        bits[row >> 3] |= np.uint8(1 << (row & 7))
    return (low.size << 32) + fresh


@kernel("void(uint64[::1], uint32[::1])")
def add_to_filter(hashes: UInt64s, words: UInt32s) -> None:
    """Set the bits of each hash in a split block Bloom filter of `words`, eight to a block."""
    blocks = np.uint64(words.size >> 3)
    for index in range(hashes.size):
        block = ((hashes[index] >> np.uint64(32)) * blocks) >> np.uint64(32)
        at = np.int64(block) << 3
        low = np.uint32(hashes[index] & np.uint64(0xFFFFFFFF))
        for word in range(8):
            bit = np.uint32(low * _SALTS[word]) >> np.uint32(27)
            words[at + word] |= np.uint32(1) << bit
