"""From a broker's or librdkafka's error to one of ours.

A class says what the caller does next, so two codes share a class where the answer is the same.
What was written and not acknowledged is `OutcomeUnknown`: it may be in the log.
Source: Kafka protocol guide, error codes; librdkafka's rd_kafka_resp_err_t, whose own are negative.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from kio.schema.errors import ErrorCode

from sparklog.core.errors import (
    DataCorrupt,
    Fenced,
    InvalidConfig,
    InvalidPartitions,
    InvalidRequest,
    InvalidTopic,
    NotServing,
    OffsetOutOfRange,
    OutcomeUnknown,
    RecordTooLarge,
    SparklogError,
    TopicAlreadyExists,
    Unavailable,
    UnknownTopicOrPartition,
)

_OF_BROKER: Mapping[ErrorCode, type[SparklogError]] = {
    ErrorCode.offset_out_of_range: OffsetOutOfRange,
    ErrorCode.corrupt_message: DataCorrupt,
    ErrorCode.unknown_topic_or_partition: UnknownTopicOrPartition,
    ErrorCode.unknown_topic_id: UnknownTopicOrPartition,
    ErrorCode.leader_not_available: NotServing,
    ErrorCode.not_leader_or_follower: NotServing,
    ErrorCode.message_too_large: RecordTooLarge,
    ErrorCode.record_list_too_large: RecordTooLarge,
    ErrorCode.invalid_topic_exception: InvalidTopic,
    ErrorCode.topic_already_exists: TopicAlreadyExists,
    ErrorCode.invalid_partitions: InvalidPartitions,
    ErrorCode.invalid_config: InvalidConfig,
    ErrorCode.request_timed_out: OutcomeUnknown,
    ErrorCode.network_exception: OutcomeUnknown,
    ErrorCode.not_enough_replicas_after_append: OutcomeUnknown,
    ErrorCode.invalid_producer_epoch: Fenced,
    ErrorCode.producer_fenced: Fenced,
    ErrorCode.fenced_instance_id: Fenced,
    ErrorCode.fenced_leader_epoch: NotServing,
    ErrorCode.broker_not_available: Unavailable,
    ErrorCode.eligible_leaders_not_available: Unavailable,
    ErrorCode.preferred_leader_not_available: Unavailable,
    ErrorCode.unknown_server_error: SparklogError,
}
"""Every other code is `Unavailable` when Kafka calls it retriable, else `InvalidRequest`."""

_OF_LIBRARY: Mapping[str, type[SparklogError]] = {
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


def of_code(code: int, message: str | None, doing: str, **variables: Any) -> SparklogError:
    """Return the error for a broker's error code; `message` is the broker's own, if it sent one."""
    try:
        known = ErrorCode(code)
    except ValueError:
        name, kind = str(code), SparklogError
        words = message or "the broker answered with an error code of a newer protocol"
    else:
        name = known.name.upper()
        retry = Unavailable if known.retriable else InvalidRequest
        kind = _OF_BROKER.get(known, retry)
        words = message or KafkaError(code).str()
    return kind(_message(doing, words, name, variables))


def of_kafka(error: KafkaError, doing: str, **variables: Any) -> SparklogError:
    """Return the error for one of confluent-kafka's."""
    code = error.code()
    if code >= 0 or code == int(ErrorCode.unknown_server_error):
        return of_code(code, error.str(), doing, **variables)
    kind = _OF_LIBRARY.get(error.name(), Unavailable if error.retriable() else SparklogError)
    return kind(_message(doing, error.str(), error.name().lstrip("_"), variables))


def of_exception(exception: KafkaException, doing: str, **variables: Any) -> SparklogError:
    """Return the error for what confluent-kafka raised."""
    error = exception.args[0] if exception.args else None
    if isinstance(error, KafkaError):
        return of_kafka(error, doing, **variables)
    return SparklogError(_message(doing, str(exception), "unknown", variables))


def _message(doing: str, words: str, name: str, variables: Mapping[str, Any]) -> str:
    told = " ".join(f"{key}={value}" for key, value in variables.items() if value is not None)
    words = words.removeprefix("Broker: ").removeprefix("Local: ")
    sentence = " ".join(words.split()).rstrip(".")
    return f"{doing}: {sentence}. error={name}" + (f" {told}" if told else "")
