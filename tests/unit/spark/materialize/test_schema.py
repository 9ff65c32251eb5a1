"""Columns of a materialised table: nothing collides, nothing narrows, nothing is lost silently."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from sparklog.core.errors import InvalidRequest
from sparklog.spark.materialize.schema import (
    FIELDS_MAX,
    RECORD_COLUMNS,
    column_of,
    grown,
    merged_given,
    needed_properties,
    value_fields,
)

INT, LONG, DOUBLE, STRING = IntegerType(), LongType(), DoubleType(), StringType()


def struct(**fields: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


@given(st.text(alphabet="_keyoffstparinmhdKEY", max_size=14), st.text(max_size=8))
def test_each_field_has_a_column_that_no_other_field_or_record_has(a: str, b: str) -> None:
    assert column_of(a) not in RECORD_COLUMNS
    assert (column_of(a) == column_of(b)) == (a == b)


@pytest.mark.parametrize("name", ["_offset", "__offset", "_OFFSET", "offset", "_other", "_date"])
def test_column_names_its_field(name: str) -> None:
    table = struct(_key=STRING, **{column_of(name): LONG})
    assert value_fields(table) == struct(**{name: LONG})


def test_new_fields_are_added_at_every_depth_and_known_types_stay() -> None:
    known = struct(a=LONG, s=struct(x=LONG), l=ArrayType(struct(p=STRING)))
    seen = struct(a=STRING, s=struct(y=DOUBLE), l=ArrayType(struct(q=LONG)), n=DOUBLE)
    assert grown(known, seen).schema == struct(
        a=LONG, s=struct(x=LONG, y=DOUBLE), l=ArrayType(struct(p=STRING, q=LONG)), n=DOUBLE
    )


def test_a_field_that_differs_in_case_only_is_no_column_and_is_named() -> None:
    known = struct(a=LONG, s=struct(x=LONG))
    seen = struct(A=LONG, s=struct(X=LONG), n=ArrayType(struct(p=LONG, P=LONG)))
    growth = grown(known, seen)
    assert growth.schema == struct(a=LONG, s=struct(x=LONG), n=ArrayType(struct(p=LONG)))
    assert growth.clashes == ('$["A"]', '$["s"]["X"]', '$["n"]')


def test_fields_named_by_data_are_refused() -> None:
    seen = struct(ids=struct(**{f"id{n}": LONG for n in range(FIELDS_MAX)}))
    with pytest.raises(InvalidRequest, match="--schema"):
        grown(struct(), seen)


def test_given_types_may_widen_a_column_and_never_narrow_it() -> None:
    known = struct(a=INT, b=LONG, gone=STRING)
    assert merged_given(known, struct(a=LONG, b=INT, c=STRING)) == struct(a=LONG, b=LONG, c=STRING)
    with pytest.raises(InvalidRequest, match="field=b column=bigint given=string"):
        merged_given(known, struct(b=STRING))
    with pytest.raises(InvalidRequest, match="column=a"):
        merged_given(known, struct(A=INT))


def test_reader_properties_are_set_only_when_needed() -> None:
    known = struct(a=INT, s=struct(x=INT))
    assert needed_properties(known, struct(a=INT, b=STRING)) == {}
    assert needed_properties(known, struct(s=struct(x=LONG))) == {
        "delta.enableTypeWidening": "true"
    }
    assert needed_properties(known, struct(**{"first name": STRING})) == {
        "delta.columnMapping.mode": "name"
    }
