"""Values that carry the id of a schema: the schemas of a subject, and columns that read by them.

Every version's values become rows of the newest version's columns, as Avro resolves schemas. Spark
decodes them; no Python sees a value. `registry.wire_format` has the format of ids and headers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from typing import Final
from uuid import UUID

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.avro.functions import from_avro, to_avro

from sparklog.client.security import process_security
from sparklog.cluster.log import Log
from sparklog.core.errors import InvalidRequest, UnknownTopicOrPartition
from sparklog.core.topic_names import SCHEMAS_TOPIC
from sparklog.registry.formats.avro_limits import check_decodable
from sparklog.registry.model.schema import AVRO as AVRO_TYPE
from sparklog.registry.model.schema import JSON as JSON_TYPE
from sparklog.registry.model.schema import SubjectVersion
from sparklog.registry.model.subjects import checked_subject
from sparklog.registry.registry import SchemaRegistry
from sparklog.registry.schema_log import RootSchemaLog, SchemaLog
from sparklog.registry.wire_format import PREFIX_BYTES, VALUE_HEADER
from sparklog.spark.access.leaders import registered
from sparklog.spark.materialize.commit import AVRO, JSON, Values, WriterSchema, avro_fields

_PERMISSIVE: Final = {"mode": "PERMISSIVE"}
_BYTES_MAX: Final = (1 << 31) - 1 - PREFIX_BYTES
_FORMATS: Final = {AVRO_TYPE: AVRO, JSON_TYPE: JSON}


@contextmanager
def opened_registry(log: Log) -> Iterator[SchemaRegistry]:
    """Open the registry of a log: under its root, or through the brokers that lead its topic.

    Raises:
        InvalidConfig: the brokers have no listener that this process may use.
    """
    made: SchemaLog = RootSchemaLog(log)
    try:
        led = log.topic(SCHEMAS_TOPIC).partition_states[0].leader >= 0
    except UnknownTopicOrPartition:
        led = False
    if led:
        from sparklog.client.registry_log import BrokerSchemaLog  # noqa: PLC0415 - seldom

        security = process_security()
        made = BrokerSchemaLog(registered(log.refresh(), security), security.given)
    try:
        yield SchemaRegistry(made)
    finally:
        made.close()


class SubjectSchemas:
    """The versions of one subject, whose values all become rows of one table."""

    def __init__(self, registry: SchemaRegistry, subject: str) -> None:
        """Read them from `registry`, anew for each batch.

        Raises:
            RegistryRefused: no legal name.
        """
        self._registry = registry
        self._subject = checked_subject(subject)

    @property
    def format(self) -> str:
        """Return the format of the values, AVRO or JSON of `commit`.

        Raises:
            InvalidRequest: no such subject, or its schemas are Protobuf's.
        """
        kind = self._versions()[-1].content.schema_type
        if kind not in _FORMATS:
            raise InvalidRequest(
                f"values of this format are not materialized. subject={self._subject} format={kind}"
            )
        return _FORMATS[kind]

    def with_schemas(self, values: Values) -> Values:
        """Return the values of a stored commit with the schemas of its versions.

        Raises:
            InvalidRequest: a version was deleted permanently. Others: as `values`.
        """
        known = {writer.version: writer for writer in self.values().writers}
        missing = [one.version for one in values.writers if one.version not in known]
        if missing:
            raise InvalidRequest(
                "schemas that a batch was read by are gone. "
                f"subject={self._subject} versions={missing}"
            )
        return replace(values, writers=tuple(known[one.version] for one in values.writers))

    def values(self) -> Values:
        """Return Avro values with the schemas of all versions, deleted ones too.

        Records that are planned before this call have ids that it sees.

        Raises:
            InvalidRequest: as `format`, or a schema is no record, or refers to other schemas.
        """
        versions = self._versions()
        for one in versions:
            if one.content.references:
                raise InvalidRequest(
                    "schemas with references are not materialized. "
                    f"subject={one.subject} version={one.version}"
                )
            avro_fields(one.content.text)
            check_decodable(self._registry.parsed(one.content).schema.type)
        newest = next(one for one in reversed(versions) if not one.deleted)
        writers = tuple(
            WriterSchema(one.version, one.content.text, (_id_key(one), _guid_key(one)))
            for one in versions
        )
        return Values(AVRO, newest.content.text, writers=writers)

    def _versions(self) -> list[SubjectVersion]:
        found = self._registry.query(lambda state: state.versions(self._subject, deleted=True))
        if all(one.deleted for one in found):
            raise InvalidRequest(f"no schema is registered. subject={self._subject}")
        return found


def _id_key(version: SubjectVersion) -> str:
    return f"00{version.schema_id:08X}"


def _guid_key(version: SubjectVersion) -> str:
    return f"01{UUID(version.content.guid).hex.upper()}"


def payload(records: DataFrame) -> Column:
    """Return the values without the ids in front of them; others as they are."""
    value = sf.col("value")
    stripped = sf.when(_is_framed(), sf.substring(value, PREFIX_BYTES + 1, _BYTES_MAX))
    named = _named(records)
    plain = stripped.otherwise(value)
    return plain if named is None else sf.when(named.isNotNull(), value).otherwise(plain)


def framed_avro(records: DataFrame, values: Values) -> tuple[Column, Column]:
    """Return the record of each value in the newest schema, and whether a value is bad.

    A value is bad if it carries no id, one of another subject, or does not decode.
    """
    key, body = schema_key(records), payload(records)
    reader = values.schema or ""
    may_be_nothing = all(avro_fields(reader).values())
    parts, good = [], []
    for writer in values.writers:
        mine = key.isin(*writer.keys)
        options = dict(_PERMISSIVE)
        if writer.schema != reader:
            options["avroSchema"] = reader
        read = from_avro(body, writer.schema, options)
        parts.append(sf.when(mine, read))
        # Spark makes nulls of bytes that do not decode. Written again they are other bytes.
        if may_be_nothing:
            written = from_avro(body, writer.schema, _PERMISSIVE)
            good.append(mine & (to_avro(written, writer.schema) == body))
        else:
            fields = [read.getField(name).isNotNull() for name in avro_fields(reader)]
            good.append(mine & reduce(lambda one, other: one | other, fields))
    readable = reduce(lambda one, other: one | other, good)
    return sf.coalesce(*parts), ~sf.coalesce(readable, sf.lit(False))


def schema_key(records: DataFrame) -> Column:
    """Return the id or GUID of each value in hexadecimal digits; null without one."""
    prefix = sf.when(_is_framed(), sf.hex(sf.substring(sf.col("value"), 1, PREFIX_BYTES)))
    named = _named(records)
    if named is None:
        return prefix
    # Behind an id or a GUID only Protobuf has more bytes.
    return sf.when(named.isNotNull(), sf.hex(named)).otherwise(prefix)


def _is_framed() -> Column:
    value = sf.col("value")
    zero = sf.lit(b"\0")
    return (sf.octet_length(value) >= PREFIX_BYTES) & (sf.substring(value, 1, 1) == zero)


def _named(records: DataFrame) -> Column | None:
    """Return the value of the last header that names a schema; null without one."""
    if "headers" not in records.columns:
        return None
    named = sf.filter(sf.col("headers"), lambda one: one.getField("key") == VALUE_HEADER)
    return sf.try_element_at(named, sf.lit(-1)).getField("value")
