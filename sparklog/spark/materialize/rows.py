"""From records to a table's rows, and to those that cannot be rows, with the reason.

Spark's own `from_json` and `from_avro` read the values. A row is bad when its value does not have
the format, or a field of it does not fit its column. Then nothing of it is in the table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.avro.functions import from_avro, to_avro
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from sparklog.core.bounded_json import parse_json
from sparklog.core.errors import InvalidRequest
from sparklog.spark.access.json_text import (
    STANDARD_JSON,
    is_one_document,
    is_too_deep,
    is_too_large,
    readable,
)
from sparklog.spark.access.sql_names import quoted, spare_name
from sparklog.spark.materialize.commit import (
    AVRO,
    JSON,
    RAW,
    UPSERT,
    Values,
    avro_fields,
)
from sparklog.spark.materialize.protobuf_values import (
    REASON,
    VALUE_FIELDS,
    framed_protobuf,
    message_fields,
)
from sparklog.spark.materialize.schema import (
    DATE_COLUMN,
    FIELDS_MAX,
    RECORD_COLUMNS,
    Growth,
    column_of,
    grown,
    merged_given,
)
from sparklog.spark.materialize.schemas import framed_avro

FIELDS: Final = "__sparklog_fields"
BAD: Final = "__sparklog_bad"
_READ: Final = "__sparklog_read"
_DEAD: Final = "__sparklog_dead"
_CORRUPT: Final = "__sparklog_corrupt"
_BLANKS: Final = " \t\r\n"
_PERMISSIVE: Final = {"mode": "PERMISSIVE"}
_FAR: Final = "the timestamp is outside the range of Spark"
_CASE: Final = "spark.sql.caseSensitive"


def fields_of(values: Values) -> StructType:
    """Return the fields that a JSON value is read into."""
    if values.format != JSON or values.schema is None:
        return StructType([])
    return StructType.fromJson(parse_json(values.schema, "schema"))


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

    Fields without a value anywhere are left for later. A value with two fields that differ in case
    only decides about no column: it is parked. `spark` is a session of our own: a setting of the
    session makes such names distinct here.

    Raises:
        InvalidRequest: more fields than a table should have.
    """
    text = readable(sf.col("value").cast("string"))
    faulty = sf.lit(False)
    for condition, _ in _text_faults():
        faulty = faulty | sf.coalesce(condition, sf.lit(True))
    candidates = records.where(~faulty).select(text.alias("value"))
    before = spark.conf.get(_CASE)
    spark.conf.set(_CASE, "true")
    try:
        options = {**STANDARD_JSON, "mode": "DROPMALFORMED", "dropFieldIfAllNull": "true"}
        reader = spark.read.options(**options)
        seen = reader.json(candidates).schema
        growth = grown(known, seen)
        if not growth.clashes:
            return growth
        single = candidates.where(~_or_no(_has_two_cases(sf.col("value"))))
        schema = grown(known, reader.json(single).schema).schema
    finally:
        spark.conf.set(_CASE, before or "false")
    return Growth(schema, grown(schema, seen).clashes)


def classified(records: DataFrame, values: Values, mode: str) -> DataFrame:
    """Return `records` with what their values hold (`FIELDS`), and whether they are bad (`BAD`)."""
    if values.each_document:
        records = split_documents(records)
    if values.format == RAW:
        read, bad = sf.lit(None), sf.lit(False)
    elif values.reading is not None:
        records = records.withColumn(_READ, framed_protobuf(records, values.reading))
        read = sf.col(quoted(_READ, VALUE_FIELDS))
        bad = sf.col(quoted(_READ, REASON)).isNotNull()
    elif values.writers:
        read, unfit = framed_avro(records, values)
        bad = sf.col("value").isNotNull() & unfit
    elif values.format == AVRO:
        read = from_avro(sf.col("value"), values.schema or "", _PERMISSIVE)
        bad = sf.col("value").isNotNull() & _not_avro(values.schema or "")
    else:
        read = _read_json(fields_of(values))
        unfit = _unfit(values) | sf.col(quoted(FIELDS, _corrupt_of(values))).isNotNull()
        bad = sf.col("value").isNotNull() & unfit
    bad = bad | sf.col("timestamp").isNull()
    if mode == UPSERT:
        bad = bad | sf.col("key").isNull()
    return records.withColumn(FIELDS, read).withColumn(BAD, sf.coalesce(bad, sf.lit(False)))


def split_documents(records: DataFrame) -> DataFrame:
    """Return `records` with a row for each of the JSON documents that a value holds.

    A value that is no series of documents stays as it is.
    """
    text = readable(sf.col("value").cast("string"))
    several = sf.when(sf.is_valid_utf8(text) & ~is_one_document(text), text)
    made: Any = arrow_udf  # PySpark's types want a number that it finds by itself
    texts = made(_documents_of, "ARRAY<STRING>")(several)
    documents = sf.transform(texts, lambda one: one.cast("binary"))
    names = [name for name in records.columns if name != "value"]
    one = sf.explode(sf.coalesce(documents, sf.array("value"))).alias("value")
    return records.select(*names, one)


