"""Schema check: which records of a batch carry no known id of a schema.

A record names its schema as `registry.wire_format` reads it: in a header, else in front of the
value. A null value or key needs none. Compiled code looks up each record.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

import numpy as np

from sparklog.protocol.arrays import Bytes, Int64s
from sparklog.protocol.records.header import BatchHeader, BytesLike

if TYPE_CHECKING:
    from types import ModuleType

FAULTS: Final = {
    1: "the value carries no id of a schema",
    2: "the schema of the value is not registered",
    3: "the key carries no id of a schema",
    4: "the schema of the key is not registered",
}
"""Messages for the kernel's faults."""


@dataclass(frozen=True, slots=True)
class KnownSchemas:
    """The schemas that a registry has now. Immutable."""

    ids: Int64s
    """Sorted."""
    guids: Int64s
    """One row for each GUID: its halves as signed numbers, sorted."""

    @classmethod
    def of(cls, ids: Iterable[int], guids: Iterable[bytes]) -> KnownSchemas:
        """Return the schemas with these ids and GUIDs of 16 bytes each."""
        halves = sorted(
            (
                int.from_bytes(one[:8], "big", signed=True),
                int.from_bytes(one[8:], "big", signed=True),
            )
            for one in guids
        )
        return cls(
            np.array(sorted(ids), np.int64), np.array(halves, np.int64).reshape(len(halves), 2)
        )


NO_SCHEMAS: Final = KnownSchemas.of((), ())


class SchemaFaults(NamedTuple):
    """The records of a batch that are at fault."""

    of_records: Bytes
    """For each record 0, or a key of FAULTS."""
    refused: int
    first_unknown: str | None
    """The first schema that is not known; None if the faults are others."""


def find_faults(
    header: BatchHeader,
    data: BytesLike,
    first_byte: int,
    known: KnownSchemas,
    *,
    values: bool,
    keys: bool,
) -> SchemaFaults | None:
    """Return the records without a known schema, or None if each has one.

    Args:
        header: the batch's.
        data: decompressed records in which a survey found no fault.
        first_byte: their start in `data`.
        known: the schemas that a record may have.
        values: look at values.
        keys: look at keys.
    """
    kernels = _kernels()
    faults = np.zeros(header.record_count, np.uint8)
    summary = np.zeros(kernels.SUMMARY, np.int64)
    count = kernels.find_schemas(
        np.frombuffer(data, np.uint8),
        first_byte,
        kernels.VALUES * values | kernels.KEYS * keys,
        known.ids,
        known.guids,
        faults,
        summary,
    )
    assert count >= 0, "a survey went before"
    if not count:
        return None
    _, kind, high, low = summary.tolist()
    first = None
    if kind == kernels.ID:
        first = f"id {high}"
    elif kind == kernels.GUID:
        halves = (part.to_bytes(8, "big", signed=True) for part in (high, low))
        first = f"GUID {UUID(bytes=b''.join(halves))}"
    return SchemaFaults(faults, count, first)


@cache
def _kernels() -> ModuleType:
    """Load numba and the machine code on first use, as `record_survey` does."""
    from sparklog.protocol.records import schema_kernels  # noqa: PLC0415 - see above

    return schema_kernels
