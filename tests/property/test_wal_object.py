"""Objects of the write-ahead log: a round trip, and damage that is always detected."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.core.errors import DataCorrupt
from sparklog.log.layout import WalLayout
from sparklog.log.wal.objects import (
    FOOTER_READ_BYTES,
    WalBatch,
    WalHeader,
    WalKind,
    WalObject,
    decode,
    decode_header,
    encode,
)

WAL = WalLayout(7, "ab" * 16)
BATCHES = st.lists(
    st.builds(
        WalBatch,
        topic_id=st.text("abcXYZ019_-", min_size=22, max_size=22),
        partition=st.integers(0, 2**31 - 1),
        base_offset=st.integers(0, 2**63 - 1),
        leader_epoch=st.integers(0, 2**31 - 1),
        data=st.binary(max_size=200),
    ),
    max_size=8,
).map(tuple)
NONCES = st.text("0123456789abcdef", min_size=32, max_size=32)


@st.composite
def _headers(draw: st.DrawFn) -> WalHeader:
    kind = draw(st.sampled_from(WalKind))
    if kind is WalKind.REGISTRATION:
        return WalHeader(kind, 0, 0, draw(NONCES), draw(st.booleans()))
    sequence = draw(st.integers(1, 10**18))
    highest = sequence - 1 if kind is WalKind.WINDOW else sequence
    boundary = draw(st.integers(0, highest))
    return WalHeader(kind, sequence, boundary, draw(NONCES), draw(st.booleans()))


SAMPLE = WalObject(
    WalHeader(WalKind.WINDOW, 12, 5, "0" * 32),
    (WalBatch("t" * 22, 0, 100, 3, b"first batch"), WalBatch("u" * 22, 4, 0, 0, b"second")),
)
SAMPLE_BYTES = encode(WAL, SAMPLE.header, SAMPLE.batches)


@given(_headers(), BATCHES)
def test_an_object_is_read_back_as_it_was_written(
    header: WalHeader, batches: tuple[WalBatch, ...]
) -> None:
    data = encode(WAL, header, batches)
    assert decode(data, WAL, header.sequence) == WalObject(header, batches)
    assert decode_header(data[-FOOTER_READ_BYTES:], WAL, header.sequence) == header


def test_the_header_of_a_large_object_is_read_from_its_end() -> None:
    batches = [WalBatch("t" * 22, p, 0, 0, bytes(64 * 1024)) for p in range(64)]
    data = encode(WAL, SAMPLE.header, batches)
    assert len(data) - len(data[-FOOTER_READ_BYTES:]) > 1 << 20
    assert decode_header(data[-FOOTER_READ_BYTES:], WAL, 12) == SAMPLE.header


def test_any_arrow_reader_opens_an_object() -> None:
    table = pa.ipc.open_file(pa.py_buffer(SAMPLE_BYTES)).read_all()
    assert table.column("batch").to_pylist() == [b"first batch", b"second"]
    assert table.column("base_offset").to_pylist() == [100, 0]


def test_every_truncation_is_noticed() -> None:
    for length in range(len(SAMPLE_BYTES)):
        with pytest.raises(DataCorrupt):
            decode(SAMPLE_BYTES[:length], WAL, 12)


def test_every_flipped_bit_is_noticed_or_harmless() -> None:
    noticed = 0
    for position in range(len(SAMPLE_BYTES)):
        damaged = bytearray(SAMPLE_BYTES)
        damaged[position] ^= 1 << position % 8
        try:
            assert decode(bytes(damaged), WAL, 12) == SAMPLE
        except DataCorrupt:
            noticed += 1
    assert noticed > len(SAMPLE_BYTES) / 2


@given(st.binary(max_size=300), st.integers(0, len(SAMPLE_BYTES)), st.integers(0, 300))
def test_overwritten_bytes_are_noticed_or_harmless(junk: bytes, at: int, keep: int) -> None:
    data = SAMPLE_BYTES[:at] + junk + SAMPLE_BYTES[at + keep :]
    try:
        assert decode(data, WAL, 12) == SAMPLE
    except DataCorrupt:
        return


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_by_name(junk: bytes) -> None:
    with pytest.raises(DataCorrupt, match=WAL.folder):
        decode(junk, WAL, 12)


@pytest.mark.parametrize(
    ("layout", "sequence"),
    [(WAL, 13), (WalLayout(8, WAL.incarnation), 12), (WalLayout(7, "cd" * 16), 12)],
    ids=["sequence", "broker", "incarnation"],
)
def test_an_object_under_another_name_is_refused(layout: WalLayout, sequence: int) -> None:
    with pytest.raises(DataCorrupt, match="another name"):
        decode_header(SAMPLE_BYTES, layout, sequence)