def _documents_of(texts: pa.Array) -> pa.Array:
    """Return the documents of each text; null where there is something else in it."""
    found = [None if text is None else _split(text) for text in texts.to_pylist()]
    return pa.array(found, pa.list_(pa.string()))


def _split(text: str) -> list[str] | None:
    decoder, found, rest = json.JSONDecoder(), [], text.strip(_BLANKS)
    while rest:
        try:
            _, end = decoder.raw_decode(rest)
        except (ValueError, RecursionError):
            return None
        found.append(rest[:end])
        rest = rest[end:].lstrip(_BLANKS)
    return found or None


def dead_column(values: Values, known: StructType) -> str:
    """Return the name of a column that says that a record has no value: with upserts, its key goes.

    `known`: fields of the table. No column of the table has the name.
    """
    names = [*known.names, *fields_of(values).names]
    if values.format == AVRO:
        names += avro_fields(values.schema or "")
    if values.reading is not None:
        names += message_fields(values.reading).names
    return spare_name(_DEAD, names)


def table_rows(
    good: DataFrame, values: Values, known: StructType, *, dated: bool, dead: str | None = None
) -> DataFrame:
    """Return the columns of the table, from classified records that are not bad.

    With `dead`, there is a column of that name, too (`dead_column`). Fields have the types of
    `known` where the table's columns are wider.

    Raises:
        InvalidRequest: a field does not fit the table's column.
    """
    record = [sf.col(of).alias(name) for name, of in RECORD_COLUMNS.items() if of in good.columns]
    if dated:
        record.append(sf.to_date("timestamp").alias(DATE_COLUMN))
    if dead is not None:
        record.append(sf.col("value").isNull().alias(dead))
    if values.format == RAW:
        return good.select(*record, "value")
    kind = good.schema[FIELDS].dataType
    fields_read = kind.fields if isinstance(kind, StructType) else []
    corrupt = _corrupt_of(values) if values.format == JSON else None
    given = StructType([field for field in fields_read if field.name != corrupt])
    fields = [
        sf.col(quoted(FIELDS, one.name)).cast(one.dataType).alias(column_of(one.name))
        for one in merged_given(known, given).fields
    ]
    return good.select(*record, *fields)


def rejected_rows(bad: DataFrame, values: Values, topic: str, mode: str) -> DataFrame:
    """Return the rows of the table of rejected records, from classified records that are bad."""
    kept = [sf.col(n) for n in ("partition", "offset", "timestamp", "key", "value", "headers")
            if n in bad.columns]  # fmt: skip
    return bad.select(_reason(values, mode).alias("reason"), sf.lit(topic).alias("topic"), *kept)


def _not_avro(schema: str) -> Column:
    """Return whether `from_avro` could not read a value: it makes a record of nulls of it then.

    The reader recognises a record that may be all nulls by writing it again.
    """
    fields = avro_fields(schema)
    nothing = sf.lit(True)
    for name in fields:
        nothing = nothing & sf.col(quoted(FIELDS, name)).isNull()
    if not all(fields.values()):
        return nothing
    return nothing & (to_avro(sf.col(FIELDS), schema) != sf.col("value"))


def is_json_object(text: Column) -> Column:
    """Return whether a text looks like one object in UTF-8; the parser says the rest."""
    trimmed = sf.btrim(text, sf.lit(_BLANKS))
    # Trimming copies the value, and hardly a value needs it. For an `or`, Spark would trim each one
    # beforehand, since one side of it says `trimmed` twice.
    looks = sf.when(_in_braces(text), sf.lit(True)).otherwise(_in_braces(trimmed))
    return looks & sf.is_valid_utf8(text)


def _in_braces(text: Column) -> Column:
    return text.startswith("{") & text.endswith("}")


def _read_json(fields: StructType) -> Column:
    """Return the fields of a value as a struct, with one more for text that is no JSON."""
    marked = StructType([*fields.fields, StructField(_corrupt_in(fields), StringType())])
    options = {**STANDARD_JSON, **_PERMISSIVE, "columnNameOfCorruptRecord": _corrupt_in(fields)}
    return sf.from_json(readable(sf.col("value").cast("string")), marked, options)


def _corrupt_of(values: Values) -> str:
    return _corrupt_in(fields_of(values))


def _corrupt_in(fields: StructType) -> str:
    """Return a name that no field has."""
    return spare_name(_CORRUPT, fields.names)


def _unfit(values: Values) -> Column:
    """Return whether a value must not be read, or not all of it would be."""
    found = sf.lit(False)
    for condition, _ in _faults(values):
        found = found | sf.coalesce(condition, sf.lit(True))
    return found


