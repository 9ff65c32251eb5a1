"""Objects of a broker's write-ahead log: their content, and their bytes. Source: WAL.md 2.

Values and a codec: no store, no clock. Record batches pass through as bytes, not decoded.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import Any, Final, NamedTuple

import pyarrow as pa
from crc32c import crc32c

from sparklog.core.errors import DataCorrupt
from sparklog.log.layout import WalLayout
from sparklog.log.segment.file import (
    STREAM_START,
    finish_file,
    footer_metadata,
    footer_start,
    write_stream,
)
from sparklog.log.segment.footer import CRC_KEY, checked_document
from sparklog.log.segment.template_file import Pieces, PlainFile

WAL_KEY = "sparklog.wal"
FORMAT_VERSION: Final = 1
FOOTER_READ_BYTES = 8 * 1024
"""The last bytes of an object that hold its whole footer, which is about 1 KiB and bounded."""
WINDOW_BYTES_MIN = 4097
"""No window is smaller, and no seal or barrier as large: sizes in a listing distinguish them."""
BLANKS_STEP = 512
WINDOW_BYTES_MAX = 1 << 30
"""Arrow's `binary` counts a column's bytes with 31 bits."""

UNKNOWN_SEQUENCE: Final = -1
"""In windows of older versions, and in every object that is no window."""

_SCHEMA = pa.schema(
    [
        pa.field("topic_id", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("base_offset", pa.int64(), nullable=False),
        pa.field("leader_epoch", pa.int32(), nullable=False),
        pa.field("batch", pa.binary(), nullable=False),
    ]
)


_WINDOWS = PlainFile(
    _SCHEMA, {"topic_id": "t", "partition": 1, "base_offset": 1, "leader_epoch": 1, "batch": b"b"}
)
_JSON = json.JSONEncoder(separators=(",", ":"))


class WalKind(StrEnum):
    """The purpose of an object of the log."""

    REGISTRATION = "registration"
    """Sequence 0: the incarnation exists."""
    WINDOW = "window"
    """Record batches of every partition that the broker leads; perhaps none."""
    BARRIER = "barrier"
    """A sealer's: the broker stops here, but the end of the log is not decided yet."""
    SEAL = "seal"
    """A sealer's: the log ends here."""


BROKERS_KINDS = frozenset({WalKind.REGISTRATION, WalKind.WINDOW})


class WalBatch(NamedTuple):
    """One record batch as a leader wrote it, with its base offset and epoch already in place."""

    topic_id: str
    partition: int
    base_offset: int
    leader_epoch: int
    data: bytes


@dataclass(frozen=True, slots=True)
class WalHeader:
    """The content of an object's footer."""

    kind: WalKind
    sequence: int
    boundary: int
    """Trim boundary: everything in objects below this sequence is in the partitions' own logs."""
    nonce: str
    """Of the attempt to write it."""
    forced: bool = True
    """True if each window of the log is on the disk before it counts. If not, a power cut may have
    truncated some, or lost their names; never one whose boundary is above those before it."""
    acknowledged: int = UNKNOWN_SEQUENCE
    """A window's: the newest sequence that the broker had acknowledged when it numbered this one.
    So each name from the boundary up to this one was written."""


@dataclass(frozen=True, slots=True)
class WalObject:
    """A whole object."""

    header: WalHeader
    batches: tuple[WalBatch, ...] = ()


def encode(layout: WalLayout, header: WalHeader, batches: Sequence[WalBatch] = ()) -> bytes:
    """Return the object as a file."""
    problem = _problem(header)
    assert not problem, problem
    if batches:
        topic_ids, partitions, base_offsets, epochs, data = zip(*batches, strict=True)
        assert sum(map(len, data)) <= WINDOW_BYTES_MAX, "a window is too large"
        ids = list(map(str.encode, topic_ids))
        # The columns' buffers, uncompressed: producers have compressed their batches.
        columns = (
            (_offsets(ids), ids),
            (_numbers("i", partitions),),
            (_numbers("q", base_offsets),),
            (_numbers("i", epochs),),
            (_offsets(data), data),
        )
        body = _WINDOWS.body(len(batches), columns)
        about = _about(layout, header, len(batches), (body.size, body.crc))
        return _WINDOWS.finish(body, about)
    part = write_stream(_SCHEMA, [], "none")
    return finish_file(part, _about(layout, header, 0, (part.data.size, crc32c(part.data))))


def _offsets(texts: Sequence[bytes]) -> Pieces:
    """Return the start of each text in their column, and the end of the last."""
    return _numbers("i", [0, *accumulate(map(len, texts))])


def _numbers(kind: str, values: Sequence[int]) -> Pieces:
    return (struct.pack(f"<{len(values)}{kind}", *values),)


