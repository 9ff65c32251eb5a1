"""Decodes many record batches together, so that the cost of a call is shared.

A leader's flush brings thousands of small batches at a time. Their headers become one table, their
records one buffer, and one call of the compiled scan decodes all of it.

N1: The rows are those of `decode`, batch after batch, each with its own offset.
N2: Each item is exactly one batch whose checksum the caller has verified.

Sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.core.errors import DataCorrupt
from sparklog.protocol.arrow_records import RECORDS_SCHEMA
from sparklog.protocol.batch_decoder import rows_of
from sparklog.protocol.batch_header import (
    CODEC_MASK,
    HEADER_BYTES,
    INT32_MAX,
    LENGTH_END,
    MAGIC,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    BytesLike,
    Codec,
    parse_header,
    whole_batch,
)
from sparklog.protocol.compression import DECOMPRESSED_BYTES_MAX, decompress

_FIELDS: Final = zip(
    BatchHeader._fields,
    ("i8", "i4", "i4", "i1", "u4", "i2", "i4", "i8", "i8", "i8", "i2", "i4", "i4"),
    strict=True,
)
HEADER_ROW: Final = np.dtype([(name, f">{kind}") for name, kind in _FIELDS])
"""The wire format of a header, with the field names of `BatchHeader`."""

RUN_BYTES: Final = 16 << 20
"""Decompressed bytes of one call: more would not be faster, only take more memory."""

Headers = npt.NDArray[Any]
"""One HEADER_ROW for each batch."""


def read_headers(batches: Sequence[BytesLike]) -> Headers:
    """Return the headers of whole batches as one table.

    Raises:
        DataCorrupt: an item is not exactly one batch of magic 2; a header contradicts itself.
    """
    table = np.frombuffer(b"".join(batch[:HEADER_BYTES] for batch in batches), np.uint8)
    sizes = np.fromiter(map(len, batches), np.int64, len(batches))
    if len(table) < len(batches) * HEADER_BYTES:
        raise _first_problem(batches)
    headers = table.view(HEADER_ROW)
    counts = headers["record_count"].astype(np.int64)
    sound = (
        (headers["magic"] == MAGIC)
        & (headers["length"].astype(np.int64) + LENGTH_END == sizes)
        & (headers["base_offset"] >= 0)
        & (counts >= 0)
        & (counts <= headers["last_offset_delta"].astype(np.int64) + 1)
        & (headers["attributes"] & CODEC_MASK <= Codec.ZSTD)
    )
    if not sound.all():
        raise _first_problem(batches)
    return headers


def decode_runs(
    batches: Sequence[BytesLike],
    headers: Headers,
    *,
    run_bytes: int = RUN_BYTES,
    max_decompressed_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the number of neighbouring batches and their records, by the columns of RECORDS_SCHEMA.

    Memory: twice the records of one run, which are `run_bytes` and at most one batch more.

    Args:
        batches: as for `read_headers`.
        headers: its result.
        run_bytes: decompressed size that ends a run.
        max_decompressed_bytes: limit for the records of one batch.

    Raises:
        DataCorrupt: a batch's records contradict themselves or its header.
    """
    codecs = (headers["attributes"] & CODEC_MASK).tolist()
    bound = min(max_decompressed_bytes, INT32_MAX - run_bytes)
    first = 0
    pieces: list[BytesLike] = []
    skipped: list[int] = []
    size = 0
    for batch, codec in zip(batches, codecs, strict=True):
        is_plain = codec == Codec.NONE or len(batch) == HEADER_BYTES
        # A plain batch is joined whole: join() releases the interpreter's lock for `bytes`, not for
        # views.
        skipped.append(HEADER_BYTES if is_plain else 0)
        pieces.append(
            batch if is_plain else decompress(memoryview(batch)[HEADER_BYTES:], Codec(codec), bound)
        )
        size += len(pieces[-1])
        if size >= run_bytes:
            yield len(pieces), _rows(pieces, skipped, headers[first : first + len(pieces)])
            first += len(pieces)
            pieces, skipped, size = [], [], 0
    if pieces:
        yield len(pieces), _rows(pieces, skipped, headers[first:])


def _rows(pieces: Sequence[BytesLike], skipped: Sequence[int], headers: Headers) -> pa.RecordBatch:
    """Scan the decompressed records of batches; `skipped` bytes precede them in each piece."""
    if not headers["record_count"].any():
        return pa.RecordBatch.from_pylist([], RECORDS_SCHEMA)
    ends = np.cumsum(np.fromiter(map(len, pieces), np.int64, len(pieces)))
    is_append_time = headers["attributes"] & TIMESTAMP_TYPE_BIT != 0
    columns = (
        np.concatenate(([0], ends[:-1])) + np.array(skipped, np.int64),
        ends,
        headers["record_count"],
        headers["base_offset"],
        headers["last_offset_delta"],
        np.where(is_append_time, headers["max_timestamp"], headers["base_timestamp"]),
        is_append_time,
    )
    places = np.empty((len(pieces), len(columns)), np.int64)
    for column, values in enumerate(columns):
        places[:, column] = values
    return rows_of(np.frombuffer(b"".join(pieces), np.uint8), places)


def _first_problem(batches: Sequence[BytesLike]) -> DataCorrupt:
    """Return the error of the first invalid batch, checking one after the other."""
    for batch in batches:
        try:
            header = parse_header(batch)
            whole_batch(batch, header)
        except DataCorrupt as error:
            return error
        if len(batch) != header.size_bytes:
            return DataCorrupt(
                "bytes follow the record batch; split the buffer first. "
                f"base_offset={header.base_offset} batch_bytes={header.size_bytes}"
            )
    return DataCorrupt(f"record batches contradict themselves. batches={len(batches)}")