def _faults(values: Values) -> Iterator[tuple[Column, str]]:
    """Yield what may be wrong with a value before its fields are read, with the reason."""
    yield from _text_faults()
    if values.clashes or not values.grows:
        text = readable(sf.col("value").cast("string"))
        if values.clashes:
            yield _or_no(_has_two_cases(text)), "two fields differ in case only"
        yield _other_case(text, fields_of(values)), "a column differs from a field in case only"


def _text_faults() -> Iterator[tuple[Column, str]]:
    """Yield what may be wrong with a value's text, independent of its fields."""
    text = sf.col("value").cast("string")
    yield is_too_large(text), "the value is too large"
    yield is_too_deep(text), "the value is nested too deep"
    safe = readable(text)
    yield ~is_json_object(safe), "the value is not a JSON object"
    yield ~is_one_document(safe), "the value is not one JSON document"
    yield _has_too_many_fields(safe), f"the value has more than {FIELDS_MAX} fields"
    yield _has_nameless_field(safe), "a field has an empty name"


def _has_too_many_fields(text: Column) -> Column:
    many = sf.size(sf.json_object_keys(text)) > FIELDS_MAX
    return sf.when(sf.octet_length(text) > 4 * FIELDS_MAX, many).otherwise(sf.lit(False))


def _has_nameless_field(text: Column) -> Column:
    """Return whether a name is empty: only there an empty string meets a colon."""
    nameless = text.rlike(r'(?<!\\)""[ \t\r\n]*+:')
    return sf.when(text.contains('""'), nameless).otherwise(sf.lit(False))


def _has_two_cases(text: Column) -> Column:
    """Return whether two names at the top of JSON text differ in case only."""
    names = sf.array_distinct(sf.json_object_keys(text))
    return sf.size(sf.array_distinct(sf.transform(names, sf.lower))) < sf.size(names)


def _other_case(text: Column, kind: DataType) -> Column:
    """Return whether a name in JSON text differs in case only from that of a field of a type."""
    if isinstance(kind, ArrayType):
        parts = sf.from_json(text, "ARRAY<STRING>", STANDARD_JSON)
        return sf.exists(parts, lambda part: _or_no(_other_case(part, kind.elementType)))
    if isinstance(kind, MapType):
        parts = sf.map_values(sf.from_json(text, "MAP<STRING, STRING>", STANDARD_JSON))
        return sf.exists(parts, lambda part: _or_no(_other_case(part, kind.valueType)))
    if not isinstance(kind, StructType) or not kind.fields:
        return sf.lit(False)
    names = sf.array(*map(sf.lit, kind.names))
    lowered = sf.array(*(sf.lit(name.lower()) for name in kind.names))
    found = _or_no(
        sf.exists(
            sf.json_object_keys(text),
            lambda key: sf.array_contains(lowered, sf.lower(key)) & ~sf.array_contains(names, key),
        )
    )
    nested = [one for one in kind.fields if _has_names(one.dataType)]
    if nested:
        texts = StructType([StructField(one.name, StringType()) for one in nested])
        inner = sf.from_json(text, texts, STANDARD_JSON)
        for one in nested:
            found = found | _or_no(_other_case(inner.getField(one.name), one.dataType))
    return found


def _or_no(condition: Column) -> Column:
    return sf.coalesce(condition, sf.lit(False))


def _has_names(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _has_names(kind.elementType)
    if isinstance(kind, MapType):
        return _has_names(kind.valueType)
    return isinstance(kind, StructType)


def _reason(values: Values, mode: str) -> Column:
    reason = sf.when(sf.col("timestamp").isNull(), _FAR)
    reason = reason.when(sf.col("key").isNull() & sf.lit(mode == UPSERT), "the record has no key")
    if values.reading is not None:
        return reason.otherwise(sf.col(quoted(_READ, REASON)))
    if values.format != JSON:
        return reason.otherwise("the value does not fit the Avro schema")
    for condition, words in _faults(values):
        reason = reason.when(sf.coalesce(condition, sf.lit(True)), words)
    fields = fields_of(values)
    texts = StructType([StructField(one.name, StringType()) for one in fields.fields])
    given = _read_json(texts)
    for field in fields.fields:
        kind = field.dataType.simpleString()
        reason = reason.when(
            given.getField(field.name).isNotNull() & sf.col(quoted(FIELDS, field.name)).isNull(),
            f"a field does not fit its column: {field.name} {kind}",
        )
    corrupt = _corrupt_in(fields)
    reason = reason.when(
        sf.col(quoted(FIELDS, corrupt)).isNotNull() & given.getField(corrupt).isNull(),
        "a field within a field does not fit its column",
    )
    return reason.otherwise("the value is not JSON")
