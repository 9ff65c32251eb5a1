"""The four codecs: read formats, written formats, and the cost of hostile bytes."""

from __future__ import annotations

import gzip
import struct

import pyarrow as pa
import pytest

from sparklog.core.errors import DataCorrupt
from sparklog.protocol.records.compression import compress, decompress
from sparklog.protocol.records.header import HEADER_BYTES
from sparklog.protocol.records.record_batch import Codec
from sparklog.protocol.records.unfolded_size import unfolded_bytes_max
from tests.harness.wire_batches import raw_batch, record

CODECS = [codec for codec in Codec if codec is not Codec.NONE]
SIZES = [0, 1, 100, 32 * 1024, 64 * 1024, 64 * 1024 + 1, 300_000]


def noise(size: int) -> bytes:
    """Return bytes that do not compress."""
    return b"".join(
        struct.pack("<Q", i * 0x9E3779B97F4A7C15 % 2**64) for i in range(size // 8 + 1)
    )[:size]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("size", SIZES)
def test_compression_round_trips_any_size(codec: Codec, size: int) -> None:
    for plain in (noise(size), bytes(size)):
        assert bytes(decompress(compress(plain, codec), codec)) == plain


@pytest.mark.parametrize("codec", CODECS)
def test_truncated_bytes_are_corrupt(codec: Codec) -> None:
    packed = compress(noise(700), codec)
    # A xerial stream may end after any block, also right after its header.
    whole = {0, 16} if codec is Codec.SNAPPY else set()
    for cut in set(range(len(packed))) - whole - {0}:
        with pytest.raises(DataCorrupt):
            decompress(packed[:cut], codec)


@pytest.mark.parametrize("codec", CODECS)
def test_bytes_after_the_end_are_corrupt_except_for_gzip(codec: Codec) -> None:
    data = compress(noise(700), codec) + b"junk!"
    if codec is Codec.GZIP:
        assert bytes(decompress(data, codec)) == noise(700)
        data = compress(noise(700), codec) + compress(b"another", codec)[:12]
    with pytest.raises(DataCorrupt):
        decompress(data, codec)


@pytest.mark.parametrize("codec", CODECS)
def test_decompression_limit_is_exact(codec: Codec) -> None:
    plain = bytes(3_000_000)
    packed = compress(plain, codec)
    assert bytes(decompress(packed, codec, len(plain))) == plain
    with pytest.raises(DataCorrupt, match=f"more than the bound.*max_bytes={len(plain) - 1}"):
        decompress(packed, codec, len(plain) - 1)


def test_snappy_block_with_a_huge_length_costs_no_memory() -> None:
    promise = b"\xff\xff\xff\xff\x0f" + b"\x00a"
    before = pa.total_allocated_bytes()
    for bomb in (promise, b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(promise)) + promise):
        with pytest.raises(DataCorrupt, match="more than the bound"):
            decompress(bomb, Codec.SNAPPY)
    assert pa.total_allocated_bytes() == before


def test_raw_snappy_of_librdkafka_is_decompressed() -> None:
    plain = noise(100_000)
    raw = pa.Codec("snappy").compress(plain, asbytes=True)
    assert bytes(decompress(raw, Codec.SNAPPY)) == plain


def test_snappy_is_written_in_xerial_blocks_of_32_kib() -> None:
    packed = compress(bytes(100_000), Codec.SNAPPY)
    assert packed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    position, sizes = 16, []
    while position < len(packed):
        (length,) = struct.unpack_from(">i", packed, position)
        block = packed[position + 4 : position + 4 + length]
        sizes.append(len(decompress(block, Codec.SNAPPY)))
        position += 4 + length
    assert sizes == [32_768, 32_768, 32_768, 1_696]


def test_concatenated_xerial_streams_are_decompressed() -> None:
    packed = compress(b"one", Codec.SNAPPY) + compress(b"two", Codec.SNAPPY)
    assert bytes(decompress(packed, Codec.SNAPPY)) == b"onetwo"


@pytest.mark.parametrize("length", [-1, 1_000_000, 2**31 - 1])
def test_xerial_block_of_a_wrong_length_is_corrupt(length: int) -> None:
    packed = bytearray(compress(b"some text", Codec.SNAPPY))
    struct.pack_into(">i", packed, 16, length)
    with pytest.raises(DataCorrupt, match="snappy"):
        decompress(packed, Codec.SNAPPY)


def test_lz4_blocks_are_independent_as_java_requires() -> None:
    packed = compress(bytes(300_000), Codec.LZ4)
    assert packed[:4] == struct.pack("<I", 0x184D2204)
    version, independent = packed[4] >> 6, packed[4] >> 5 & 1
    assert (version, independent) == (1, 1)
    # Arrow's own frame of the same bytes must not be sent.
    assert pa.Codec("lz4").compress(bytes(300_000), asbytes=True)[4] >> 5 & 1 == 0


def test_lz4_frames_of_any_kind_are_decompressed() -> None:
    plain = noise(200_000) + bytes(200_000)
    frame = pa.Codec("lz4").compress(plain, asbytes=True)
    assert bytes(decompress(frame, Codec.LZ4)) == plain


def test_concatenated_gzip_members_are_decompressed() -> None:
    packed = gzip.compress(b"one") + gzip.compress(b"two")
    assert bytes(decompress(packed, Codec.GZIP)) == b"onetwo"


def test_levels_change_the_size_but_not_the_content() -> None:
    plain = b"".join(b"%d flights late by %d minutes;" % (i, i * i % 97) for i in range(5_000))
    for codec, low, high in ((Codec.GZIP, 1, 9), (Codec.ZSTD, 1, 19)):
        small, large = compress(plain, codec, high), compress(plain, codec, low)
        assert len(small) < len(large)
        assert decompress(small, codec) == decompress(large, codec) == plain


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", SIZES)
def test_unfolded_bytes_max_bounds_the_decompressed_size(codec: Codec, size: int) -> None:
    for plain in (noise(size), bytes(size)):
        batch = raw_batch([record(0, plain)], codec=codec)
        unfolded = len(decompress(memoryview(batch)[HEADER_BYTES:], codec))
        assert unfolded <= unfolded_bytes_max(batch, 1 << 30)
        assert unfolded_bytes_max(batch, unfolded - 1) == unfolded - 1


def test_unfolded_bytes_max_is_exact_for_snappy_and_close_for_blocks() -> None:
    plain = [record(0, bytes(300_000))]
    assert unfolded_bytes_max(raw_batch(plain, codec=Codec.NONE), 1 << 30) == 0
    for codec, slack in ((Codec.SNAPPY, 0), (Codec.LZ4, 64 << 10), (Codec.ZSTD, 128 << 10)):
        batch = raw_batch(plain, codec=codec)
        unfolded = len(decompress(memoryview(batch)[HEADER_BYTES:], codec))
        assert unfolded_bytes_max(batch, 1 << 30) <= unfolded + slack


def test_unfolded_bytes_max_is_the_limit_when_no_frame_follows() -> None:
    for codec in (Codec.LZ4, Codec.ZSTD):
        whole = raw_batch([record(0, noise(700))], codec=codec)
        assert unfolded_bytes_max(whole + b"\xff" * 9, 1 << 20) == 1 << 20
