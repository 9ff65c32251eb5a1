"""Values that carry the id of a schema: the schemas of a subject, and columns that read by them.

Every version's values become rows of the newest version's columns, as Avro and Protobuf resolve
schemas. Spark decodes Avro, and no Python sees a value; `protobuf_values` has Protobuf.
`registry.wire_format` has the format of ids and headers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.avro.functions import from_avro, to_avro

from sparklog.client.security import process_security
from sparklog.cluster.log import Log
from sparklog.core.errors import InvalidRequest, UnknownTopicOrPartition
from sparklog.core.topic_names import SCHEMAS_TOPIC
from sparklog.registry.formats.avro import inlined_avro
from sparklog.registry.formats.avro_limits import check_decodable
from sparklog.registry.formats.parsed import differences
from sparklog.registry.model.schema import AVRO as AVRO_TYPE
from sparklog.registry.model.schema import JSON as JSON_TYPE
from sparklog.registry.model.schema import PROTOBUF as PROTOBUF_TYPE
from sparklog.registry.model.schema import SubjectVersion
from sparklog.registry.model.subjects import checked_subject
from sparklog.registry.protobuf_message import (
    VersionPath,
    only_message,
    path_of,
    reading_of,
    version_key,
)
from sparklog.registry.registry import SchemaRegistry
from sparklog.registry.schema_log import RootSchemaLog, SchemaLog
from sparklog.registry.wire_format import PREFIX_BYTES, VALUE_HEADER
from sparklog.spark.access.leaders import registered
from sparklog.spark.materialize.commit import (
    AVRO,
    JSON,
    PROTOBUF,
    Values,
    ValuesMessage,
    WriterSchema,
    avro_fields,
)

if TYPE_CHECKING:
    from sparklog.registry.formats.protobuf import ProtobufSchema

_PERMISSIVE: Final = {"mode": "PERMISSIVE"}
_BYTES_MAX: Final = (1 << 31) - 1 - PREFIX_BYTES
_FORMATS: Final = {AVRO_TYPE: AVRO, JSON_TYPE: JSON, PROTOBUF_TYPE: PROTOBUF}


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

    def __init__(self, registry: SchemaRegistry, subject: str, message: str | None = None) -> None:
        """Read them from `registry`, anew for each batch.

        Args:
            registry: the registry of the log.
            subject: of the values.
            message: the full name of Protobuf's message; None takes that of the table, or the
                only one.

        Raises:
            RegistryRefused: no legal name.
        """
        self._registry = registry
        self._message = message
        self._subject = checked_subject(subject)

    @property
    def format(self) -> str:
        """Return the format of the values: AVRO, JSON or PROTOBUF of `commit`.

        Raises:
            InvalidRequest: no such subject.
        """
        versions = self._versions()
        newest = next(one for one in reversed(versions) if not one.deleted)
        return _FORMATS[newest.content.schema_type]

    def with_schemas(self, values: Values) -> Values:
        """Return the values of a stored commit with the schemas of its versions.

        Raises:
            InvalidRequest: a version was deleted permanently. Others: as `values`.
        """
        known = {one.version: one for one in self._versions()}
        missing = [one.version for one in values.writers if one.version not in known]
        if missing:
            raise InvalidRequest(
                "schemas that a batch was read by are gone. "
                f"subject={self._subject} versions={missing}"
            )
        versions = [known[one.version] for one in values.writers]
        if values.message is not None:
            return self._protobuf(versions, known[values.message.version], values.message.name)
        return replace(values, writers=tuple(map(self._avro_writer, versions)))

    def values(self, known: ValuesMessage | None = None) -> Values:
        """Return Avro or Protobuf values with the schemas of all versions, deleted ones too.

        Records that are planned before this call have ids that it sees.

        Args:
            known: the message that a table of Protobuf values was made of.

        Raises:
            InvalidRequest: as `format`, an Avro schema is no record, or it is not clear which
                message values have. RegistryRefused: a schema whose values would have no bound.
        """
        versions = self._versions()
        newest = next(one for one in reversed(versions) if not one.deleted)
        if newest.content.schema_type == PROTOBUF_TYPE:
            schema = self._registry.parsed(newest.content).schema
            return self._protobuf(versions, newest, self._message_name(schema, known))
        writers = [
            self._avro_writer(one) for one in versions if one.content.schema_type == AVRO_TYPE
        ]
        reader = next(one for one in writers if one.version == newest.version)
        return Values(AVRO, reader.schema, writers=tuple(writers))

    def _avro_writer(self, version: SubjectVersion) -> WriterSchema:
        content = version.content
        check_decodable(self._registry.parsed(content).schema.type)
        text = content.text
        if content.references:
            text = inlined_avro(text, list(self._registry.referred(content).values()))
        avro_fields(text)
        return WriterSchema(version.version, text, _keys(version))

    def _message_name(self, schema: ProtobufSchema, known: ValuesMessage | None) -> str:
        if self._message and known is not None and known.name != self._message:
            raise InvalidRequest(
                "the table was made of another message; go on with that, or use another table. "
                f"message={self._message} table={known.name}"
            )
        name = known.name if known is not None else self._message
        if name is None:
            return only_message(schema)
        if path_of(schema, name) is None:
            raise InvalidRequest(
                "the newest schema has no such message; it has a package in front of its name. "
                f"subject={self._subject} message={name}"
            )
        return name

    def _protobuf(
        self, versions: Sequence[SubjectVersion], reader: SubjectVersion, message: str
    ) -> Values:
        read_by = self._registry.parsed(reader.content)
        found = []
        for one in versions:
            writer = self._registry.parsed(one.content)
            readable = not differences(read_by, writer)
            path = path_of(writer.schema, message) if readable else None
            found.append(VersionPath(_keys(one), path, readable))
        return Values(
            PROTOBUF,
            writers=tuple(WriterSchema(one.version) for one in versions),
            message=ValuesMessage(message, reader.version),
            reading=reading_of(read_by.schema, message, tuple(found)),
        )

    def _versions(self) -> list[SubjectVersion]:
        found = self._registry.query(lambda state: state.versions(self._subject, deleted=True))
        if all(one.deleted for one in found):
            raise InvalidRequest(f"no schema is registered. subject={self._subject}")
        return found


def _keys(version: SubjectVersion) -> tuple[str, ...]:
    return version_key(version.schema_id), version_key(version.content.guid)


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
