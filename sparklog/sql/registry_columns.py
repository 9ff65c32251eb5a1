"""The columns of `registry.topic` and `bare.topic`: fields of values that have schemas.

Each value carries the id of a schema, or all have one schema, which the rules of the query name.
The decoded columns have numbers as names, `f0` and on. A scan reads its filter as text, and the
name of a field may be anything. A view gives them their names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.core.errors import InvalidRequest
from sparklog.core.types import TopicPartition
from sparklog.registry.decoder import ValueDecoder
from sparklog.registry.wire_format import KEY_HEADER
from sparklog.sql.columns import SCHEMA, TIMESTAMP_US, stored_columns
from sparklog.sql.filters import Condition, Interval, keys_of, may_match
from sparklog.sql.record_scan import table_batch
from sparklog.sql.registry_fields import Fields, field_column, values_of_field
from sparklog.sql.table_columns import Fill, TopicColumns

DECODED_KEY: Final = "decoded_key"
DECODE_ERROR: Final = "decode_error"


class DecodedColumns(TopicColumns):
    """The columns of `registry.topic` or `bare.topic`."""

    def __init__(
        self,
        table: str,
        fields: Fields,
        decoder: Callable[[], ValueDecoder],
        *,
        strict: bool,
        has_keys: bool = True,
    ) -> None:
        """Decode by what `decoder` makes.

        Args:
            table: the view with its schema, for errors: `registry.orders`.
            fields: their names and types.
            decoder: makes a decoder, for one thread.
            strict: fail at a value that does not decode; else its fields are null.
            has_keys: keys carry ids, too.
        """
        self.table = table
        self.fields = fields
        self.strict = strict
        self.has_keys = has_keys
        self._decoder = decoder
        self.names: Mapping[str, str] = {f"f{number}": name for number, name in enumerate(fields)}
        """The field of each column."""
        decoded = [pa.field(column, fields[name].type) for column, name in self.names.items()]
        if has_keys:
            decoded.append(pa.field(DECODED_KEY, pa.string()))
        self.schema = pa.schema([*SCHEMA, *decoded, pa.field(DECODE_ERROR, pa.string())])

    def stored(self, names: Sequence[str]) -> list[str]:
        """Return the columns of the log that are read for some of the table."""
        wanted = set(names)
        decoded = wanted - set(SCHEMA.names)
        if decoded:
            wanted |= {"offset", "headers"}
        if decoded - {DECODED_KEY}:
            wanted.add("value")
        if DECODED_KEY in decoded:
            wanted.add("key")
        return stored_columns(wanted)

    def fill(self) -> Fill:
        """Return what makes batches, with decoders of its own."""
        return _RegistryFill(self, self._decoder()).batch


@dataclass(slots=True)
class _RegistryFill:
    columns: DecodedColumns
    decoder: ValueDecoder

    def batch(
        self,
        rows: pa.RecordBatch,
        place: TopicPartition,
        names: Sequence[str],
        condition: Condition,
    ) -> pa.RecordBatch:
        """Return the batch. Raises InvalidRequest: a value does not decode, and is to."""
        plain = [name for name in names if name in SCHEMA.names]
        if len(plain) == len(names):
            return table_batch(rows, place, names)
        rows = _with_keys(rows, place, condition)
        columns: dict[str, pa.Array] = dict(
            zip(plain, table_batch(rows, place, plain).columns, strict=True)
        )
        if DECODED_KEY in names:
            texts, _ = self.decoder.json_texts(
                rows.column("key"), rows.column("headers"), name=KEY_HEADER
            )
            columns[DECODED_KEY] = texts
        fields = [name for name in names if name in self.columns.names]
        if fields or DECODE_ERROR in names:
            reasons = self._decode(rows, fields, columns)
            if self.columns.strict and fields:
                self._check(reasons, rows, place, condition)
            columns[DECODE_ERROR] = pa.array(reasons, pa.string())
        return pa.RecordBatch.from_arrays(
            [columns[name] for name in names],
            schema=pa.schema([self.columns.schema.field(name) for name in names]),
        )

    def _decode(
        self, rows: pa.RecordBatch, fields: Sequence[str], columns: dict[str, pa.Array]
    ) -> list[str | None]:
        """Add the columns of fields; return the reason of each row that does not decode."""
        decoded, reasons = self.decoder.values(rows.column("value"), rows.column("headers"))
        for column in fields:
            name = self.columns.names[column]

            def failed(row: int, why: str, name: str = name) -> None:
                reasons[row] = reasons[row] or f"{name}: {why}"

            values = values_of_field(name, decoded)
            columns[column] = field_column(self.columns.fields[name], values, failed)
        return reasons

    def _check(
        self,
        reasons: Sequence[str | None],
        rows: pa.RecordBatch,
        place: TopicPartition,
        condition: Condition,
    ) -> None:
        """Raise InvalidRequest for a value that does not decode, if its row may be wanted."""
        for row, reason in enumerate(reasons):
            if reason is not None and may_match(condition, _known_of(rows, row, place)):
                raise InvalidRequest(
                    f"a value of {self.columns.table} does not decode. "
                    f"partition={place.partition} offset={rows.column('offset')[row]} "
                    f"reason={reason}"
                )


def _with_keys(rows: pa.RecordBatch, place: TopicPartition, condition: Condition) -> pa.RecordBatch:
    """Leave out rows whose key cannot match, before they are decoded."""
    known = {"partition": Interval(place.partition, place.partition)}
    keys = keys_of(condition, known)
    if keys is None or "key" not in rows.schema.names:
        return rows
    return rows.filter(pc.is_in(rows.column("key"), pa.array(sorted(keys), pa.binary())))


def _known_of(rows: pa.RecordBatch, row: int, place: TopicPartition) -> dict[str, Interval]:
    found = {"partition": Interval(place.partition, place.partition)}
    offset: Any = rows.column("offset")[row].as_py()
    found["offset"] = Interval(offset, offset)
    if "timestamp" in rows.schema.names:
        at = rows.column("timestamp")[row].cast(TIMESTAMP_US).value
        found["timestamp"] = Interval(at, at)
    return found
