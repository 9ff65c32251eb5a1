"""From records to a table's rows, and to those that cannot be rows, with the reason.

Spark's own `from_json` and `from_avro` read the values. A row is bad when its value is not what the
format says, or a field of it does not fit its column: then nothing of it is in the table.
"""

from __future__ import annotations

import json
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.avro.functions import from_avro, to_avro
from pyspark.sql.types import StringType, StructField, StructType

from sparklog.core.errors import InvalidRequest
from sparklog.spark.materialize_commit import (
    AVRO,
    JSON,
    RAW,
    UPSERT,
    Values,
    avro_fields,
)
from sparklog.spark.materialize_schema import (
    DATE_COLUMN,
    RECORD_COLUMNS,
    Growth,
    column_of,
    grown,
    merged_given,
)

FIELDS: Final = "__sparklog_fields"
DEAD: Final = "__sparklog_dead"
"""The record has no value: with upserts, its key goes."""
BAD: Final = "__sparklog_bad"
_CORRUPT: Final = "__sparklog_corrupt"
_PERMISSIVE: Final = {"mode": "PERMISSIVE"}
_CASE: Final = "spark.sql.caseSensitive"


def fields_of(values: Values) -> StructType:
    """Return the fields that a JSON value is read into."""
    if values.format != JSON or values.schema is None:
        return StructType([])
    return StructType.fromJson(json.loads(values.schema))


def given_fields(ddl: str) -> StructType:
    """Return the fields that a schema in DDL names.

    Raises:
        InvalidRequest: it is no list of fields. PySparkException: it is no DDL.
    """
    kind = StructType.fromDDL(ddl)
    if not isinstance(kind, StructType):
        raise InvalidRequest(f"--schema takes fields: 'id BIGINT, name STRING'. given={ddl!r}")
    return kind


def seen_fields(spark: SparkSession, records: DataFrame, known: StructType) -> Growth:
    """Return what JSON fields there are when `records` have been looked at, too.

    Fields without a value anywhere are left for later. `spark` is a session of our own: names that
    differ in case only are told apart here, and a setting of the session says that they are.

    Raises:
        InvalidRequest: more fields than a table should have.
    """
    text = sf.col("value").cast("string")
    candidates = records.where(_is_json_object()).select(text.alias("value"))
    before = spark.conf.get(_CASE)
    spark.conf.set(_CASE, "true")
    try:
        found = spark.read.json(
            candidates, dropFieldIfAllNull=True, columnNameOfCorruptRecord=_CORRUPT
        ).schema
    finally:
        spark.conf.set(_CASE, before or "false")
    seen = StructType([field for field in found.fields if field.name != _CORRUPT])
    return grown(known, seen)


def classified(records: DataFrame, values: Values, mode: str) -> DataFrame:
    """Return `records` with what their values hold (`FIELDS`), and whether they are bad (`BAD`)."""
    if values.format == RAW:
        read, bad = sf.lit(None), sf.lit(False)
    elif values.format == AVRO:
        read = from_avro(sf.col("value"), values.schema or "", _PERMISSIVE)
        bad = sf.col("value").isNotNull() & _not_avro(values.schema or "")
    else:
        fields = fields_of(values).add(StructField(_CORRUPT, StringType()))
        options = {**_PERMISSIVE, "columnNameOfCorruptRecord": _CORRUPT}
        read = sf.from_json(sf.col("value").cast("string"), fields, options)
        unfit = (
            ~_is_json_object() | sf.col(f"{FIELDS}.{_CORRUPT}").isNotNull() | _clash(values.clashes)
        )
        bad = sf.col("value").isNotNull() & unfit
    if mode == UPSERT:
        bad = bad | sf.col("key").isNull()
    return records.withColumn(FIELDS, read).withColumn(BAD, sf.coalesce(bad, sf.lit(False)))


