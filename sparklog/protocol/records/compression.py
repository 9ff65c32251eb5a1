"""Kafka's four codecs on whole buffers, both ways; pyarrow does the work.

Sizes are bytes. Java's client limits the written formats:

COMPRESSION-1: gzip: one member. zstd: one frame. Both are also read when there are several. The
    decoder ignores bytes after gzip members that do not begin another one, as Java does: clients
    pad with zeros.
COMPRESSION-2: snappy: written in xerial's framing (blocks of 32 KiB, as Java does), read framed or
    raw (librdkafka writes raw).
COMPRESSION-3: lz4: written in frames of independent 64 KiB blocks; any valid frame is read. Java
    rejects dependent blocks, and Arrow's own lz4 frames have them beyond one block.
COMPRESSION-4: Decompression stops at a limit, before it uses the memory.
COMPRESSION-5: `decompress_strictly` rejects bytes that Kafka's clients cannot read, though this
    module can.

Source: KIP-110, KIP-390; LZ4 frame format 1.6; snappy-java's SnappyOutputStream.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from sparklog.core.errors import DataCorrupt
from sparklog.protocol.records.header import BytesLike, Codec

DECOMPRESSED_BYTES_MAX: Final = 128 * 1024 * 1024
"""Default limit for one batch:

a hundred times Kafka's `max.message.bytes`, and little beside the 512 MiB of a task.
"""

_DEFAULT_LEVEL: Final = {Codec.GZIP: 6, Codec.ZSTD: 3}
"""Defaults of Kafka's `compression.gzip.level` and `compression.zstd.level`."""

_STREAMED: Final = {Codec.GZIP: "gzip", Codec.LZ4: "lz4", Codec.ZSTD: "zstd"}
_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP_WINDOW: Final = 31
"""For zlib: the largest window, in gzip's format."""
_READ_BYTES_MIN: Final = 64 * 1024
_EXPECTED_RATIO: Final = 4
_STEP_BYTES: Final = 8 * 1024 * 1024

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_XERIAL_BLOCK_LENGTH: Final = struct.Struct(">i")

_LZ4_HEADER: Final = bytes.fromhex("04224d18604082")
"""Magic, flags (version 1, independent blocks), block size 64 KiB, checksum of those two."""
_LZ4_MAGIC: Final = _LZ4_HEADER[:4]
_LZ4_FLAGS_AT: Final = 4
_LZ4_INDEPENDENT: Final = 0x20
_LZ4_BLOCK_CHECKSUM: Final = 0x10
_LZ4_CONTENT_SIZE: Final = 0x08
_LZ4_CONTENT_CHECKSUM: Final = 0x04
_LZ4_DICTIONARY: Final = 0x01
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_LZ4_BLOCK_LENGTH: Final = struct.Struct("<I")
_LZ4_STORED: Final = 0x80000000
_LZ4_END: Final = bytes(4)


class OverBound(DataCorrupt):
    """The bytes decompress to more than the limit."""


def compress(data: BytesLike, codec: Codec, level: int | None = None) -> bytes:
    """Return `data` compressed; with Codec.NONE, a copy.

    Args:
        data: the bytes to compress.
        codec: the codec.

        level: gzip 1 to 9, zstd -131072 to 22; None is Kafka's default. Ignored for snappy and lz4.
    """
    view = memoryview(data).cast("B")
    if codec is Codec.NONE:
        return bytes(view)
    if codec is Codec.SNAPPY:
        return b"".join(_xerial_blocks(view))
    if codec is Codec.LZ4:
        return b"".join(_lz4_blocks(view))
    chosen = _DEFAULT_LEVEL[codec] if level is None else level
    packed: bytes = pa.Codec(_STREAMED[codec], compression_level=chosen).compress(
        view, asbytes=True
    )
    return packed


