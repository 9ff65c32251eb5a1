"""Record schemas: versions of one dataclass, and rejection of malformed bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

import pytest

from sparklog.coordinator.record_codec import RecordSchema, version_of
from sparklog.core.errors import DataCorrupt
from sparklog.protocol.messages.decoder import ELEMENTS_MAX
from sparklog.protocol.messages.schema import FieldVersions, Int8, Int32, Tagged


@dataclass(frozen=True, slots=True)
class Part:
    number: Int32
    rack: Annotated[str | None, FieldVersions(1)]


@dataclass(frozen=True, slots=True)
class Example:
    name: str
    old: Annotated[Int8, FieldVersions(0, 0, absent=9)]
    parts: tuple[Part, ...] | None
    hint: Annotated[Int32, Tagged(7, since=2)] = -1


@dataclass(frozen=True, slots=True)
class Numbers:
    numbers: tuple[Int8, ...]


EXAMPLE: Final = RecordSchema(Example, "an example", range(3), 2)


@pytest.mark.parametrize(
    ("value", "version", "data", "found"),
    [
        (
            Example("n", 4, (Part(5, "r"),), 8),
            0,
            "0000 0001 6e 04 00000001 00000005",
            Example("n", 4, (Part(5, None),)),
        ),
        (
            Example("n", 4, (Part(5, "r"),), 8),
            1,
            "0001 0001 6e 00000001 00000005 0001 72",
            Example("n", 9, (Part(5, "r"),)),
        ),
        (Example("n", 4, None, 8), 2, "0002 02 6e 00 01 07 04 00000008", Example("n", 9, None, 8)),
        (Example("n", 4, None), 2, "0002 02 6e 00 00", Example("n", 9, None)),
    ],
)
def test_each_version_has_its_own_fields(
    value: Example, version: int, data: str, found: Example
) -> None:
    assert EXAMPLE.encode(value, version) == bytes.fromhex(data)
    assert EXAMPLE.decode(bytes.fromhex(data)) == found


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("00", "it ends too early"),
        ("0003 02 6e 00 00", "version 3 is unknown"),
        ("ffff", "version -1 is unknown"),
        ("0002 02 6e 00 00 00", "bytes are left over"),
        ("0002 00 00 00", "ends before its field"),
        ("0002 02 6e ffffffff0f 00", "longer than its message"),
        ("0002 02 6e 00 01 07 03 000000", "ends before its field"),
        ("0001 0001 ff ffffffff", "not UTF-8"),
    ],
)
def test_malformed_record_is_rejected_with_its_name_and_the_reason(data: str, why: str) -> None:
    with pytest.raises(DataCorrupt, match=rf"record=\(an example\) because=\(.*{why}|{why}"):
        EXAMPLE.decode(bytes.fromhex(data))


def test_version_of_reads_the_first_two_bytes() -> None:
    assert version_of(bytes.fromhex("000a 00")) == 10


def test_record_may_have_more_elements_than_a_message() -> None:
    schema = RecordSchema(Numbers, "numbers", (0,), 0)
    value = Numbers((1,) * (ELEMENTS_MAX + 1))
    assert schema.decode(schema.encode(value, 0)) == value
