"""Which columns a write takes: those of Spark's Kafka sink, and `timestamp`.

Other columns are not written, as in the Kafka sink, so that what was read from a topic can be
written to one as it is. Messages are worded as the Kafka sink's.
"""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sparklog.core.errors import InvalidRequest

HEADERS_TYPE = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
SINK_TYPES: dict[str, tuple[DataType, ...]] = {
    "topic": (StringType(),),
    "key": (StringType(), BinaryType()),
    "value": (StringType(), BinaryType()),
    "headers": (HEADERS_TYPE,),
    "partition": (IntegerType(),),
    "timestamp": (TimestampType(), DoubleType()),
}
"""A `timestamp` of type double counts seconds since the epoch, as a cast to timestamp reads it.
It is not in Spark 4.2's Kafka sink; without it a record gets the time of writing."""


def check_sink_schema(schema: StructType, topic: str | None) -> tuple[str, ...]:
    """Return the columns to write, after checking them.

    Raises:
        InvalidRequest: a missing column or a wrong type.
    """
    types = {field.name: field.dataType for field in schema.fields}
    if topic is None and "topic" not in types:
        raise InvalidRequest(
            "topic option required when no 'topic' attribute is present. Use the topic option for "
            f"setting a topic. columns={list(types)}"
        )
    if "value" not in types:
        raise InvalidRequest(f"Required attribute 'value' not found. columns={list(types)}")
    taken = [name for name in SINK_TYPES if name in types]
    if topic is not None and "topic" in taken:
        taken.remove("topic")
    for name in taken:
        wanted = SINK_TYPES[name]
        if not any(_same(types[name], one) for one in wanted):
            names = " or ".join(one.simpleString() for one in wanted)
            raise InvalidRequest(
                f"{name} attribute unsupported type {types[name].simpleString()}. {name} must be "
                f"a(n) {names}"
            )
    return tuple(taken)


def _same(given: DataType, wanted: DataType) -> bool:
    """Compare types as Spark's sink does: nullability does not count."""
    if isinstance(given, ArrayType) and isinstance(wanted, ArrayType):
        return _same(given.elementType, wanted.elementType)
    if isinstance(given, StructType) and isinstance(wanted, StructType):
        return len(given) == len(wanted) and all(
            g.name == w.name and _same(g.dataType, w.dataType)
            for g, w in zip(given.fields, wanted.fields, strict=True)
        )
    if isinstance(wanted, StringType):
        return isinstance(given, StringType)
    return given == wanted