def _about(
    layout: WalLayout, header: WalHeader, rows: int, body: tuple[int, int]
) -> dict[str, str]:
    """Return the footer's metadata; `body`: length and CRC of the bytes before the end mark."""
    document = {
        "format": FORMAT_VERSION,
        "kind": header.kind,
        "broker_id": layout.broker_id,
        "incarnation": layout.incarnation,
        "sequence": header.sequence,
        "boundary": header.boundary,
        "nonce": header.nonce,
        "rows": rows,
        "body": body,
    }
    if not header.forced:
        document["unforced"] = True
    if header.acknowledged != UNKNOWN_SEQUENCE:
        document["acknowledged"] = header.acknowledged
    text = _JSON.encode(document)
    if header.kind is WalKind.WINDOW:
        # Blanks fill up a small window. Steps limit the number of different footers.
        text = text.ljust(-(-(WINDOW_BYTES_MIN - body[0]) // BLANKS_STEP) * BLANKS_STEP)
    return {WAL_KEY: text, CRC_KEY: str(crc32c(text.encode()))}


def decode_header(tail: bytes, layout: WalLayout, sequence: int) -> WalHeader:
    """Return the header of the object at `sequence`, from its last FOOTER_READ_BYTES or all of it.

    Raises:
        DataCorrupt: damaged, foreign, of another log or name, or of a newer format.
    """
    return _header(_document(tail, layout.key(sequence)), layout, sequence)


def decode(data: bytes, layout: WalLayout, sequence: int) -> WalObject:
    """Return the object at `sequence` from all its bytes.

    Raises:
        DataCorrupt: damaged, foreign, of another log or name, or of a newer format.
    """
    name = layout.key(sequence)
    document = _document(data, name)
    header = _header(document, layout, sequence)
    try:
        length, crc = document["body"]
        if crc32c(data[:length]) != crc:
            raise DataCorrupt(f"WAL object fails its checksum; run verify. object={name}")
        # The checksum covers the stream but not the Arrow footer's block list: read the stream.
        with pa.ipc.open_stream(pa.py_buffer(data)[STREAM_START:length]) as reader:
            table = reader.read_all()
        table.validate(full=True)
        columns = [table.column(field.name).to_pylist() for field in _SCHEMA]
        batches = tuple(WalBatch(*row) for row in zip(*columns, strict=True))
        if not table.schema.equals(_SCHEMA) or len(batches) != document["rows"]:
            raise ValueError("columns or rows are not those the footer tells of")
    except (KeyError, TypeError, ValueError, IndexError, OSError, pa.ArrowException) as error:
        raise _not_as_specified(error, name) from error
    return WalObject(header, batches)


def _document(data: bytes, name: str) -> dict[str, Any]:
    # The footer is short, so a tail that holds it whole is enough.
    footer = data[footer_start(data, len(data), name) :]
    return checked_document(footer_metadata(footer, name), WAL_KEY, name, FORMAT_VERSION)


def _header(document: dict[str, Any], layout: WalLayout, sequence: int) -> WalHeader:
    name = layout.key(sequence)
    try:
        header = WalHeader(
            kind=WalKind(document["kind"]),
            sequence=int(document["sequence"]),
            boundary=int(document["boundary"]),
            nonce=str(document["nonce"]),
            forced=not document.get("unforced", False),
            acknowledged=int(document.get("acknowledged", UNKNOWN_SEQUENCE)),
        )
        place = (int(document["broker_id"]), str(document["incarnation"]), header.sequence)
    except (KeyError, TypeError, ValueError) as error:
        raise _not_as_specified(error, name) from error
    if place != (layout.broker_id, layout.incarnation, sequence):
        raise DataCorrupt(
            "WAL object belongs under another name; it was copied or renamed by hand. "
            f"object={name} broker_id={place[0]} incarnation={place[1]} sequence={place[2]}"
        )
    problem = _problem(header)
    if problem:
        raise DataCorrupt(f"WAL object breaks an invariant: {problem}; run verify. object={name}")
    return header


def _problem(header: WalHeader) -> str:
    """Return the contradiction in a header, or ''."""
    if not 0 <= header.boundary <= header.sequence:
        return f"its boundary {header.boundary} is not within [0, {header.sequence}]"
    if header.acknowledged != UNKNOWN_SEQUENCE:
        if header.kind is not WalKind.WINDOW:
            return "an acknowledged sequence in an object that is no window"
        if not header.boundary <= header.acknowledged < header.sequence:
            return (
                f"its acknowledged sequence {header.acknowledged} is not within "
                f"[{header.boundary}, {header.sequence})"
            )
    if header.kind is WalKind.REGISTRATION and header.sequence != 0:
        return "a registration after sequence 0"
    if header.kind is WalKind.WINDOW and header.boundary >= header.sequence:
        return "a window that trims itself away"
    return ""


def _not_as_specified(error: Exception, name: str) -> DataCorrupt:
    return DataCorrupt(
        f"WAL object is not as the format says: {error!r}; run verify. object={name}"
    )
