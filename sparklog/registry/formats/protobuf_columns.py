"""Messages of Protobuf as Arrow columns, with the types that a descriptor gives them.

Google's library parses each message. After that a field is taken from all messages at once, so no
Python code runs for a value but the look at a field. A message that holds itself, one without
fields, and `google.protobuf.Struct` become texts of JSON. Enums become the names of their values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from sparklog.registry.model.refusal import invalid_schema

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

FIELDS_MAX: Final = 2_000
"""Fields of a message, those of messages in it counted."""
ITEMS_MAX: Final = 1 << 20
"""Messages in one list of a value; each may take two bytes only."""
BYTES_AT_ONCE: Final = 4 << 20
"""Payloads whose messages are in memory together; a larger one is alone."""
REASON_LENGTH_MAX: Final = 300
_MICROS: Final = 1_000_000
_FIRST_MICRO: Final = -62_135_596_800 * _MICROS
_LAST_MICRO: Final = 253_402_300_800 * _MICROS - 1
"""The years that Protobuf's timestamps have, 1 to 9999."""
_AS_JSON: Final = frozenset({"google.protobuf.Struct", "google.protobuf.Value",
                             "google.protobuf.ListValue"})  # fmt: skip
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
)
_MISFITS: Final = (pa.ArrowException, ValueError, OverflowError, RecursionError)

Made = Callable[[list[Any]], pa.Array]
"""Makes a column of values; None stands for no value."""


class MessageColumns:
    """Reads the messages of one type."""

    def __init__(self, descriptor: Descriptor) -> None:
        """Read messages of `descriptor`.

        Raises:
            RegistryRefused: it has no fields, or too many.
        """
        from google.protobuf import message_factory  # noqa: PLC0415 - of the extra `registry`

        if not descriptor.fields:
            raise invalid_schema(f"Protobuf: a message without fields: {descriptor.full_name}")
        self._message = message_factory.GetMessageClass(descriptor)
        self.type, self._made = _ColumnTypes().struct(descriptor, ())

    def read(self, payloads: Sequence[bytes | None]) -> tuple[pa.Array, list[str | None]]:
        """Return a struct for each payload, and the reason of each that is no such message.

        The struct of such a payload is null, and so is that of None, which has no reason.
        """
        found: list[pa.Array] = []
        reasons: list[str | None] = [None] * len(payloads)
        for span in _spans(payloads):
            messages: list[Any] = []
            for row in span:
                payload = payloads[row]
                message = None
                if payload is not None:
                    try:
                        message = self._message.FromString(payload)
                    except Exception as error:  # a library's, for bytes from outside
                        reasons[row] = f"{type(error).__name__}: {error}"[:REASON_LENGTH_MAX]
                messages.append(message)
            found += self._structs(messages, reasons, span.start)
        return pa.concat_arrays(found) if found else self._made([]), reasons

    def _structs(
        self, messages: list[Any], reasons: list[str | None], start: int
    ) -> Iterator[pa.Array]:
        """Yield the structs; halve messages of which some does not fit, until it is alone."""
        try:
            made = self._made(messages)
        except _MISFITS as error:
            if len(messages) == 1:
                reasons[start] = f"a field does not fit: {error}"[:REASON_LENGTH_MAX]
                yield self._made([None])
                return
        else:
            yield made
            return
        half = len(messages) // 2
        yield from self._structs(messages[:half], reasons, start)
        yield from self._structs(messages[half:], reasons, start + half)


def _spans(payloads: Sequence[bytes | None]) -> Iterator[range]:
    start = size = 0
    for row, payload in enumerate(payloads):
        length = len(payload or b"")
        if row > start and size + length > BYTES_AT_ONCE:
            yield range(start, row)
            start, size = row, 0
        size += length
    if start < len(payloads):
        yield range(start, len(payloads))


