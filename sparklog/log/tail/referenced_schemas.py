"""Checks the schemas of the records that a reference batch stands for.

A topic with schema validation must not trust the sender of a reference batch. So the leader reads
the keys, values and headers of the staged objects. It looks up each record as it does for
produced batches: by `schema_check`, on the bytes that consumers will get. Compiled code does that
for a whole record batch of Arrow at a time. Pure: `fetch` of `column_reader` reads the bytes.

REFERENCED-SCHEMAS-1: Every record that a consumer can get from an accepted object was looked up.
    So objects with records outside of the rows are refused, and those with offsets of their own.

Sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from sparklog.core.errors import DataCorrupt, InvalidRecord, RecordError, UnknownSchema
from sparklog.log.layout import PartitionLayout
from sparklog.log.segment.column_reader import (
    FETCH_BYTES_MAX,
    ColumnPiece,
    byte_ranges,
    decode,
    pieces,
)
from sparklog.log.segment.footer import STORED_ROWS_MAX
from sparklog.log.segment.segment import Reference, Segment
from sparklog.log.tail.batch_validator import BatchRules
from sparklog.protocol.records.header import HEADER_BYTES, parse_header
from sparklog.protocol.records.record_batch import encode
from sparklog.protocol.records.schema_check import FAULTS, KnownSchemas, find_faults

PIECE_BYTES: Final = 4 * FETCH_BYTES_MAX
"""Bound on a piece of several record batches, with the gaps between their columns."""
BATCH_UNFOLDED_BYTES: Final = 1 << 20
"""About the decompressed size of a stored record batch (FORMAT.md 3)."""


def pieces_to_check(
    layout: PartitionLayout, one: Reference, segment: Segment, rules: BatchRules
) -> Iterator[ColumnPiece]:
    """Yield what to fetch of one object; nothing if none of its records needs a schema.

    Args:
        layout: of the partition.
        one: the reference.
        segment: the object's metadata, which agrees with the reference.
        rules: of the topic; it needs schemas.

    Raises:
        InvalidRecord: the object has records that this check would not see.
    """
    problem = _hidden_records(segment)
    if problem is not None:
        raise InvalidRecord(
            "reference batch refused: the topic has schema validation, and not all records of an "
            f"object can be checked: {problem}. object={layout.key(one.object)}"
        )
    columns = _columns(rules)
    if not set(columns[:-1]) & set(segment.column_names):
        return
    for piece in pieces(layout.key(one.object), segment, one.base, one.base, one.end, columns):
        _check_size(piece, fetched_bytes(piece), rules)
        yield piece


def fetched_bytes(piece: ColumnPiece) -> int:
    """Return how many bytes of a piece are stored, and to be fetched."""
    return sum(end - start for start, end in byte_ranges(piece))


def unfolded_bytes(piece: ColumnPiece) -> int:
    """Return about how much memory `check_piece` takes, for columns and for records."""
    return 2 * max(fetched_bytes(piece), len(piece.batches) * BATCH_UNFOLDED_BYTES)


def check_piece(
    piece: ColumnPiece,
    fetched: Sequence[tuple[int, bytes]],
    rules: BatchRules,
    known: KnownSchemas,
) -> None:
    """Look up each record of a piece.

    Args:
        piece: of `pieces_to_check`.
        fetched: its bytes by their positions.
        rules: of the topic.
        known: the schemas that a record may have.

    Raises:
        UnknownSchema: a record names a schema that is not among the known ones.
        InvalidRecord: a record carries no id of a schema, or the object is damaged.
    """
    at = max(piece.base_offset, piece.object_base + piece.batches[0].base)
    try:
        for rows in decode(piece, fetched, _columns(rules)):
            _check_size(piece, rows.nbytes, rules)
            data = encode(rows, base_offset=0)
            faults = find_faults(
                parse_header(data), data, HEADER_BYTES, known,
                values=rules.value_schemas, keys=rules.key_schemas,
            )  # fmt: skip
            if faults is not None:
                row = int(np.flatnonzero(faults.of_records)[0])
                fault = FAULTS[int(faults.of_records[row])]
                raise _refusal(piece, at + row, fault, faults.first_unknown)
            at += rows.num_rows
    except (DataCorrupt, ValueError, LookupError, pa.ArrowException) as error:
        raise InvalidRecord(f"reference batch refused: {error}. object={piece.object}") from error


def _check_size(piece: ColumnPiece, size_bytes: int, rules: BatchRules) -> None:
    """Refuse a stored record batch that is larger than a produced one may be."""
    if size_bytes > max(PIECE_BYTES, rules.decompressed_bytes_max):
        raise InvalidRecord(
            "reference batch refused: a record batch of an object is larger than a produced batch "
            f"may be. object={piece.object} bytes={size_bytes} "
            f"max.decompressed.message.bytes={rules.decompressed_bytes_max}"
        )


def _hidden_records(segment: Segment) -> str | None:
    """Return why a reader might get other records than the check, or None (see the module)."""
    if segment.unread or segment.markers:
        return "some are outside of the rows"
    if "offset" in segment.column_names:
        return "they have offsets of their own"
    end = 0
    for batch in segment.batches:
        if batch.base != end or batch.end != end + batch.rows or batch.rows > STORED_ROWS_MAX:
            return f"the index is wrong at row {end}, or has more than {STORED_ROWS_MAX} rows there"
        end = batch.end
    return None if end == segment.rows else f"the index ends at row {end}"


def _columns(rules: BatchRules) -> tuple[str, ...]:
    """Return the columns that name schemas, `headers` last."""
    names = (("key", rules.key_schemas), ("value", rules.value_schemas))
    return (*(name for name, is_needed in names if is_needed), "headers")


def _refusal(piece: ColumnPiece, record: int, fault: str, unknown: str | None) -> InvalidRecord:
    kind = InvalidRecord if unknown is None else UnknownSchema
    schema = f" first_unknown_schema={unknown!r}" if unknown else ""
    return kind(
        "records refused, and with them their reference batch; the topic has schema validation. "
        f"first_refused={record}: {fault}{schema} object={piece.object} "
        f"row={record - piece.object_base}",
        (RecordError(record, fault),),
    )
