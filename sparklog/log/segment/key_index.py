"""Index of a segment's keys: bounds, and a Bloom filter that is read a page at a time.

Both may be wrong in one direction only: a segment that they exclude does not have the key. The
filter is the split block filter of Parquet, over SipHash-1-3 keyed by the segment's nonce. So a
client cannot choose keys that fill it. Source: FORMAT.md 14; Parquet's BloomFilter.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from sparklog.core.errors import DataCorrupt
from sparklog.log.schema import KEY_FILTER_SALTS
from sparklog.log.segment.file import Span
from sparklog.protocol.records.columns import binary_view

BLOCK_BYTES: Final = 32
PAGE_BYTES: Final = 1 << 16
"""A lookup reads one page; each page has its own CRC."""
KEYS_PER_BLOCK: Final = 21
"""Twelve bits a key: about one in two hundred of the keys that a segment lacks passes."""
BOUND_BYTES: Final = 64
SHORT_KEY_BYTES: Final = 1024
"""A key of this size is hashed in half a millisecond without a kernel."""
FINAL_ROUNDS: Final = 3
_MASK: Final = 0xFFFFFFFF
_WORD: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class KeyIndex:
    """The index of a segment's keys in its footer. Bounds compare as unsigned bytes."""

    lowest: bytes
    """No key is lower."""
    highest: bytes | None
    """No key is higher; None sets no bound."""
    start: int
    """File position of the filter."""
    length: int
    """Its bytes, whole blocks."""
    crcs: tuple[int, ...]
    """Of each page of the filter; the last may be short."""

    def out_of_bounds(self, key: bytes) -> bool:
        """Return True if the bounds exclude a key."""
        return key < self.lowest or (self.highest is not None and key > self.highest)

    def page(self, hashed: int) -> Span:
        """Return the page of the filter, by its file position, with the bits of a key's hash."""
        return self._page(self._block_at(hashed) // PAGE_BYTES)

    def pages(self) -> Iterator[Span]:
        """Yield all pages of the filter, by file position."""
        return map(self._page, range(len(self.crcs)))

    def excludes(self, hashed: int, page: bytes) -> bool:
        """Return True if the filter excludes a key, by its hash and the bytes of `page`."""
        at = self._block_at(hashed) % PAGE_BYTES
        words = np.frombuffer(page, "<u4", BLOCK_BYTES // 4, at).tolist()
        low = hashed & _MASK
        bits = (1 << ((low * salt & _MASK) >> 27) for salt in KEY_FILTER_SALTS)
        return any(not word & bit for word, bit in zip(words, bits, strict=True))

    def _page(self, number: int) -> Span:
        start = number * PAGE_BYTES
        length = min(PAGE_BYTES, self.length - start)
        return Span(self.start + start, length, self.crcs[number])

    def _block_at(self, hashed: int) -> int:
        return ((hashed >> 32) * (self.length // BLOCK_BYTES) >> 32) * BLOCK_BYTES


def index_keys(
    columns: Sequence[pa.Array], nonce: str, start: int
) -> tuple[KeyIndex, bytes] | None:
    """Return the index of these keys and its filter, or None when all keys are null.

    Args:
        columns: the key column of each record batch.
        nonce: of the segment.
        start: file position where the filter will lie.

    Raises:
        DataCorrupt: an array's offsets lead outside its data.
    """
    from sparklog.log.segment.key_kernels import add_to_filter, hash_keys  # noqa: PLC0415 - loads numba

    parts = [column.drop_null() for column in columns]
    count = sum(map(len, parts))
    if not count:
        return None
    lows, highs = zip(*(_bounds(part) for part in parts if len(part)), strict=True)
    words = np.zeros(-(-count // KEYS_PER_BLOCK) * (BLOCK_BYTES // 4), np.uint32)
    for part in parts:
        view = binary_view(part, len(part), "key")
        low, high = np.empty(len(part), np.uint64), np.empty(len(part), np.uint64)
        if hash_keys(view.data, view.ends, *_hash_key(nonce), low, high) >= 0:
            raise DataCorrupt(
                "Arrow array is malformed: its offsets lead outside its data; check the writer. "
                "column=key"
            )
        add_to_filter(low, words)
    data = words.astype("<u4", copy=False).tobytes()
    crcs = tuple(crc32c(data[at : at + PAGE_BYTES]) for at in range(0, len(data), PAGE_BYTES))
    index = KeyIndex(min(lows)[:BOUND_BYTES], _cut_above(max(highs)), start, len(data), crcs)
    return index, data


def hashed_key(key: bytes, nonce: str) -> int:
    """Return the hash of a key in the filter of the segment with this nonce."""
    if len(key) <= SHORT_KEY_BYTES:
        return _short_hash(key, *_hash_key(nonce))
    from sparklog.log.segment.key_kernels import hash_keys  # noqa: PLC0415 - loads numba

    view = binary_view(pa.array([key], pa.binary()), 1, "key")
    low, high = np.empty(1, np.uint64), np.empty(1, np.uint64)
    hash_keys(view.data, view.ends, *_hash_key(nonce), low, high)
    return int(low[0])


def _short_hash(key: bytes, k0: int, k1: int) -> int:
    """Return what `hash_keys` puts into `low`, without numba, which takes 0.3 s to load."""
    v0, v1 = k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D ^ 0xEE
    v2, v3 = k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573
    whole = len(key) & ~7
    words = [int.from_bytes(key[at : at + 8], "little") for at in range(0, whole, 8)]
    words.append(int.from_bytes(key[whole:], "little") | (len(key) & 0xFF) << 56)
    last = len(words)
    for number, word in enumerate((*words, *[0] * FINAL_ROUNDS)):
        v2 ^= 0xEE if number == last else 0
        v3 ^= word
        v0, v2 = v0 + v1 & _WORD, v2 + v3 & _WORD
        v1, v3 = (v1 << 13 & _WORD | v1 >> 51) ^ v0, (v3 << 16 & _WORD | v3 >> 48) ^ v2
        v0 = v0 << 32 & _WORD | v0 >> 32
        v2, v0 = v2 + v1 & _WORD, v0 + v3 & _WORD
        v1, v3 = (v1 << 17 & _WORD | v1 >> 47) ^ v2, (v3 << 21 & _WORD | v3 >> 43) ^ v0
        v2 = v2 << 32 & _WORD | v2 >> 32
        v0 ^= word
    return v0 ^ v1 ^ v2 ^ v3


def _hash_key(nonce: str) -> tuple[int, int]:
    raw = bytes.fromhex(nonce)
    return int.from_bytes(raw[:8], "little"), int.from_bytes(raw[8:16], "little")


def _bounds(keys: pa.Array) -> tuple[bytes, bytes]:
    found = pc.min_max(keys)
    return found["min"].as_py(), found["max"].as_py()


def _cut_above(key: bytes) -> bytes | None:
    """Return a short bound that is not below `key`, or None when only long ones are."""
    if len(key) <= BOUND_BYTES:
        return key
    cut = key[:BOUND_BYTES].rstrip(b"\xff")
    return cut[:-1] + bytes([cut[-1] + 1]) if cut else None
