"""Survey of the records of one batch, without decoding them.

A leader checks a producer's batch with it before the append. It costs about ten nanoseconds a
record and no memory beyond the decompressed bytes.

RECORD-SURVEY-1: A batch without a fault decodes: `decoder` and Kafka's clients read every record
    of it.
RECORD-SURVEY-2: Nothing is allocated from a count before the bytes for it were seen.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sparklog.protocol.records.decoder import FAULTS
from sparklog.protocol.records.header import BatchHeader, BytesLike

if TYPE_CHECKING:
    from types import ModuleType


class Survey(NamedTuple):
    """Properties of the records of a batch."""

    fault: str | None
    """The error message of a malformed record, or None; the other fields then cover the records
    before.
    """
    record: int
    """The record with the fault, counted from 0."""
    oldest_ms: int
    """The lowest timestamp that is not -1; the highest int64 if there is none."""
    newest_ms: int
    """The highest timestamp; -1 if none is higher."""
    null_keys: int
    headers: int
    is_dense: bool
    """True if offset deltas are 0, 1, 2 and so on."""


def survey(header: BatchHeader, data: BytesLike, first_byte: int = 0) -> Survey:
    """Check the records of a batch.

    Args:
        header: the batch's; its timestamp type is ignored.
        data: decompressed records, up to the buffer's end.
        first_byte: their start in `data`.
    """
    kernels = _kernels()
    found = np.empty(kernels.SURVEY, np.int64)
    fault = kernels.survey_records(
        np.frombuffer(data, np.uint8), first_byte, header.record_count, header.base_timestamp, found
    )
    oldest, newest, null_keys, headers, is_dense, record = found.tolist()
    name = FAULTS[fault] if fault else None
    return Survey(name, record, oldest, newest, null_keys, headers, bool(is_dense))


@cache
def _kernels() -> ModuleType:
    """Load numba and the machine code on first use: importing them costs a third of a second."""
    from sparklog.protocol.records import decode_kernels  # noqa: PLC0415 - see above

    return decode_kernels