class _ColumnTypes:
    """The types of fields, counted."""

    def __init__(self) -> None:
        self._fields = 0

    def struct(self, descriptor: Descriptor, outer: tuple[str, ...]) -> tuple[pa.DataType, Made]:
        """Return the type of a message, and a function that makes it of messages."""
        outer = (*outer, descriptor.full_name)
        parts: list[tuple[pa.Field, Made]] = []
        for field in descriptor.fields:
            self._fields += 1
            if self._fields > FIELDS_MAX:
                raise invalid_schema(f"Protobuf: more than {FIELDS_MAX} fields, nested ones too")
            kind, made = self._field(field, outer)
            parts.append((pa.field(field.name, kind), made))
        fields = [field for field, _ in parts]

        def made_structs(messages: list[Any]) -> pa.Array:
            columns = [made(messages) for _, made in parts]
            mask = pa.array([message is None for message in messages], pa.bool_())
            return pa.StructArray.from_arrays(columns, fields=fields, mask=mask)

        return pa.struct(fields), made_structs

    def _field(self, field: FieldDescriptor, outer: tuple[str, ...]) -> tuple[pa.DataType, Made]:
        name = field.name
        if _is_map(field):
            return self._map(field, outer)
        kind, made = self._one(field, outer)
        if field.is_repeated:
            item = pa.field("element", kind)

            def made_lists(messages: list[Any]) -> pa.Array:
                lists = [() if one is None else getattr(one, name) for one in messages]
                return pa.ListArray.from_arrays(
                    _offsets(lists, of_messages=field.message_type is not None),
                    made(list(chain.from_iterable(lists))),
                    type=pa.list_(item),
                )

            return pa.list_(item), made_lists
        if field.has_presence:
            return kind, lambda messages: made(
                [
                    getattr(one, name) if one is not None and one.HasField(name) else None
                    for one in messages
                ]
            )
        return kind, lambda messages: made(
            [None if one is None else getattr(one, name) for one in messages]
        )

    def _map(self, field: FieldDescriptor, outer: tuple[str, ...]) -> tuple[pa.DataType, Made]:
        name, entry = field.name, field.message_type
        key_type, made_keys = self._one(entry.fields_by_name["key"], outer)
        value_type, made_values = self._one(entry.fields_by_name["value"], outer)
        kind = pa.map_(key_type, value_type)

        def made_maps(messages: list[Any]) -> pa.Array:
            maps: list[Mapping[Any, Any]] = [
                {} if one is None else getattr(one, name) for one in messages
            ]
            offsets = _offsets(maps, of_messages=True)
            keys = made_keys([key for one in maps for key in one])
            values = made_values([one[key] for one in maps for key in one])
            return pa.MapArray.from_arrays(offsets, keys, values).cast(kind)

        return kind, made_maps

    def _one(self, field: FieldDescriptor, outer: tuple[str, ...]) -> tuple[pa.DataType, Made]:
        """Return the type of one value of a field."""
        message = field.message_type
        if message is None:
            return _scalar(field)
        if message.full_name == _TIMESTAMP:
            return _INSTANT, _made_instants
        if message.full_name in _WRAPPERS:
            kind, made = _scalar(message.fields_by_name["value"])
            return kind, lambda found: made([None if one is None else one.value for one in found])
        if message.full_name in (*_AS_JSON, *outer) or not message.fields:
            return pa.string(), _made_json
        return self.struct(message, outer)


def _is_map(field: FieldDescriptor) -> bool:
    message = field.message_type
    return bool(field.is_repeated and message and message.GetOptions().map_entry)


def _offsets(lists: Sequence[Any], *, of_messages: bool) -> pa.Array:
    ends = np.cumsum([0, *map(len, lists)])
    if of_messages and ends[-1] > ITEMS_MAX:
        raise ValueError(f"more than {ITEMS_MAX} messages in lists")
    return pa.array(ends, pa.int32())


def _scalar(field: FieldDescriptor) -> tuple[pa.DataType, Made]:
    if field.enum_type is not None:
        names = {number: one.name for number, one in field.enum_type.values_by_number.items()}
        return pa.string(), lambda found: pa.array(
            [None if one is None else names.get(one, str(one)) for one in found], pa.string()
        )
    kind = _TYPES[field.type]
    return kind, lambda found: pa.array(found, kind)


def _made_instants(found: list[Any]) -> pa.Array:
    micros = [None if one is None else one.seconds * _MICROS + one.nanos // 1000 for one in found]
    if any(one is not None and not _FIRST_MICRO <= one <= _LAST_MICRO for one in micros):
        raise ValueError("a timestamp is outside the years 1 to 9999")
    return pa.array(micros, pa.int64()).cast(_INSTANT)


def _made_json(found: list[Any]) -> pa.Array:
    from google.protobuf import json_format  # noqa: PLC0415 - of the extra `registry`

    return pa.array(
        [
            None if one is None
            else json_format.MessageToJson(one, preserving_proto_field_name=True, indent=None)
            for one in found
        ],
        pa.string(),
    )  # fmt: skip


_INSTANT: Final = pa.timestamp("us", tz="UTC")
_WIDE: Final = pa.decimal128(20, 0)
"""Of unsigned numbers of 64 bits; Spark has none."""
_TYPES: Final[Mapping[int, pa.DataType]] = {
    # Numbers of `FieldDescriptorProto.Type`.
    1: pa.float64(), 2: pa.float32(), 3: pa.int64(), 4: _WIDE, 5: pa.int32(), 6: _WIDE,
    7: pa.int64(), 8: pa.bool_(), 9: pa.string(), 12: pa.binary(), 13: pa.int64(),
    15: pa.int32(), 16: pa.int64(), 17: pa.int32(), 18: pa.int64(),
}  # fmt: skip
