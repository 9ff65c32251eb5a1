"""Values that become rows of a table, and the reasons for the others."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from sparklog.spark.materialize.commit import UPSERT, Values
from sparklog.spark.materialize.rows import (
    BAD,
    classified,
    given_fields,
    rejected_rows,
    seen_fields,
    table_rows,
)

FIELDS = "a BIGINT, s STRUCT<x: DOUBLE>, t STRING"
NO_OBJECT = "the value is not a JSON object"
NOT_ONE = "the value is not one JSON document"
TOO_DEEP = "the value is nested too deep"
NAMELESS = "a field has an empty name"
OTHER_CASE = "a column differs from a field in case only"

REASONS: dict[bytes | None, str | None] = {
    b'{"a": 1, "s": {"x": 1}, "t": "text", "unknown": 1}': None,
    b'\n {"a": null} \t': None,
    b"{}": None,
    None: None,
    b'{"t": {"any": [1]}}': None,  # a string takes everything, as its text
    b'{"a": 1.5}': "a field does not fit its column: a bigint",
    b'{"a": 99999999999999999999}': "a field does not fit its column: a bigint",
    b'{"s": 5}': "a field does not fit its column: s struct<x:double>",
    b'{"s": {"x": "one"}}': "a field within a field does not fit its column",
    b"{'a': 2}": "the value is not JSON",
    b'{"a": 1}{"a": 2}': NOT_ONE,
    b'{"a": 1}\n{"a": 2}\n': NOT_ONE,
    b'{"t": ' + b"[" * 600 + b"]" * 600 + b"}": TOO_DEEP,
    b'{"t": ' + b"[" * 63 + b"]" * 63 + b"}": None,
    b'{"t": "' + b"[" * 600 + b'"}': None,  # brackets in a string nest nothing
    b"""{'"': """ + b"[" * 600 + b"]" * 600 + b""", '"': 1}""": "the value is not JSON",
    b'{"": 1}': NAMELESS,
    b'{"s": {"" : 1}}': NAMELESS,
    b'{"t": "", "a": 3}': None,
    b'{"t": "\\"\\":", "a": 4}': None,
    b'{"A": 1}': OTHER_CASE,
    b'{"s": {"X": 1}}': OTHER_CASE,
    b"{bad}": NOT_ONE,
    b"{bad": NO_OBJECT,
    b"": NO_OBJECT,
    b"null": NO_OBJECT,
    b"5": NO_OBJECT,
    b'[{"a": 1}]': NO_OBJECT,
    b'{"a": 1} and more': NO_OBJECT,
    b'{"t": "\xff"}': NO_OBJECT,
}


def records(spark: SparkSession, *values: bytes | None) -> DataFrame:
    rows = [(b"k", value, 0, at) for at, value in enumerate(values)]
    frame = spark.createDataFrame(rows, "key BINARY, value BINARY, partition INT, offset BIGINT")
    return frame.selectExpr("*", "timestamp_millis(offset) AS timestamp")


def test_values_that_do_not_fit_are_reported_with_their_reason(spark: SparkSession) -> None:
    values = Values(schema=given_fields(FIELDS).json())
    found = classified(records(spark, *REASONS), values, "append").cache()
    bad = rejected_rows(found.where(BAD), values, "t", "append").collect()
    reasons = {None if row.value is None else bytes(row.value): row.reason for row in bad}
    assert reasons == {value: reason for value, reason in REASONS.items() if reason}
    good = table_rows(found.where(f"NOT {BAD}"), values, StructType([]), dated=True)
    assert good.columns == ["_key", "_partition", "_offset", "_timestamp", "_date", "a", "s", "t"]
    kept = good.orderBy("_offset").select("a", "s.x", "t").collect()
    assert [tuple(row) for row in kept] == [
        (1, 1.0, "text"),
        (None, None, None),
        (None, None, None),
        (None, None, None),
        (None, None, '{"any":[1]}'),
        (None, None, "[" * 63 + "]" * 63),
        (None, None, "[" * 600),
        (3, None, ""),
        (4, None, '"":'),
    ]


def test_rows_with_fields_that_differ_in_case_only_are_parked(
    spark: SparkSession,
) -> None:
    known = given_fields("id BIGINT")
    rows = records(
        spark, b'{"id": 1, "new": {"p": 1}}', b'{"ID": 2}', b'{"new": {"P": 2, "q": [1.5]}}',
        b'{"none": null, "empty": [], "deep": {}}', b"{bad", b'[{"listed": 1}]',
        b'{"two": 1}{"three": 2}', b'{"": 1, "beside": 2}', b"{'quoted': 1}",
        b'{"bottom": ' + b'{"a": ' * 600 + b"1" + b"}" * 601,
    )  # fmt: skip
    growth = seen_fields(spark.newSession(), rows, known)
    assert growth.clashes == ('$["ID"]', '$["new"]["p"]')
    expected = given_fields("id BIGINT, new STRUCT<P: BIGINT, q: ARRAY<DOUBLE>>")
    assert sorted(growth.schema.fields, key=lambda f: f.name) == list(expected.fields)
    values = Values(schema=growth.schema.json(), grows=True, clashes=growth.clashes)
    bad = classified(rows, values, "append").where(BAD)
    told = rejected_rows(bad, values, "t", "append").orderBy("offset").collect()
    assert [(row.offset, row.reason) for row in told] == [
        (0, OTHER_CASE),
        (1, OTHER_CASE),
        (4, NO_OBJECT),
        (5, NO_OBJECT),
        (6, NOT_ONE),
        (7, NAMELESS),
        (8, "the value is not JSON"),
        (9, TOO_DEEP),
    ]


def test_a_value_with_two_fields_of_one_name_decides_about_no_column(spark: SparkSession) -> None:
    both = b'{"A": 8, "a": 9}'
    alone = seen_fields(spark.newSession(), records(spark, both), StructType([]))
    assert (alone.schema, alone.clashes) == (StructType([]), ('$["a"]',))
    rows = records(spark, both, b'{"a": 1}', b'{"B": 2}')
    growth = seen_fields(spark.newSession(), rows, StructType([]))
    assert sorted(growth.schema.names) == ["B", "a"]
    assert growth.clashes == ('$["A"]',)
    assert growth.warning("t_rejected").endswith('go to t_rejected. fields=$["A"]')
    for found, read in ((alone, records(spark, both)), (growth, rows)):
        values = Values(schema=found.schema.json(), grows=True, clashes=found.clashes)
        bad = classified(read, values, "append").where(BAD)
        (row,) = rejected_rows(bad, values, "t", "append").collect()
        assert (row.offset, row.reason) == (0, "two fields differ in case only")


def test_a_record_is_parked_when_spark_cannot_hold_its_timestamp(spark: SparkSession) -> None:
    rows = records(spark, b'{"a": 1}').selectExpr(
        "* EXCEPT (timestamp)", "CAST(NULL AS TIMESTAMP) AS timestamp"
    )
    for values in (Values(schema=given_fields("a INT").json()), Values("raw")):
        bad = classified(rows, values, "append").where(BAD)
        (row,) = rejected_rows(bad, values, "t", "append").collect()
        assert row.reason == "the timestamp is outside the range of Spark"


def test_each_document_is_a_row_when_values_hold_several(spark: SparkSession) -> None:
    rows = records(
        spark, b'{"a": 1} {"a": 2}\n{"a": "\xc3\xa9"}', b'{"a": 3}', None, b'{"a": 4}{bad', b"",
        b'{"a": 5}' + b'{"a": ' * 600 + b"1" + b"}" * 600,
    )  # fmt: skip
    values = Values(schema=given_fields("a STRING").json(), each_document=True)
    found = classified(rows, values, "append").cache()
    good = table_rows(found.where(f"NOT {BAD}"), values, StructType([]), dated=False)
    kept = good.orderBy("_offset", "a").select("_offset", "a").collect()
    assert [tuple(row) for row in kept] == [(0, "1"), (0, "2"), (0, "é"), (1, "3"), (2, None)]
    bad = rejected_rows(found.where(BAD), values, "t", "append").orderBy("offset").collect()
    assert [(row.offset, row.reason) for row in bad] == [
        (3, NO_OBJECT),
        (4, NO_OBJECT),
        (5, TOO_DEEP),
    ]


@pytest.mark.parametrize("format_name", ["raw", "json"])
def test_an_upsert_needs_a_key(spark: SparkSession, format_name: str) -> None:
    rows = records(spark, b"{}").selectExpr("CAST(NULL AS BINARY) AS key", "* EXCEPT (key)")
    values = Values(format_name, given_fields("a INT").json())
    assert classified(rows, values, "append").where(BAD).isEmpty()
    bad = classified(rows, values, UPSERT).where(BAD)
    (row,) = rejected_rows(bad, values, "t", UPSERT).collect()
    assert row.reason == "the record has no key"
