"""Numbers out of a client's metrics: a bounded reader of OpenTelemetry's MetricsData message.

Clients push this message (KIP-714). Only what a broker shows is read: the name, the attributes and
the value of each data point of gauges and sums. Other fields are skipped by their size, so neither
depth nor length of what a client sends costs more than a pass over its bytes.

Source: opentelemetry/proto/metrics/v1/metrics.proto; Protocol Buffers, encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sparklog.core.errors import InvalidRequest

POINTS_MAX: Final = 500
"""Data points read of one message; a client of librdkafka pushes some 20, Java's some 100."""
NAME_CHARS_MAX: Final = 200
ATTRIBUTES_MAX: Final = 8
TEXT_CHARS_MAX: Final = 20_000
"""Characters of all names and attributes of one message that are kept."""

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_GAUGE, _SUM = 5, 7
_AS_DOUBLE, _AS_INT, _ATTRIBUTES = 4, 6, 7

Field = tuple[int, int, int | memoryview]
"""Number, wire type, and the value: a number, or the bytes."""


class InvalidTelemetry(InvalidRequest):
    """The bytes are no MetricsData message."""

    kafka_code = 87


@dataclass(frozen=True, slots=True)
class ClientMetric:
    """One number of a client."""

    name: str
    """Such as `org.apache.kafka.producer.record.queue.time.avg`."""
    attributes: tuple[tuple[str, str], ...]
    value: float

    @property
    def chars(self) -> int:
        """Return the characters of its name and attributes."""
        return len(self.name) + sum(len(key) + len(value) for key, value in self.attributes)


def read_metrics(data: bytes) -> list[ClientMetric]:
    """Return the first data points of gauges and sums: `POINTS_MAX`, of `TEXT_CHARS_MAX` in all.

    Raises:
        InvalidTelemetry: the bytes are no such message.
    """
    try:
        found: list[ClientMetric] = []
        left = TEXT_CHARS_MAX
        for resource in _messages(memoryview(data), 1):
            for scope in _messages(resource, 2):
                for metric in _messages(scope, 2):
                    for point in _points(metric):
                        left -= point.chars
                        if len(found) == POINTS_MAX or left < 0:
                            return found
                        found.append(point)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise InvalidTelemetry(f"metrics cannot be read. problem={error!r}") from error
    return found


def _points(metric: memoryview) -> Iterator[ClientMetric]:
    fields = list(_fields(metric))
    name = "".join(_text(value) for number, _, value in fields if number == 1)
    for number, _, value in fields:
        if number in (_GAUGE, _SUM) and isinstance(value, memoryview):
            for point in _messages(value, 1):
                yield _point(name, point)


def _point(name: str, data: memoryview) -> ClientMetric:
    value = 0.0
    attributes: list[tuple[str, str]] = []
    for number, kind, field in _fields(data):
        if number == _AS_DOUBLE and kind == _FIXED64 and isinstance(field, memoryview):
            (value,) = struct.unpack("<d", field)
        elif number == _AS_INT and kind == _FIXED64 and isinstance(field, memoryview):
            value = float(struct.unpack("<q", field)[0])
        elif (
            number == _ATTRIBUTES
            and isinstance(field, memoryview)
            and len(attributes) < ATTRIBUTES_MAX
        ):
            attributes.append(_attribute(field))
    return ClientMetric(name, tuple(sorted(attributes)), value)


def _attribute(data: memoryview) -> tuple[str, str]:
    key, value = "", ""
    for number, _, field in _fields(data):
        if number == 1:
            key = _text(field)
        elif number == 2 and isinstance(field, memoryview):
            value = "".join(_shown(inner) for _, kind, inner in _fields(field) if kind != _FIXED64)
    return key, value


def _shown(value: int | memoryview) -> str:
    return str(value) if isinstance(value, int) else _text(value)


def _text(value: int | memoryview) -> str:
    return (
        "" if isinstance(value, int) else bytes(value[:NAME_CHARS_MAX]).decode("utf-8", "replace")
    )


def _messages(data: memoryview, wanted: int) -> Iterator[memoryview]:
    """Yield the messages in a field."""
    for number, _, value in _fields(data):
        if number == wanted and isinstance(value, memoryview):
            yield value


def _fields(data: memoryview) -> Iterator[Field]:
    """Yield the fields of a message.

    Raises:
        InvalidTelemetry: a field ends beyond its message, or has an unknown wire type.
    """
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield number, kind, value
            continue
        if kind == _LENGTH:
            size, at = _varint(data, at)
        else:
            size = {_FIXED64: 8, _FIXED32: 4}.get(kind, -1)
        if size < 0 or at + size > len(data):
            raise InvalidTelemetry(f"metrics are cut off, or no message. at={at} size={size}")
        yield number, kind, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise InvalidTelemetry(f"a number in metrics is too long. at={at}")
