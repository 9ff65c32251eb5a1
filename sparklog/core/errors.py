"""The error tree. A class exists only if the caller acts differently on it.

    SparklogError
    ├── InvalidRequest            fix the call; retrying cannot help
    │   ├── InvalidConfig         unknown or contradictory setting
    │   ├── UnknownTopicOrPartition
    │   ├── TopicAlreadyExists
    │   ├── InvalidPartitions     fewer partitions than before, none, or too many
    │   ├── InvalidReplicationFactor   none, or more than there are live brokers
    │   ├── InvalidReplicaAssignment   brokers named twice, unknown, or in the wrong number
    │   ├── NoReassignmentInProgress
    │   ├── ElectionNotNeeded     the partition has that leader already
    │   ├── PreferredLeaderNotAvailable   the first replica is not in sync: try again when it is
    │   ├── InvalidTopic          illegal topic name, or a topic that clients do not change
    │   ├── PolicyViolation       the topic's settings, or a limit of the cluster, rule it out
    │   ├── SecurityDisabled      there is no authorizer, so there are no ACLs
    │   ├── UnsupportedSaslMechanism   brokers authenticate nobody
    │   ├── ResourceNotFound      nobody of that name has credentials
    │   ├── RecordTooLarge        over `max.message.bytes`
    │   ├── RecordsRefused        a batch, perhaps for some of its records only
    │   │   ├── InvalidRecord     a record or batch that the topic does not take
    │   │   └── InvalidTimestamp  further from now than the topic allows
    │   ├── OutOfOrderSequence    an idempotent producer's batch before this one is missing
    │   ├── InvalidProducerEpoch  a newer producer has taken over the producer id
    │   ├── InvalidTxnState       a write that the producer's transaction does not allow
    │   ├── TransactionCoordinatorFenced   a marker of a coordinator that was replaced
    │   ├── ProducerFenced        a newer producer has the transactional id: stop
    │   ├── InvalidProducerIdMapping   the producer id is not that of the transactional id
    │   ├── InvalidTransactionTimeout  longer than the brokers let a transaction be open
    │   ├── TransactionalIdNotFound
    │   ├── TransactionAbortable  abort the transaction; the producer may go on after that
    │   └── GroupError            a coordinator of groups refuses
    │       ├── InconsistentGroupProtocol   the members speak another protocol
    │       ├── UnknownMemberId   join anew, without the id
    │       ├── GroupIdNotFound
    │       ├── GroupMaxSizeReached
    │       ├── FencedInstanceId  another member has taken over the instance id
    │       ├── FencedMemberEpoch      give up all partitions and join anew
    │       ├── UnreleasedInstanceId   join again when the member before has left
    │       ├── UnsupportedAssignor
    │       ├── StaleMemberEpoch  try again with the epoch of the next heartbeat
    │       └── InvalidRegularExpression
    ├── CorruptMessage            received bytes were damaged on their way: send them again
    ├── OffsetOutOfRange          apply the reset policy
    ├── NotServing                refresh metadata, go elsewhere
    │   └── NotCoordinator        another broker looks after the group or transactional id: find it
    ├── UnknownLeaderEpoch        this broker has not heard of that leader yet: try again
    ├── Fenced                    stop for good
    ├── Unavailable               back off and try again
    │   ├── LeaderNotAvailable    the partition has no leader yet
    │   ├── NotEnoughReplicas     in sync: fewer than `min.insync.replicas`; nothing was appended
    │   ├── NotEnoughReplicasAfterAppend   the same, found out after the append
    │   ├── ConcurrentTransactions   the transaction before is still ending: try again in a moment
    │   ├── CoordinatorLoading    the coordinator is reading its log: ask it again in a moment
    │   └── CoordinatorNotAvailable   there is none now, or it cannot write: find it again
    ├── OutcomeUnknown            read back before trying again
    └── DataCorrupt               stop, page somebody
        └── UnreadableRecords     a batch that nobody can read; reads can go on without it

Each class carries Kafka's error number, so a protocol handler translates by lookup. Messages say
what happened and what to do, with the variables at the end as key=value.
Source: Kafka protocol guide, error codes.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple


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


class InvalidReplicationFactor(InvalidRequest):
    """Partitions cannot have that many replicas now."""

    kafka_code = 38


class InvalidReplicaAssignment(InvalidRequest):
    """The brokers named for a partition cannot be its replicas."""

    kafka_code = 39


class NoReassignmentInProgress(InvalidRequest):
    """There is no move of replicas to cancel."""

    kafka_code = 85


class ElectionNotNeeded(InvalidRequest):
    """The partition is led as asked for already."""

    kafka_code = 84


class PreferredLeaderNotAvailable(InvalidRequest):
    """The partition's first replica is not alive and in sync: try again when it is."""

    kafka_code = 80


