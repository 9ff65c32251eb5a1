"""From a broker's error code to one of our errors.

A class says what the caller does next, so two codes share a class where the answer is the same.
What was written and not acknowledged is `OutcomeUnknown`: it may be in the log.
Source: Kafka protocol guide, error codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from sparklog.core.errors import (
    DataCorrupt,
    Fenced,
    GroupIdNotFound,
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
    ErrorCode.group_id_not_found: GroupIdNotFound,
    ErrorCode.broker_not_available: Unavailable,
    ErrorCode.eligible_leaders_not_available: Unavailable,
    ErrorCode.preferred_leader_not_available: Unavailable,
    ErrorCode.unknown_server_error: SparklogError,
}
"""Every other code is `Unavailable` when Kafka calls it retriable, else `InvalidRequest`."""


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
        words = message or known.name.replace("_", " ")
    return kind(told(doing, words, name, variables))


def told(doing: str, words: str, name: str, variables: Mapping[str, Any]) -> str:
    """Return a message: what was not done and why, with the variables at its end."""
    known = "".join(f" {key}={value}" for key, value in variables.items() if value is not None)
    sentence = " ".join(words.split()).rstrip(".")
    return f"{doing}: {sentence}. error={name}{known}"
