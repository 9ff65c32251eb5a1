"""The most that a batch can decompress to, from its frames' headers: nothing is decompressed.

UNFOLDED-SIZE-1: The result is never smaller than what `compression.decompress` returns within the
    limit.
UNFOLDED-SIZE-2: A look reads at most `BLOCKS_MAX` block headers, so that an event loop can do it.

Anything odd counts as the limit: the decoder will find the error.
Source: RFC 8878 (zstd), LZ4 frame format 1.6, RFC 1951 (deflate), snappy-java's framing.
"""

from __future__ import annotations

import struct
from typing import Final

from sparklog.protocol.records.compression import snappy_size
from sparklog.protocol.records.header import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    HEADER_BYTES,
    BytesLike,
    Codec,
)

BLOCKS_MAX: Final = 1024
_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_BLOCK_BYTES: Final = 128 * 1024
_ZSTD_REPEATED: Final = 1
_ZSTD_COMPRESSED: Final = 2
_ZSTD_SIZE_BYTES: Final = (0, 2, 4, 8)
_ZSTD_DICTIONARY_BYTES: Final = (0, 1, 2, 4)
_LZ4_MAGIC: Final = 0x184D2204
_LZ4_SMALLEST: Final = 4
_LZ4_STORED: Final = 0x80000000
_DEFLATE_RATIO_MAX: Final = 1032
_UINT32: Final = struct.Struct("<I")


def unfolded_bytes_max(batch: BytesLike, limit_bytes: int) -> int:
    """Return what a batch's records can take decompressed, at most `limit_bytes`; 0 for plain.

    Args:
        batch: header and records; it need not be valid.
        limit_bytes: where its decompression stops.
    """
    if len(batch) <= HEADER_BYTES:
        return 0
    codec = batch[ATTRIBUTES_AT + 1] & CODEC_MASK
    view = memoryview(batch)[HEADER_BYTES:]
    if codec == Codec.NONE:
        return 0
    if codec > Codec.ZSTD:
        return limit_bytes
    try:
        return min(limit_bytes, _BOUNDS[Codec(codec)](view))
    except (IndexError, ValueError, struct.error):
        return limit_bytes


def _of_gzip(view: memoryview) -> int:
    return _DEFLATE_RATIO_MAX * len(view)


def _of_snappy(view: memoryview) -> int:
    return snappy_size(view, BLOCKS_MAX)


def _of_zstd(view: memoryview) -> int:
    total = at = blocks = 0
    while at < len(view):
        (magic,) = _UINT32.unpack_from(view, at)
        if magic != _ZSTD_MAGIC:
            raise ValueError("not a frame of records")
        flags = view[at + 4]
        is_single = bool(flags & 0x20)
        size_bytes = _ZSTD_SIZE_BYTES[flags >> 6] or int(is_single)
        at += 5 + (not is_single) + _ZSTD_DICTIONARY_BYTES[flags & 3] + size_bytes
        is_last = False
        while not is_last:
            blocks += 1
            if blocks > BLOCKS_MAX:
                raise ValueError("too many blocks")
            head = view[at] | view[at + 1] << 8 | view[at + 2] << 16
            is_last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
            if kind > _ZSTD_COMPRESSED:
                raise ValueError("a block of no known kind")
            total += _ZSTD_BLOCK_BYTES if kind == _ZSTD_COMPRESSED else size
            at += 3 + (1 if kind == _ZSTD_REPEATED else size)
        at += 4 if flags & 4 else 0
    return total


def _of_lz4(view: memoryview) -> int:
    total = at = blocks = 0
    while at < len(view):
        (magic,) = _UINT32.unpack_from(view, at)
        if magic != _LZ4_MAGIC:
            raise ValueError("not a frame of records")
        flags, blocks_kind = view[at + 4], view[at + 5] >> 4 & 7
        if blocks_kind < _LZ4_SMALLEST:
            raise ValueError("a block size that does not exist")
        block_bytes = 1 << 2 * blocks_kind + 8
        at += 7 + (8 if flags & 8 else 0) + (4 if flags & 1 else 0)
        while True:
            blocks += 1
            if blocks > BLOCKS_MAX:
                raise ValueError("too many blocks")
            (length,) = _UINT32.unpack_from(view, at)
            at += _UINT32.size
            if not length:
                break
            total += block_bytes
            at += (length & ~_LZ4_STORED) + (4 if flags & 0x10 else 0)
        at += 4 if flags & 4 else 0
    return total


_BOUNDS: Final = {
    Codec.GZIP: _of_gzip,
    Codec.SNAPPY: _of_snappy,
    Codec.LZ4: _of_lz4,
    Codec.ZSTD: _of_zstd,
}
