"""The index of a segment's keys: never wrong about a key it has, right about most it has not."""

from __future__ import annotations

import os
from dataclasses import replace

import pyarrow as pa
import pytest
from crc32c import crc32c

from sparklog.core.errors import DataCorrupt
from sparklog.log.effects import run
from sparklog.log.manifest.refresh import FOOTER_READ_BYTES
from sparklog.log.partition.partition_log import LogConfig
from sparklog.log.segment.builder import build_records
from sparklog.log.segment.footer import CRC_KEY, SEGMENT_KEY, from_metadata, to_metadata
from sparklog.log.segment.key_index import BOUND_BYTES, PAGE_BYTES, KeyIndex, hashed_key, index_keys
from sparklog.log.tail.references import check_references, reference_batch
from sparklog.store.memory import MemoryStore
from tests.harness.log_records import LAYOUT, batch, numbered, open_partition

NONCE = "00112233445566778899aabbccddeeff"
WORD = (1 << 64) - 1


def siphash(key: bytes, nonce: str) -> int:
    """SipHash-1-3 with 128 bits of output, the first eight bytes, as its paper has it."""
    raw = bytes.fromhex(nonce)
    k0, k1 = int.from_bytes(raw[:8], "little"), int.from_bytes(raw[8:], "little")
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D ^ 0xEE]
    v += [k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def turned(word: int, bits: int) -> int:
        return (word << bits | word >> (64 - bits)) & WORD

    def round_() -> None:
        for a, b, c, d, left, right in ((0, 1, 2, 3, 13, 16), (2, 1, 0, 3, 17, 21)):
            v[a] = (v[a] + v[b]) & WORD
            v[c] = (v[c] + v[d]) & WORD
            v[b] = turned(v[b], left) ^ v[a]
            v[d] = turned(v[d], right) ^ v[c]
            v[a] = turned(v[a], 32)

    whole = len(key) // 8 * 8
    words = [int.from_bytes(key[at : at + 8], "little") for at in range(0, whole, 8)]
    words.append(int.from_bytes(key[whole:], "little") | (len(key) & 0xFF) << 56)
    for word in words:
        v[3] ^= word
        round_()
        v[0] ^= word
    v[2] ^= 0xEE
    for _ in range(3):
        round_()
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def made(keys: list[bytes | None]) -> tuple[KeyIndex, bytes]:
    found = index_keys([pa.array(keys, pa.binary())], NONCE, start=40)
    assert found is not None
    return found


def may_have(key: bytes, index: KeyIndex, data: bytes) -> bool:
    hashed = hashed_key(key, NONCE)
    span = index.page(hashed)
    page = data[span.start - index.start :][: span.length]
    assert crc32c(page) == span.crc
    return not index.excludes(hashed, page)


@pytest.mark.parametrize(
    "key",
    [b"", b"a", b"sixteen bytes..!", b"seventeen bytes..", b"k" * 300, b"by a kernel" * 100],
)
def test_key_is_hashed_as_specified(key: bytes) -> None:
    assert hashed_key(key, NONCE) == siphash(key, NONCE)


def test_every_key_is_found_and_few_others_are() -> None:
    keys = [b"key-%d" % n for n in range(60_000)]
    index, data = made([*keys, None])
    assert len(data) == index.length > PAGE_BYTES
    assert [span.start for span in index.pages()] == [40, 40 + PAGE_BYTES]
    assert sum(span.length for span in index.pages()) == len(data)
    assert all(may_have(key, index, data) for key in keys[::100])
    assert sum(may_have(b"other-%d" % n, index, data) for n in range(3000)) < 60


def test_bounds_hold_for_keys_of_any_length() -> None:
    index, _ = made([b"b", b"a" * 100, b"y" * 100])
    assert (index.lowest, index.highest) == (b"a" * BOUND_BYTES, b"y" * 63 + b"z")
    for key, out in [(b"a" * 100, False), (b"y" * 100, False), (b"a", True), (b"z", True)]:
        assert index.out_of_bounds(key) is out
    index, _ = made([b"\xff" * 100])
    assert index.highest is None
    assert not index.out_of_bounds(b"\xff" * 101)
    assert made([b"\xfe" + b"\xff" * 100])[0].highest == b"\xff"


def test_segment_without_keys_has_no_index() -> None:
    assert index_keys([pa.array([None, None], pa.binary())], NONCE, start=0) is None
    assert index_keys([], NONCE, start=0) is None


def test_footer_has_the_index_and_an_impossible_one_is_rejected() -> None:
    draft = build_records(LAYOUT, [numbered(0, 5)], NONCE, codec="none", indexes_keys=True)
    segment = draft.placed(7)
    assert segment.keys is not None
    again = from_metadata(to_metadata(segment), LAYOUT, "object")
    assert again == segment
    unbounded = replace(segment, keys=replace(segment.keys, highest=None))
    assert from_metadata(to_metadata(unbounded), LAYOUT, "object") == unbounded
    data = draft.at(7)
    span = next(segment.keys.pages())
    assert crc32c(data[span.start : span.start + span.length]) == span.crc
    assert pa.ipc.open_file(data).read_all().num_rows == 5
    text = to_metadata(segment)[SEGMENT_KEY].replace('"length":32', '"length":31')
    with pytest.raises(DataCorrupt, match="not as the format says"):
        from_metadata({SEGMENT_KEY: text, CRC_KEY: str(crc32c(text.encode()))}, LAYOUT, "object")


def test_object_with_a_filter_has_the_size_in_its_footer() -> None:
    store = MemoryStore("test")
    log = open_partition(store, LogConfig(codec="none", indexes_keys=True))
    keys = [b"%d" % n for n in range(1000)]
    rows = batch([b"x" * 100] * len(keys), keys=keys)
    log.append([rows])
    (found,) = log.probe().entries
    assert found.size_bytes == len(store.get(LAYOUT.key(found.object))) > FOOTER_READ_BYTES
    run(check_references(LAYOUT, reference_batch([log.stage([rows])], None)), store)


def test_another_segment_hashes_otherwise() -> None:
    assert hashed_key(b"key", NONCE) != hashed_key(b"key", os.urandom(16).hex())
