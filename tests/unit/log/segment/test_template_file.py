"""Files put together without Arrow are, byte for byte, those that Arrow writes."""

from __future__ import annotations

import struct
from itertools import accumulate

import pyarrow as pa
import pytest

from sparklog.log.segment.file import finish_file, write_stream
from sparklog.log.segment.template_file import FOOTERS_KEPT_MAX, PlainFile

SCHEMA = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("number", pa.int32(), nullable=False),
        pa.field("long", pa.int64(), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
    ]
)
PLAIN = PlainFile(SCHEMA, {"name": "n", "number": 1, "long": 1, "data": b"d"})


def _by_arrow(rows: list[tuple[str, int, int, bytes]], metadata: dict[str, str]) -> bytes:
    columns = [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), SCHEMA, strict=True)]
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    return finish_file(write_stream(SCHEMA, [batch], "none"), metadata)


def _offsets(texts: list[bytes]) -> list[bytes]:
    return [struct.pack(f"<{len(texts) + 1}i", 0, *accumulate(map(len, texts)))]


def _by_hand(rows: list[tuple[str, int, int, bytes]], metadata: dict[str, str]) -> bytes:
    names, data = [r[0].encode() for r in rows], [r[3] for r in rows]
    body = PLAIN.body(
        len(rows),
        (
            (_offsets(names), [b"".join(names)]),
            ([struct.pack(f"<{len(rows)}i", *(r[1] for r in rows))],),
            ([struct.pack("<q", r[2]) for r in rows],),
            (_offsets(data), data),
        ),
    )
    return PLAIN.finish(body, metadata)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 100])
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 1000])
def test_the_bytes_are_those_of_arrow(count: int, size: int) -> None:
    rows = [
        (f"näme-{i}" if i % 3 else "", i - 3, i * 10**15, bytes(size + i)) for i in range(count)
    ]
    metadata = {"first": "x" * (size + 1), "second": "1"}
    assert _by_hand(rows, metadata) == _by_arrow(rows, metadata)


def test_footers_with_texts_of_any_length_are_those_of_arrow() -> None:
    rows = [("a", 1, 2, b"b")]
    for length in range(1, 2 * FOOTERS_KEPT_MAX):
        metadata = {"first": "1" * (length % 11 + 1), "second": "2" * length}
        assert _by_hand(rows, metadata) == _by_arrow(rows, metadata)


def test_a_row_of_nothing_but_empty_texts_is_that_of_arrow() -> None:
    rows = [("", 0, 0, b"")]
    assert _by_hand(rows, {"first": "x", "second": "y"}) == _by_arrow(
        rows, {"first": "x", "second": "y"}
    )
