"""Current tables of a database, from the change events of Debezium in a topic.

A pipeline's definitions call `current_table`. It defines two tables:

- `<name>_changes`: a row for each change event, once, in the order of the topic
- `<name>`: the row of each key whose event is the newest at the source

Spark's own `create_auto_cdc_flow` needs tables with MERGE by Spark's interfaces. Delta 4.4 has
none, and Spark refuses it (AUTOCDC_TARGET_DOES_NOT_SUPPORT_MERGE). Source: Debezium's documentation
of its connectors, "change events"; decision 82.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.types import StructField, StructType

from sparklog.core.errors import InvalidRequest
from sparklog.spark.access.json_text import STANDARD_JSON, readable
from sparklog.spark.materialize.rows import given_fields

POSITIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "postgresql": ("lsn BIGINT",),
    "mysql": ("file STRING", "pos BIGINT", "row INT"),
    "sqlserver": ("commit_lsn STRING", "change_lsn STRING", "event_serial_no BIGINT"),
    "oracle": ("scn DECIMAL(38,0)",),
    "mongodb": ("ts_ms BIGINT", "ord INT"),
}
"""By connector the fields of `source` that order the events of a row, the first one first."""
DELETED: Final = "_deleted"
POSITION: Final = "_position"
PARTITION: Final = "_partition"
OFFSET: Final = "_offset"
ROWS_WRITTEN: Final = ("c", "u", "r")


def current_table(
    spark: Any,
    name: str,
    *,
    root: str,
    topic: str,
    fields: str,
    keys: Sequence[str],
    connector: str = "postgresql",
) -> None:
    """Define a table with the rows that a table of the database has now.

    Events may come late, twice or out of order: the position at the source decides. A tombstone is
    passed over, since the delete before it counts. A truncation, or a value that is no change
    event, fails the flow.

    Args:
        spark: the session of the definitions.
        name: of the table.
        root: of the log.
        topic: with Debezium's events as JSON, with or without their schemas.
        fields: of a row, in DDL.
        keys: the columns of the primary key.
        connector: one of POSITIONS.

    Raises:
        InvalidRequest: an unknown connector, or a key that is no field.
    """
    from pyspark import pipelines as dp  # noqa: PLC0415 - of Spark Connect

    row = given_fields(fields)
    if connector not in POSITIONS:
        raise InvalidRequest(
            f"no such connector; choose from {', '.join(POSITIONS)}. connector={connector}"
        )
    if not keys or not set(keys) <= set(row.names):
        raise InvalidRequest(f"keys are names of fields. keys={list(keys)} fields={row.names}")

    def changes() -> Any:
        stream = spark.readStream.format("sparklog").option("path", root)
        stream = stream.option("subscribe", topic).option("startingOffsets", "earliest")
        return change_rows(stream.load(), row, keys, connector)

    def current() -> Any:
        return newest_rows(spark.read.table(f"{name}_changes"), row, keys)

    dp.create_streaming_table(name=f"{name}_changes")
    dp.append_flow(target=f"{name}_changes", name=f"{name}_changes")(changes)
    dp.materialized_view(name=name)(current)


def change_rows(records: Any, row: StructType, keys: Sequence[str], connector: str) -> Any:
    """Return a row for each change event: the fields of `row`, and where it stands.

    Args:
        records: the topic's, with key, value, partition and offset.
        row: the fields of the database's table.
        keys: the columns of its primary key.
        connector: one of POSITIONS.
    """
    kind, position = row.simpleString(), ", ".join(POSITIONS[connector])
    event = f"before {kind}, after {kind}, op STRING, source STRUCT<{_ddl(position)}>"
    event_type = f"STRUCT<{_ddl(event)}>"
    key = StructType([StructField(one.name, one.dataType) for one in row if one.name in keys])
    value = _read_json("value", f"payload {event_type}, {event}")
    key_read = _read_json("key", f"payload {key.simpleString()}, {_fields_ddl(key)}")
    read = records.where("value IS NOT NULL").select(
        value.alias("v"), key_read.alias("k"), "partition", "offset"
    )
    plain = sf.struct("v.before", "v.after", "v.op", "v.source")
    read = read.select(sf.coalesce("v.payload", plain).alias("e"), "k", "partition", "offset")
    read = read.where("e.op IS NULL OR e.op <> 'm'")
    image = sf.when(_checked_op() == "d", sf.col("e.before")).otherwise(sf.col("e.after"))
    columns = []
    for one in row:
        found: Column = image.getField(one.name)
        if one.name in keys:
            found = sf.coalesce(found, sf.col("k.payload")[one.name], sf.col("k")[one.name])
        columns.append(found.alias(one.name))
    return read.select(
        *columns,
        (sf.col("e.op") == "d").alias(DELETED),
        sf.col("e.source").alias(POSITION),
        sf.col("partition").alias(PARTITION),
        sf.col("offset").alias(OFFSET),
    )


def newest_rows(changes: Any, row: StructType, keys: Sequence[str]) -> Any:
    """Return the rows that are there now: of each key the event with the highest position.

    Of events with one position the later one in the topic counts.
    """
    order = sf.struct(POSITION, OFFSET)
    whole = sf.struct(*row.names, DELETED)
    newest = changes.groupBy(*keys).agg(sf.max_by(whole, order).alias("newest"))
    names = [sf.col("newest").getField(name).alias(name) for name in row.names]
    return newest.where(~sf.col("newest").getField(DELETED)).select(*names)


def _read_json(column: str, fields: str) -> Column:
    """Return the fields of a key or value; all null for what is no JSON, too large or too deep."""
    return sf.from_json(readable(sf.col(column).cast("string")), fields, STANDARD_JSON)


def _checked_op() -> Column:
    """Return the kind of an event; anything else than a change of one row fails the flow."""
    op = sf.col("e.op")
    where = sf.concat(
        sf.lit("not a change of one row: op="), sf.coalesce(op, sf.lit("none")),
        sf.lit(" partition="), sf.col("partition").cast("string"),
        sf.lit(" offset="), sf.col("offset").cast("string"),
    )  # fmt: skip
    return sf.when(op.isin(*ROWS_WRITTEN, "d"), op).otherwise(sf.raise_error(where).cast("string"))


def _fields_ddl(kind: StructType) -> str:
    return ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in kind)


def _ddl(fields: str) -> str:
    """Return fields of a table's DDL as those inside of a STRUCT: `name: TYPE`."""
    found, depth, word = [], 0, ""
    for letter in fields:
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and not depth:
            found.append(word)
            word = ""
        else:
            word += letter
    found.append(word)
    return ", ".join(": ".join(one.strip().split(" ", 1)) for one in found)
