"""Converts librdkafka's errors to ours.

Its codes from 0 on are the brokers', those below -1 its own.
Source: librdkafka's rd_kafka_resp_err_t.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from sparklog.client.errors import error_text, of_code
from sparklog.core.errors import (
    DataCorrupt,
    Fenced,
    InvalidConfig,
    InvalidRequest,
    OffsetOutOfRange,
    OutcomeUnknown,
    SaslAuthenticationFailed,
    SparklogError,
    Unavailable,
    UnknownTopicOrPartition,
)

UNKNOWN_SERVER_ERROR = -1

_OF_LIBRARY: Mapping[str, type[SparklogError]] = {
    "_AUTHENTICATION": SaslAuthenticationFailed,
    "_SSL": InvalidConfig,
    "_TRANSPORT": Unavailable,
    "_ALL_BROKERS_DOWN": Unavailable,
    "_RESOLVE": Unavailable,
    "_TIMED_OUT": Unavailable,
    "_TIMED_OUT_QUEUE": Unavailable,
    "_WAIT_COORD": Unavailable,
    "_QUEUE_FULL": Unavailable,
    "_PURGE_QUEUE": Unavailable,
    "_MSG_TIMED_OUT": OutcomeUnknown,
    "_PURGE_INFLIGHT": OutcomeUnknown,
    "_UNKNOWN_TOPIC": UnknownTopicOrPartition,
    "_UNKNOWN_PARTITION": UnknownTopicOrPartition,
    "_BAD_MSG": DataCorrupt,
    "_BAD_COMPRESSION": DataCorrupt,
    "_AUTO_OFFSET_RESET": OffsetOutOfRange,
    "_LOG_TRUNCATION": OffsetOutOfRange,
    "_FENCED": Fenced,
    "_FATAL": Fenced,
    "_INVALID_ARG": InvalidRequest,
    "_CONFLICT": InvalidRequest,
    "_UNSUPPORTED_FEATURE": InvalidRequest,
}


def of_kafka(error: KafkaError, doing: str, **variables: Any) -> SparklogError:
    """Return our error for one of confluent-kafka's."""
    code = error.code()
    if code >= 0 or code == UNKNOWN_SERVER_ERROR:
        return of_code(code, _words(error), doing, **variables)
    kind = _OF_LIBRARY.get(error.name(), Unavailable if error.retriable() else SparklogError)
    return kind(error_text(doing, _words(error), error.name().lstrip("_"), variables))


def of_exception(exception: KafkaException, doing: str, **variables: Any) -> SparklogError:
    """Return our error for an exception of confluent-kafka."""
    error = exception.args[0] if exception.args else None
    if isinstance(error, KafkaError):
        return of_kafka(error, doing, **variables)
    return SparklogError(error_text(doing, str(exception), "unknown", variables))


def _words(error: KafkaError) -> str:
    return error.str().removeprefix("Broker: ").removeprefix("Local: ")
