"""The options of a write: those of Spark's Kafka sink, a root instead of an address, nothing else.

Names are case-insensitive, as everywhere in Spark. The sink accepts producer settings (`kafka.*`)
so that a job can be moved as it is. Compression acts; settings of connections or batching have
nothing to act on. The sink rejects settings that would change the records or their partitions.

A write accepts the columns of Spark's Kafka sink, and `timestamp`.

Other columns are not written, as in the Kafka sink. So rows read from a topic can be written to
one as they are. Messages are worded as the Kafka sink's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

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

from sparklog.client.security import SecuritySettings
from sparklog.core.config.model import INT_MAX
from sparklog.core.config.topic import TOPIC_SETTINGS
from sparklog.core.errors import InvalidConfig, InvalidRequest
from sparklog.spark.access.log_options import parse_bootstrap, parse_root, parse_security_options

KNOWN: Final = (
    "path",
    "topic",
    "includeHeaders",
    "txnAppId",
    "txnVersion",
    "transactional",
    "checkpointLocation",
    "queryName",
)
"""`includeHeaders` has no effect, as in Kafka's sink: a `headers` column is written if there is
one. The last two are Spark's own; it hands them to every streaming sink."""

_REFUSED: Final = {
    "key.serializer": "keys are written as they are; convert the column instead",
    "value.serializer": "values are written as they are; convert the column instead",
    "partitioner.class": "give every row its partition in a `partition` column instead",
    "interceptor.classes": "change the rows before they are written instead",
}
TRANSACTION_TIMEOUT_MS: Final = 60_000
"""The longest time that a transaction may be open. Consumers of committed records may have to wait
as long for a driver that died.
"""
_APP_ID: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of one write, checked."""

    root: str
    topic: str | None = None
    """The topic of all rows; it goes before a `topic` column."""
    compression: str | None = None
    """Kafka's `compression.type` of the producer; acts where the topic's own is `producer`."""
    zstd_level: str | None = None
    bootstrap: str | None = None
    """Brokers to find leaders by; by default those that the root's registry names."""
    security: SecuritySettings | None = None
    """TLS and SASL, with references to secrets; None takes those of the process."""
    transaction: tuple[str, int] | None = None
    """`(txnAppId, txnVersion)`: a batch write with the same or a lower version writes nothing."""
    transactional: bool = True
    """True if a batch of a stream is one transaction where brokers lead all it writes to."""
    transactional_id: str | None = None
    """The transactional id; by default the query's own."""
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS


def parse_sink_options(options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Check the options of a write.

    Raises:
        InvalidConfig: unknown, missing, contradictory or unsupported options.
    """
    given = {name.lower(): value for name, value in options.items()}
    _check_names(given)
    return SinkOptions(
        root=parse_root(given.get("path"), "write to"),
        topic=_topic(given.get("topic")),
        compression=_compression(given.get("kafka.compression.type")),
        zstd_level=_zstd_level(given.get("kafka.compression.zstd.level")),
        bootstrap=parse_bootstrap(given.get("kafka.bootstrap.servers")),
        security=parse_security_options(given),
        transaction=_transaction(given, streaming),
        transactional=_transactional(given.get("transactional")),
        transactional_id=_transactional_id(given.get("kafka.transactional.id")),
        transaction_timeout_ms=_timeout_ms(given.get("kafka.transaction.timeout.ms")),
    )


def _check_names(given: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in KNOWN}
    for name in given:
        if name.startswith("kafka."):
            _check_producer_setting(name.removeprefix("kafka."), given[name])
        elif name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {known[close[0]]}?" if close else "it may be misspelt."
            raise InvalidConfig(
                f"the sparklog sink has no such option; {hint} It knows {', '.join(KNOWN[:6])} and "
                f"kafka.*. option={name}"
            )


def _check_producer_setting(name: str, value: str) -> None:
    advice = _REFUSED.get(name)
    if name == "partitioner.ignore.keys" and value.strip().lower() == "true":
        advice = "drop the key column, or give every row its partition in a `partition` column"
    if advice is not None:
        raise InvalidConfig(f"Kafka option '{name}' is not supported: {advice}. value={value}")


def _topic(topic: str | None) -> str | None:
    if topic is None:
        return None
    if not topic.strip():
        raise InvalidConfig("the option `topic` is empty; name a topic or use a `topic` column")
    return topic.strip()


def _compression(codec: str | None) -> str | None:
    if codec is None:
        return None
    if codec.strip().lower() not in _CODECS:
        raise InvalidConfig(
            f"no such codec; choose from {', '.join(_CODECS)}. kafka.compression.type={codec}"
        )
    return codec.strip().lower()


def _zstd_level(level: str | None) -> str | None:
    if level is not None:
        TOPIC_SETTINGS["compression.zstd.level"].parse(level)
    return level


def _transactional(word: str | None) -> bool:
    if word is not None and word.strip().lower() not in ("true", "false"):
        raise InvalidConfig(f"choose from true, false. transactional={word}")
    return word is None or word.strip().lower() == "true"


def _transactional_id(text: str | None) -> str | None:
    if text is not None and not text.strip():
        raise InvalidConfig("the option kafka.transactional.id is empty; name one, or leave it out")
    return None if text is None else text.strip()


def _timeout_ms(text: str | None) -> int:
    if text is None:
        return TRANSACTION_TIMEOUT_MS
    if not text.strip().isdecimal() or not 0 < int(text) <= INT_MAX:
        raise InvalidConfig(
            f"a time-out is a number of milliseconds above 0. kafka.transaction.timeout.ms={text}"
        )
    return int(text)


def _transaction(given: Mapping[str, str], streaming: bool) -> tuple[str, int] | None:
    app_id, version = given.get("txnappid"), given.get("txnversion")
    if app_id is None and version is None:
        return None
    if streaming:
        raise InvalidConfig(
            "txnAppId and txnVersion are for batch writes, for example in foreachBatch; a "
            "streaming write already knows its query and batch. Leave them out"
        )
    if app_id is None or version is None:
        raise InvalidConfig(
            f"txnAppId and txnVersion belong together. txnAppId={app_id} txnVersion={version}"
        )
    if not _APP_ID.fullmatch(app_id) or not version.strip().isdecimal():
        raise InvalidConfig(
            "txnAppId takes letters, digits, '.', '_' and '-', and txnVersion a number from 0. "
            f"txnAppId={app_id!r} txnVersion={version!r}"
        )
    return app_id, int(version)


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
