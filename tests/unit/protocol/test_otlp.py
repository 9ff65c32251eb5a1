"""The reader of clients' metrics against bytes built by hand, cut off, and at random."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.protocol.otlp import (
    NAME_CHARS_MAX,
    POINTS_MAX,
    TEXT_CHARS_MAX,
    ClientMetric,
    InvalidTelemetry,
    read_metrics,
)

GAUGE, SUM, HISTOGRAM = 5, 7, 9


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def part(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def attribute(key: str, value: str) -> bytes:
    return part(7, part(1, key.encode()) + part(2, part(1, value.encode())))


def point(value: float, *attributes: bytes) -> bytes:
    timestamp = varint(3 << 3 | 1) + struct.pack("<Q", 1_700_000_000)
    kind, code = (6, "<q") if isinstance(value, int) else (4, "<d")
    return part(
        1, timestamp + varint(kind << 3 | 1) + struct.pack(code, value) + b"".join(attributes)
    )


def metric(name: str, points: bytes, kind: int = GAUGE) -> bytes:
    return part(2, part(1, name.encode()) + part(3, b"ms") + part(kind, points))


def message(*metrics: bytes) -> bytes:
    resource = part(1, attribute("client_rack", "a"))
    return part(1, resource + part(2, part(1, b"") + b"".join(metrics)))


def test_gauges_and_sums_are_read_with_their_attributes() -> None:
    found = read_metrics(
        message(
            metric("producer.latency", point(1.5, attribute("node", "1"), attribute("a", "ü"))),
            metric("producer.records", point(-7) + point(8), SUM),
            metric("producer.histogram", point(3), HISTOGRAM),
        )
    )
    assert found == [
        ClientMetric("producer.latency", (("a", "ü"), ("node", "1")), 1.5),
        ClientMetric("producer.records", (), -7.0),
        ClientMetric("producer.records", (), 8.0),
    ]
    assert read_metrics(b"") == []


def test_a_message_with_too_many_points_is_read_in_part() -> None:
    assert len(read_metrics(message(metric("m", point(1) * (POINTS_MAX + 9))))) == POINTS_MAX


def test_a_message_with_too_much_text_is_read_in_part() -> None:
    long = attribute("k" * NAME_CHARS_MAX, "v" * (NAME_CHARS_MAX + 50))
    found = read_metrics(message(metric("m" * 500, point(1, long) * 100)))
    assert {one.chars for one in found} == {3 * NAME_CHARS_MAX}
    assert len(found) == TEXT_CHARS_MAX // (3 * NAME_CHARS_MAX)


@pytest.mark.parametrize(
    "data", [b"\x0a\x05ab", b"\x0a", b"\x0b", b"\x0a" + b"\xff" * 11, b"\x0a\xff\xff\xff\xff\x0f"]
)
def test_bytes_that_are_no_message_are_rejected(data: bytes) -> None:
    with pytest.raises(InvalidTelemetry):
        read_metrics(data)


@given(st.binary(max_size=200), st.integers(0, 100))
def test_damaged_metrics_are_rejected_or_read(noise: bytes, at: int) -> None:
    whole = message(metric("producer.latency", point(1.5, attribute("node", "1"))))
    try:
        read_metrics(whole[:at] + noise + whole[at:])
    except InvalidTelemetry:
        pass
