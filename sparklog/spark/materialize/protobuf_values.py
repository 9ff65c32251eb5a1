"""Framed values of Protobuf as columns of Spark.

Spark's own `from_protobuf` needs a jar that does not resolve. So Python reads the values, column by
column (`registry.protobuf_message`).
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from sparklog.core.errors import InvalidRequest
from sparklog.registry.protobuf_message import ProtobufReading, read_messages

VALUE_FIELDS: Final = "fields"
REASON: Final = "reason"


def message_fields(reading: ProtobufReading) -> StructType:
    """Return the columns of the message.

    Raises:
        RegistryRefused: no fields, or too many. InvalidRequest: two names differ in case only.
    """
    kind = from_arrow_type(reading.columns().type)
    assert isinstance(kind, StructType), kind
    _check_cases(kind)
    return kind


def framed_protobuf(records: DataFrame, reading: ProtobufReading) -> Column:
    """Return a struct for each value: its fields, and the reason if it has none."""
    fields = StructField(VALUE_FIELDS, message_fields(reading))
    kind = StructType([fields, StructField(REASON, StringType())])

    def read(values: pa.Array, headers: pa.Array) -> pa.Array:
        return _structs(reading, values, headers)

    def read_values(values: pa.Array) -> pa.Array:
        return _structs(reading, values, None)

    made: Any = arrow_udf  # PySpark's types want a number that it finds by itself
    if "headers" in records.columns:
        return made(read, kind)("value", "headers")  # type: ignore[no-any-return]
    return made(read_values, kind)("value")  # type: ignore[no-any-return]


def _structs(reading: ProtobufReading, values: pa.Array, headers: pa.Array | None) -> pa.Array:
    fields, reasons = read_messages(reading, values, headers)
    return pa.StructArray.from_arrays(
        [fields, pa.array(reasons, pa.string())], [VALUE_FIELDS, REASON]
    )


def _check_cases(kind: DataType) -> None:
    if isinstance(kind, ArrayType):
        _check_cases(kind.elementType)
    elif isinstance(kind, MapType):
        _check_cases(kind.valueType)
    elif isinstance(kind, StructType):
        if len({name.lower() for name in kind.names}) < len(kind.names):
            raise InvalidRequest(
                "two fields of a message differ in case only, and are one column to Delta. "
                f"fields={','.join(kind.names)[:1000]}"
            )
        for field in kind.fields:
            _check_cases(field.dataType)
