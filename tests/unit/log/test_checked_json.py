"""Checked JSON documents: what is stored is read again, and nothing else is believed."""

from __future__ import annotations

import json

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from sparklog.core.errors import DataCorrupt
from sparklog.log.checked_json import decode_checked, encode_checked

BODIES = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=9), max_size=4)
GOOD = encode_checked({"name": "a", "list": [1, 2]}, end_offset=7)


@given(body=BODIES, end_offset=st.none() | st.integers(0, 2**63 - 1))
def test_decode_returns_the_encoded_body(body: dict[str, object], end_offset: int | None) -> None:
    data = encode_checked(body, end_offset=end_offset)
    assert decode_checked(data, "document", end_offset=end_offset) == body
    assert decode_checked(data, "document") == body


@pytest.mark.parametrize("name", ["commit", "image", "producers", "snapshot"])
def test_decode_reads_documents_named_after_their_kind(name: str) -> None:
    text = '{"a":1}'
    old = {"format": 1, "end_offset": 3, "crc32c": crc32c(text.encode()), name: text}
    assert decode_checked(json.dumps(old).encode(), "document", end_offset=3) == {"a": 1}


def test_decode_rejects_each_changed_byte_of_the_body() -> None:
    start = GOOD.index(b'"body":') + len(b'"body":')
    for at in range(start, len(GOOD)):
        with pytest.raises(DataCorrupt, match="document 5"):
            decode_checked(GOOD[:at] + bytes([GOOD[at] ^ 4]) + GOOD[at + 1 :], "document 5")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"format": 2}, "newer sparklog; upgrade. format=2 known=1"),
        ({"crc32c": 1}, "fails its checksum"),
        ({"end_offset": 8}, "is about another offset"),
        ({"body": None}, "not as the format says"),
        ({"format": "1"}, "not as the format says"),
    ],
)
def test_decode_names_the_fault(change: dict[str, object], error: str) -> None:
    data = json.dumps({**json.loads(GOOD), **change}).encode()
    with pytest.raises(DataCorrupt, match=error):
        decode_checked(data, "document", end_offset=7)


@pytest.mark.parametrize("data", [b"", b"[]", b"7", b"{}", b"\xff", GOOD[:-1]])
def test_decode_rejects_other_documents(data: bytes) -> None:
    with pytest.raises(DataCorrupt, match="not as the format says"):
        decode_checked(data, "document")
