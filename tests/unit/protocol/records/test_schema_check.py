"""The compiled look-up of schemas: the same answer as the Arrow kernels of readers."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.protocol.records.columns import RECORDS_SCHEMA
from sparklog.protocol.records.encoder import BatchSettings, encode
from sparklog.protocol.records.header import HEADER_BYTES, parse_header
from sparklog.protocol.records.schema_check import KnownSchemas, find_faults
from sparklog.registry.wire_format import KEY_HEADER, VALUE_HEADER, split_values

IDS = (1, 300, 70_000)
GUIDS = tuple(UUID(int=n << 3).bytes for n in (5, 1 << 63, 2**124))
KNOWN = KnownSchemas.of(IDS, GUIDS)

prefixes = st.sampled_from([0, *IDS, 301, 2**31, 2**32 - 1]).map(
    lambda number: b"\0" + number.to_bytes(4, "big")
)
guids = st.sampled_from([*GUIDS, UUID(int=6).bytes, b"\xff" * 16]).map(lambda one: b"\1" + one)
fields = (
    st.none() | st.binary(max_size=7) | st.builds(bytes.__add__, prefixes, st.binary(max_size=3))
)
headers = st.lists(
    st.builds(
        lambda key, value: {"key": key, "value": value},
        st.sampled_from([KEY_HEADER, VALUE_HEADER, "other", ""]),
        st.none() | st.binary(max_size=4) | prefixes | guids | guids.map(lambda one: one + b"\2"),
    ),
    max_size=3,
)
rows = st.lists(st.tuples(fields, fields, headers), min_size=1, max_size=8)


def expected(column: pa.Array, headers: pa.Array, name: str) -> list[int]:
    split = split_values(column, headers, name=name)
    found = []
    for place, is_valid in zip(split.places.tolist(), column.is_valid().to_pylist(), strict=True):
        schema: Any = split.schemas[place][0] if place >= 0 else None
        guid_or_id = UUID(schema).bytes if isinstance(schema, str) else schema
        known = guid_or_id in IDS or guid_or_id in GUIDS
        found.append(0 if not is_valid or known else 1 if schema is None else 2)
    return found


@settings(deadline=None)
@given(rows, st.sampled_from([(True, False), (False, True), (True, True)]))
def test_records_have_the_schemas_of_the_arrow_kernels(
    records: list[tuple[Any, Any, Any]], sides: tuple[bool, bool]
) -> None:
    keys, values, named = (list(column) for column in zip(*records, strict=True))
    table = pa.record_batch(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array(named, RECORDS_SCHEMA.field("headers").type),
        }
    )
    data = bytes(encode(table, BatchSettings(), base_offset=0))
    header = parse_header(data)
    of_values = expected(table.column("value"), table.column("headers"), VALUE_HEADER)
    of_keys = expected(table.column("key"), table.column("headers"), KEY_HEADER)
    wanted = [
        value if sides[0] and value else key + 2 if sides[1] and key else 0
        for value, key in zip(of_values, of_keys, strict=True)
    ]
    found = find_faults(header, data, HEADER_BYTES, KNOWN, values=sides[0], keys=sides[1])
    if not any(wanted):
        assert found is None
        return
    assert found is not None
    assert found.of_records.tolist() == wanted
    assert found.refused == sum(map(bool, wanted))
    assert (found.first_unknown is not None) == bool({2, 4} & set(wanted))


def test_the_first_unknown_schema_is_named() -> None:
    for value, headers, name in (
        (b"\0\0\0\0\x63x", [], "id 99"),
        (
            b"x",
            [{"key": VALUE_HEADER, "value": b"\1" + b"\xff" * 16}],
            f"GUID {UUID(int=2**128 - 1)}",
        ),
    ):
        table = pa.record_batch(
            {
                "value": pa.array([value], pa.binary()),
                "headers": pa.array([headers], RECORDS_SCHEMA.field("headers").type),
            }
        )
        data = bytes(encode(table, BatchSettings(), base_offset=0))
        found = find_faults(parse_header(data), data, HEADER_BYTES, KNOWN, values=True, keys=False)
        assert found is not None
        assert found.first_unknown == name
