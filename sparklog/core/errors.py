"""The error tree. A class exists only if the caller acts differently on it.

    SparklogError
    ├── InvalidRequest            fix the call; retrying cannot help
    │   ├── InvalidConfig         unknown or contradictory setting
    │   ├── UnknownTopicOrPartition
    │   ├── TopicAlreadyExists
    │   ├── InvalidPartitions     fewer partitions than before, none, or too many
    │   ├── InvalidTopic          illegal topic name
    │   └── RecordTooLarge        over `max.message.bytes`
    ├── OffsetOutOfRange          apply the reset policy
    ├── NotServing                refresh metadata, go elsewhere
    ├── Fenced                    stop for good
    ├── Unavailable               back off and try again
    ├── OutcomeUnknown            read back before trying again
    └── DataCorrupt               stop, page somebody

Each class carries Kafka's error number, so a protocol handler translates by lookup. Messages say
what happened and what to do, with the variables at the end as key=value.
Source: Kafka protocol guide, error codes.
"""

from __future__ import annotations

from typing import ClassVar


class SparklogError(Exception):
    """Base of every error sparklog raises on purpose."""

    kafka_code: ClassVar[int] = -1
    retriable: ClassVar[bool] = False


class InvalidRequest(SparklogError):
    """The call itself is wrong: change it."""

    kafka_code = 42


class InvalidConfig(InvalidRequest):
    """A setting is unknown, out of its range, or contradicts another."""

    kafka_code = 40


class UnknownTopicOrPartition(InvalidRequest):
    """No such topic or partition in this log."""

    kafka_code = 3


class TopicAlreadyExists(InvalidRequest):
    """A topic of that name exists."""

    kafka_code = 36


class InvalidPartitions(InvalidRequest):
    """The number of partitions asked for cannot be had."""

    kafka_code = 37


class InvalidTopic(InvalidRequest):
    """The topic name is illegal."""

    kafka_code = 17


class RecordTooLarge(InvalidRequest):
    """A record exceeds `max.message.bytes`."""

    kafka_code = 10


class OffsetOutOfRange(SparklogError):
    """The offset was trimmed away or is not written yet: apply `auto.offset.reset`."""

    kafka_code = 1


class NotServing(SparklogError):
    """Somebody else owns the partition: refresh metadata and go there."""

    kafka_code = 6
    retriable = True


class Fenced(SparklogError):
    """A newer owner exists: stop for good."""

    kafka_code = 74


class Unavailable(SparklogError):
    """The store or a peer does not answer: back off and try again."""

    kafka_code = 7
    retriable = True


class OutcomeUnknown(SparklogError):
    """The write may or may not have happened: read back before trying again."""

    kafka_code = 7


class DataCorrupt(SparklogError):
    """Stored or received bytes fail their checksum or break the format: stop and look."""

    kafka_code = 2