class SecurityDisabled(InvalidRequest):
    """Brokers have no authorizer, so there are no access control lists."""

    kafka_code = 54


class UnsupportedSaslMechanism(InvalidRequest):
    """Brokers authenticate nobody."""

    kafka_code = 33


class ResourceNotFound(InvalidRequest):
    """There is none of that name."""

    kafka_code = 91


class InvalidTopic(InvalidRequest):
    """The topic name is illegal, or the topic holds the cluster's own state."""

    kafka_code = 17


class PolicyViolation(InvalidRequest):
    """The topic's settings, or a limit of the cluster, rule the request out: change them first."""

    kafka_code = 44


class RecordTooLarge(InvalidRequest):
    """A record exceeds `max.message.bytes`."""

    kafka_code = 10


class RecordError(NamedTuple):
    """Why one record of a batch is refused."""

    batch_index: int
    """Its place in the batch, counted from 0."""
    message: str


class RecordsRefused(InvalidRequest):
    """A batch is refused, perhaps for some of its records only."""

    def __init__(self, message: str, record_errors: tuple[RecordError, ...] = ()) -> None:
        """Tell what is wrong.

        Args:
            message: what is wrong, and with what.
            record_errors: the records at fault; none if the batch as a whole is.
        """
        super().__init__(message)
        self.record_errors = record_errors


class InvalidRecord(RecordsRefused):
    """A batch, or a record in it, is not what the topic takes."""

    kafka_code = 87


class InvalidTimestamp(RecordsRefused):
    """A timestamp is further from now than the topic allows, or of a type it is not for."""

    kafka_code = 32


class OutOfOrderSequence(InvalidRequest):
    """A batch of an idempotent producer does not follow its last one here: one is missing."""

    kafka_code = 45


class InvalidProducerEpoch(InvalidRequest):
    """The producer id belongs to a newer producer, with a higher epoch."""

    kafka_code = 47


class InvalidTxnState(InvalidRequest):
    """The producer's transaction does not allow this write now."""

    kafka_code = 48


class TransactionCoordinatorFenced(InvalidRequest):
    """A transaction marker came from a coordinator that was replaced."""

    kafka_code = 52


class ProducerFenced(InvalidRequest):
    """A newer producer has the transactional id, or its transaction timed out: stop for good."""

    kafka_code = 90


class InvalidProducerIdMapping(InvalidRequest):
    """The producer id is not the one that the transactional id has now."""

    kafka_code = 49


class InvalidTransactionTimeout(InvalidRequest):
    """A transaction may not be open for as long as that."""

    kafka_code = 50


class TransactionalIdNotFound(InvalidRequest):
    """Nobody uses the transactional id, or it was forgotten."""

    kafka_code = 105


class TransactionAbortable(InvalidRequest):
    """The transaction cannot be committed any more: abort it, and go on."""

    kafka_code = 120


class GroupError(InvalidRequest):
    """A coordinator refuses what a member of a group, or somebody about a group, asked for."""