def table_rows(
    good: DataFrame, values: Values, known: StructType, *, dated: bool, dead: bool = False
) -> DataFrame:
    """Return the columns of the table, from classified records that are not bad.

    With `dead`, there is a column `DEAD`, too. Fields have the types of `known` where the table's
    columns are wider.

    Raises:
        InvalidRequest: a field does not fit the table's column.
    """
    record = [sf.col(of).alias(name) for name, of in RECORD_COLUMNS.items() if of in good.columns]
    if dated:
        record.append(sf.to_date("timestamp").alias(DATE_COLUMN))
    if dead:
        record.append(sf.col("value").isNull().alias(DEAD))
    if values.format == RAW:
        return good.select(*record, "value")
    kind = good.schema[FIELDS].dataType
    fields_read = kind.fields if isinstance(kind, StructType) else []
    given = StructType([field for field in fields_read if field.name != _CORRUPT])
    fields = [
        sf.col(f"{FIELDS}.`{_escaped(one.name)}`").cast(one.dataType).alias(column_of(one.name))
        for one in merged_given(known, given).fields
    ]
    return good.select(*record, *fields)


def rejected_rows(bad: DataFrame, values: Values, topic: str, mode: str) -> DataFrame:
    """Return the rows of the table of rejected records, from classified records that are bad."""
    kept = [sf.col(n) for n in ("partition", "offset", "timestamp", "key", "value", "headers")
            if n in bad.columns]  # fmt: skip
    return bad.select(_reason(values, mode).alias("reason"), sf.lit(topic).alias("topic"), *kept)


def _not_avro(schema: str) -> Column:
    """Say whether `from_avro` could not read a value: it makes a record of nulls of it then.

    A record that may be all nulls is told apart by writing it again.
    """
    fields = avro_fields(schema)
    nothing = sf.lit(True)
    for name in fields:
        nothing = nothing & sf.col(f"{FIELDS}.`{_escaped(name)}`").isNull()
    if not all(fields.values()):
        return nothing
    return nothing & (to_avro(sf.col(FIELDS), schema) != sf.col("value"))


def _is_json_object() -> Column:
    """Say whether a value looks like one object; the parser says the rest.

    The parser alone would take the first of two objects, and undecodable bytes for characters.
    """
    text = sf.col("value").cast("string")
    trimmed = sf.btrim(text, sf.lit(" \t\r\n"))
    # Trimming copies the value, and hardly a value needs it. For an `or`, Spark would trim each one
    # beforehand, since one side of it says `trimmed` twice.
    looks = sf.when(_in_braces(text), sf.lit(True)).otherwise(_in_braces(trimmed))
    return looks & sf.is_valid_utf8(text)


def _in_braces(text: Column) -> Column:
    return text.startswith("{") & text.endswith("}")


def _clash(paths: tuple[str, ...]) -> Column:
    found = sf.lit(False)
    for path in paths:
        found = found | _at(path).isNotNull()
    return found


def _at(path: str) -> Column:
    variant = sf.try_parse_json(sf.col("value").cast("string"))
    return sf.try_variant_get(variant, path, "variant")


def _reason(values: Values, mode: str) -> Column:
    reason = sf.when(sf.col("key").isNull() & sf.lit(mode == UPSERT), "the record has no key")
    if values.format != JSON:
        return reason.otherwise("the value does not fit the Avro schema")
    parsed = sf.try_parse_json(sf.col("value").cast("string"))
    reason = reason.when(~_is_json_object(), "the value is not a JSON object")
    for path in values.clashes:
        reason = reason.when(
            _at(path).isNotNull(), f"a column differs from this field in case only: {path}"
        )
    for field in fields_of(values).fields:
        if '"' in field.name:
            continue
        path = f'$["{field.name}"]'
        given = sf.try_variant_get(parsed, path, "variant")
        kind = field.dataType.simpleString()
        reason = reason.when(
            given.isNotNull()
            & ~sf.is_variant_null(given)
            & sf.col(f"{FIELDS}.`{_escaped(field.name)}`").isNull(),
            f"a field does not fit its column: {field.name} {kind}",
        )
    reason = reason.when(
        sf.col(f"{FIELDS}.{_CORRUPT}").isNotNull() & parsed.isNotNull(),
        "a field within a field does not fit its column",
    )
    return reason.otherwise("the value is not JSON")


def _escaped(name: str) -> str:
    return name.replace("`", "``")