def decompress(data: BytesLike, codec: Codec, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> BytesLike:
    """Return `data` decompressed; with Codec.NONE, `data` itself.

    Raises:
        DataCorrupt: invalid for this codec, cut short, or more than `max_bytes`.
    """
    view = memoryview(data).cast("B")
    if codec is Codec.NONE:
        return view
    try:
        if codec is Codec.SNAPPY:
            return _read_snappy(view, max_bytes)
        if codec is Codec.GZIP:
            return _read_gzip(view, max_bytes)
        return _read_stream(view, codec, max_bytes)
    except (OSError, ValueError, zlib.error) as error:
        raise DataCorrupt(
            f"records are not valid {codec.name.lower()}: {error}; have the batch sent again. "
            f"bytes={len(view)}"
        ) from error


def decompress_strictly(data: BytesLike, codec: Codec, max_bytes: int) -> BytesLike:
    """Return `data` decompressed, if Kafka's clients can also decompress it.

    Java and librdkafka read one lz4 frame of independent blocks and nothing after it.

    Raises:
        OverBound: it holds more than `max_bytes`.
        DataCorrupt: some client of Kafka cannot read these bytes.
    """
    if codec is Codec.LZ4:
        problem = _problem_of_lz4(memoryview(data).cast("B"))
        if problem is not None:
            raise DataCorrupt(f"records are not lz4 that every client reads: {problem}")
    return decompress(data, codec, max_bytes)


def _problem_of_lz4(view: memoryview) -> str | None:
    """Return why Kafka's clients would reject an lz4 frame, or None.

    Block contents are not checked.
    """
    if bytes(view[:_LZ4_FLAGS_AT]) != _LZ4_MAGIC or len(view) <= _LZ4_FLAGS_AT:
        return "no frame begins here"
    flags = view[_LZ4_FLAGS_AT]
    if not flags & _LZ4_INDEPENDENT:
        return "its blocks depend on each other"
    if flags & _LZ4_DICTIONARY:
        return "it needs a dictionary"
    at = len(_LZ4_HEADER) + (8 if flags & _LZ4_CONTENT_SIZE else 0)
    after_block = 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
    while True:
        if at + len(_LZ4_END) > len(view):
            return "its end is missing"
        (length,) = _LZ4_BLOCK_LENGTH.unpack_from(view, at)
        at += len(_LZ4_END)
        if not length:
            break
        at += (length & ~_LZ4_STORED) + after_block
    at += 4 if flags & _LZ4_CONTENT_CHECKSUM else 0
    return None if at == len(view) else f"it ends after {at} of {len(view)} bytes"


def _read_gzip(view: memoryview, max_bytes: int) -> BytesLike:
    """Decompress gzip members; ignore trailing bytes that do not begin another member.

    Small data is one piece, larger data one buffer, as in `_read_stream`.
    """
    whole = memoryview(b"")
    total = members = 0
    rest: BytesLike = view
    while not members or bytes(rest[: len(_GZIP_MAGIC)]) == _GZIP_MAGIC:
        member = zlib.decompressobj(_GZIP_WINDOW)
        members += 1
        ended = False
        while not ended:
            piece = member.decompress(rest, min(_STEP_BYTES, max_bytes + 1 - total))
            ended = member.eof
            rest = member.unused_data if ended else member.unconsumed_tail
            if total + len(piece) > max_bytes:
                raise _over_bound(Codec.GZIP, max_bytes)
            if not piece and not ended:
                raise ValueError("cut short")
            if not whole:
                if ended and not total and bytes(rest[: len(_GZIP_MAGIC)]) != _GZIP_MAGIC:
                    return piece
                whole = np.empty(max_bytes, np.uint8).data
            whole[total : total + len(piece)] = piece
            total += len(piece)
    return whole[:total]


def _read_stream(view: memoryview, codec: Codec, max_bytes: int) -> BytesLike:
    """Decompress small data in one piece; larger data into one buffer, which is never copied.

    The buffer has space for `max_bytes`; only the written pages take memory.
    """
    wanted = min(max(_READ_BYTES_MIN, _EXPECTED_RATIO * len(view)), max_bytes + 1)
    with pa.CompressedInputStream(pa.py_buffer(view), _STREAMED[codec]) as stream:
        first: bytes = stream.read(wanted)
        if len(first) > max_bytes:
            raise _over_bound(codec, max_bytes)
        if len(first) < wanted:
            return first
        whole = np.empty(max_bytes + 1, np.uint8).data
        whole[:wanted] = first
        total = wanted
        while total <= max_bytes:
            count: int = stream.readinto(whole[total : total + _STEP_BYTES])
            if not count:
                return whole[:total]
            total += count
    raise _over_bound(codec, max_bytes)


def _read_snappy(view: memoryview, max_bytes: int) -> BytesLike:
    """Decompress xerial's framing, or raw snappy where its magic is missing."""
    codec = pa.Codec("snappy")
    blocks = [(block, _snappy_size(block)) for block in _snappy_blocks(view)]
    size_bytes = sum(size for _, size in blocks)
    if size_bytes > max_bytes:
        raise _over_bound(Codec.SNAPPY, max_bytes)
    if len(blocks) == 1:
        (one,) = blocks
        only: bytes = codec.decompress(*one, asbytes=True)
        return only
    whole = np.empty(size_bytes, np.uint8).data
    at = 0
    for block, size in blocks:
        whole[at : at + size] = codec.decompress(block, size, asbytes=True)
        at += size
    return whole


def snappy_size(view: memoryview, blocks_max: int) -> int:
    """Return what snappy data says that it decompresses to; the decoder holds it to that.

    Raises:
        ValueError: malformed, or of more than `blocks_max` blocks.
    """
    total = 0
    for number, block in enumerate(_snappy_blocks(view)):
        if number >= blocks_max:
            raise ValueError("too many blocks")
        total += _snappy_size(block)
    return total


def _snappy_blocks(view: memoryview) -> Iterator[memoryview]:
    """Yield the blocks of xerial's framing, or all of a raw one."""
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        yield view
        return
    position = 0
    while position < len(view):
        if bytes(view[position : position + len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            if position > len(view):
                raise ValueError("cut short inside its header")
            continue
        start = position + _XERIAL_BLOCK_LENGTH.size
        if start > len(view):
            raise ValueError("cut short before a block")
        (length,) = _XERIAL_BLOCK_LENGTH.unpack_from(view, position)
        if not 0 <= length <= len(view) - start:
            raise ValueError(f"block of {length} bytes where {len(view) - start} are left")
        yield view[start : start + length]
        position = start + length


def _snappy_size(block: memoryview) -> int:
    """Return the decompressed size of a block: a little-endian base-128 number in front."""
    size_bytes = 0
    for index, byte in enumerate(block[:5]):
        size_bytes |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return size_bytes
    raise ValueError("block without a length")


def _xerial_blocks(view: memoryview) -> Iterator[bytes]:
    codec = pa.Codec("snappy")
    yield _XERIAL_HEADER
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = codec.compress(view[start : start + _XERIAL_BLOCK_BYTES], asbytes=True)
        yield _XERIAL_BLOCK_LENGTH.pack(len(block))
        yield block


def _lz4_blocks(view: memoryview) -> Iterator[bytes]:
    codec = pa.Codec("lz4_raw")
    yield _LZ4_HEADER
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        plain = view[start : start + _LZ4_BLOCK_BYTES]
        block = codec.compress(plain, asbytes=True)
        if len(block) < len(plain):
            yield _LZ4_BLOCK_LENGTH.pack(len(block))
            yield block
        else:
            yield _LZ4_BLOCK_LENGTH.pack(len(plain) | _LZ4_STORED)
            yield bytes(plain)
    yield _LZ4_END


def _over_bound(codec: Codec, max_bytes: int) -> OverBound:
    return OverBound(
        f"records decompress to more than the bound; the {codec.name.lower()} bytes are hostile or "
        f"the batch is too big: send smaller batches. max_bytes={max_bytes}"
    )