class InconsistentGroupProtocol(GroupError):
    """The group's members speak another protocol, or none that all know."""

    kafka_code = 23


class UnknownMemberId(GroupError):
    """The group has no such member: join anew, without the id."""

    kafka_code = 25


class GroupIdNotFound(GroupError):
    """There is no such group."""

    kafka_code = 69


class GroupMaxSizeReached(GroupError):
    """The group has as many members as `group.*.max.size` allows."""

    kafka_code = 81


class FencedInstanceId(GroupError):
    """Another member has taken over the instance id: stop for good."""

    kafka_code = 82


class FencedMemberEpoch(GroupError):
    """The member's epoch is not the coordinator's: give up all partitions and join anew."""

    kafka_code = 110


class UnreleasedInstanceId(GroupError):
    """The instance id belongs to a member that has not left: join again when it has."""

    kafka_code = 111


class UnsupportedAssignor(GroupError):
    """The coordinator has no such assignor."""

    kafka_code = 112


class StaleMemberEpoch(GroupError):
    """The member's epoch is an older one: try again with the one of its next heartbeat."""

    kafka_code = 113


class InvalidRegularExpression(GroupError):
    """The pattern of topic names is none that the coordinator takes."""

    kafka_code = 128


class CorruptMessage(SparklogError):
    """What a client sent was damaged on its way, or never was a record batch: send it again."""

    kafka_code = 2
    retriable = True


class OffsetOutOfRange(SparklogError):
    """The offset was trimmed away or is not written yet: apply `auto.offset.reset`."""

    kafka_code = 1


class NotServing(SparklogError):
    """Somebody else owns the partition: refresh metadata and go there."""

    kafka_code = 6
    retriable = True


class NotCoordinator(NotServing):
    """Another broker coordinates the group or the transactional id: find it again."""

    kafka_code = 16


class UnknownLeaderEpoch(SparklogError):
    """The caller knows of a leader that this broker has not heard of yet: back off, try again."""

    kafka_code = 75
    retriable = True


class Fenced(SparklogError):
    """A newer owner exists: stop for good."""

    kafka_code = 74


class TopicDeleted(UnknownTopicOrPartition, Fenced):
    """The partition's topic was deleted; one of the same name is another topic."""

    kafka_code = 3


class Unavailable(SparklogError):
    """The store or a peer does not answer: back off and try again."""

    kafka_code = 7
    retriable = True


class LeaderNotAvailable(Unavailable):
    """The partition has no leader yet: ask again in a moment."""

    kafka_code = 5


class NotEnoughReplicas(Unavailable):
    """Fewer brokers are in sync than `min.insync.replicas`: nothing was appended; try again."""

    kafka_code = 19


class NotEnoughReplicasAfterAppend(Unavailable):
    """Appended, but fewer brokers were in sync than `min.insync.replicas` when it was committed."""

    kafka_code = 20


class ConcurrentTransactions(Unavailable):
    """The transaction before this one is still ending: try again in a moment."""

    kafka_code = 51


class CoordinatorLoading(Unavailable):
    """This broker coordinates it, as soon as it has read the log: ask it again."""

    kafka_code = 14


class CoordinatorNotAvailable(Unavailable):
    """There is no coordinator, or it cannot have its decision committed now: find it again."""

    kafka_code = 15


class OutcomeUnknown(SparklogError):
    """The write may or may not have happened: read back before trying again."""

    kafka_code = 7


class PartitionDamaged(SparklogError):
    """A partition's own log cannot be read or gone on with: nobody leads it until it is mended."""

    kafka_code = 56
    retriable = True


class DataCorrupt(SparklogError):
    """Stored or received bytes fail their checksum or break the format: stop and look."""

    kafka_code = 2


class UnreadableRecords(DataCorrupt):
    """A producer's batch was acknowledged by an older version, and nobody can read its records."""
