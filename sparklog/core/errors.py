"""The error tree. A class exists only if the caller acts differently on it.

- SparklogError
  - InvalidRequest: fix the call; retrying cannot help.
    - InvalidConfig: unknown or contradictory setting.
    - UnknownTopicOrPartition
      - TopicDeleted: the topic was deleted; it is a Fenced error, too.
    - TopicAlreadyExists
    - InvalidPartitions: fewer partitions than before, none, or too many.
    - InvalidReplicationFactor: none, or more than there are live brokers.
    - InvalidReplicaAssignment: brokers named twice, unknown, or in the wrong number.
    - NoReassignmentInProgress
    - ElectionNotNeeded: the partition has that leader already.
    - PreferredLeaderNotAvailable: the first replica is not in sync; try again when it is.
    - InvalidTopic: illegal topic name, or a topic that clients must not change.
    - PolicyViolation: the topic's settings, or a limit of the cluster, do not allow it.
    - ClusterAuthorizationFailed: no right on the cluster, or only its brokers may send this.
    - TopicAuthorizationFailed: the client has no right to do this with the topic.
    - GroupAuthorizationFailed: the client has no right to do this with the group.
    - TransactionalIdAuthorizationFailed: the client may not use the transactional id.
    - SecurityDisabled: there is no authorizer, so there are no ACLs.
    - UnsupportedSaslMechanism: the listener does not offer the mechanism.
    - IllegalSaslState: the request is not allowed in this state of the authentication.
    - SaslAuthenticationFailed: the credentials are wrong, or the session cannot be renewed.
    - ResourceNotFound: no such user has credentials.
    - DuplicateResource: the request names a user twice.
    - UnacceptableCredential: a password or its number of iterations is not allowed.
    - RecordTooLarge: over `max.message.bytes`.
    - RecordsRefused: a batch, possibly for some of its records only.
      - InvalidRecord: the topic does not accept a record or batch.
        - UnknownSchema: a schema of a record is not registered, as far as the broker knows.
      - InvalidTimestamp: further from now than the topic allows.
    - OutOfOrderSequence: an idempotent producer's batch before this one is missing.
    - InvalidProducerEpoch: a newer producer has taken over the producer id.
    - InvalidTxnState: a write that the producer's transaction does not allow.
    - TransactionCoordinatorFenced: a marker of a coordinator that was replaced.
    - ProducerFenced: a newer producer has the transactional id; stop.
    - InvalidProducerIdMapping: the producer id is not that of the transactional id.
    - InvalidTransactionTimeout: longer than the brokers allow for a transaction.
    - TransactionalIdNotFound
    - TransactionAbortable: abort the transaction; the producer may continue after that.
    - GroupError: a group coordinator rejects the request.
      - InconsistentGroupProtocol: the members use another protocol.
      - UnknownMemberId: join again, without the id.
      - GroupIdNotFound
      - GroupMaxSizeReached
      - FencedInstanceId: another member has taken over the instance id.
      - FencedMemberEpoch: give up all partitions and join again.
      - UnreleasedInstanceId: join again when the previous member has left.
      - UnsupportedAssignor
      - StaleMemberEpoch: try again with the epoch of the next heartbeat.
      - InvalidRegularExpression
  - CorruptMessage: received bytes were damaged in transit; send them again.
  - OffsetOutOfRange: apply the reset policy.
  - NotServing: refresh metadata, and use the new leader.
    - NotCoordinator: another broker coordinates the group or transactional id; find it.
  - UnknownLeaderEpoch: this broker does not know that leader yet; try again.
  - Fenced: stop for good.
  - Unavailable: back off and try again.
    - LeaderNotAvailable: the partition has no leader yet.
    - NotEnoughReplicas: fewer in sync than `min.insync.replicas`; nothing was appended.
    - NotEnoughReplicasAfterAppend: the same, detected after the append.
    - ConcurrentTransactions: the previous transaction is still ending; try again soon.
    - CoordinatorLoading: the coordinator is reading its log; try again soon.
    - CoordinatorNotAvailable: there is none now, or it cannot write; find it again.
  - OutcomeUnknown: read back before trying again.
  - PartitionDamaged: the partition has no leader until it is repaired.
  - DataCorrupt: stop, and alert an operator.
    - UnreadableRecords: a batch that cannot be read; reads can continue without it.
    - RootEmptied: the store lost what a running broker wrote; every broker stops.
    - InvalidJson: a document is no JSON, too large or nested too deeply.

Each class carries Kafka's error number, for handlers to look up. Messages say what happened and
what to do, with the variables at the end as key=value. Source: Kafka protocol guide, error codes.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple


class SparklogError(Exception):
    """Base of every error that sparklog raises on purpose."""

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
    """The number of partitions is not possible."""

    kafka_code = 37


class InvalidReplicationFactor(InvalidRequest):
    """Partitions cannot have that many replicas now."""

    kafka_code = 38


class InvalidReplicaAssignment(InvalidRequest):
    """The brokers named for a partition cannot be its replicas."""

    kafka_code = 39


class NoReassignmentInProgress(InvalidRequest):
    """There is no reassignment to cancel."""

    kafka_code = 85


class ElectionNotNeeded(InvalidRequest):
    """The partition has the requested leader already."""

    kafka_code = 84


class PreferredLeaderNotAvailable(InvalidRequest):
    """The partition's first replica is not alive and in sync: try again when it is."""

    kafka_code = 80


class SecurityDisabled(InvalidRequest):
    """Brokers have no authorizer, so there are no access control lists."""

    kafka_code = 54


class UnsupportedSaslMechanism(InvalidRequest):
    """The listener does not offer the SASL mechanism."""

    kafka_code = 33


class IllegalSaslState(InvalidRequest):
    """The request is not allowed in this state of the authentication."""

    kafka_code = 34


class SaslAuthenticationFailed(InvalidRequest):
    """The client did not prove its identity."""

    kafka_code = 58


class DuplicateResource(InvalidRequest):
    """A request names a resource twice."""

    kafka_code = 92


class UnacceptableCredential(InvalidRequest):
    """A credential is not allowed: empty, too long, or with too few or too many iterations."""

    kafka_code = 93


class ResourceNotFound(InvalidRequest):
    """There is no resource of that name."""

    kafka_code = 91


class InvalidTopic(InvalidRequest):
    """The topic name is illegal, or the topic holds the cluster's own state."""

    kafka_code = 17


class PolicyViolation(InvalidRequest):
    """The topic's settings, or a limit of the cluster, do not allow it: change them first."""

    kafka_code = 44


class ClusterAuthorizationFailed(InvalidRequest):
    """The client has no right to this on the cluster, or only brokers of the cluster may ask."""

    kafka_code = 31


class TopicAuthorizationFailed(InvalidRequest):
    """The client has no right to do this with the topic: an ACL has to allow it."""

    kafka_code = 29


class GroupAuthorizationFailed(InvalidRequest):
    """The client has no right to do this with the group: an ACL has to allow it."""

    kafka_code = 30


class TransactionalIdAuthorizationFailed(InvalidRequest):
    """The client has no right to use the transactional id: an ACL has to allow it."""

    kafka_code = 53


class RecordTooLarge(InvalidRequest):
    """A record exceeds `max.message.bytes`."""

    kafka_code = 10


class RecordError(NamedTuple):
    """The reason for which one record of a batch is rejected."""

    batch_index: int
    """Index in the batch, counted from 0."""
    message: str


class RecordsRefused(InvalidRequest):
    """A batch is rejected, possibly for some of its records only."""

    def __init__(self, message: str, record_errors: tuple[RecordError, ...] = ()) -> None:
        """Set the message and the records at fault; none if the whole batch is."""
        super().__init__(message)
        self.record_errors = record_errors


class InvalidRecord(RecordsRefused):
    """The topic does not accept a batch, or a record in it."""

    kafka_code = 87


class UnknownSchema(InvalidRecord):
    """Records name schemas that are not known: a broker reads the registry's topic again first."""


class InvalidTimestamp(RecordsRefused):
    """A timestamp is further from now than the topic allows, or of a wrong type."""

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
    """The transaction time-out is longer than the brokers allow."""

    kafka_code = 50


class TransactionalIdNotFound(InvalidRequest):
    """The transactional id does not exist, or it expired."""

    kafka_code = 105


class TransactionAbortable(InvalidRequest):
    """The transaction can no longer be committed: abort it, and continue."""

    kafka_code = 120


class GroupError(InvalidRequest):
    """A group coordinator rejects a request of a member or an administrator."""


class InconsistentGroupProtocol(GroupError):
    """The group's members use another protocol, or share none."""

    kafka_code = 23


class UnknownMemberId(GroupError):
    """The group has no such member: join again, without the id."""

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
    """The member's epoch is not the coordinator's: give up all partitions and join again."""

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
    """The coordinator does not accept the pattern of topic names."""

    kafka_code = 128


class CorruptMessage(SparklogError):
    """A client's bytes were damaged in transit, or are not a record batch: send them again."""

    kafka_code = 2
    retriable = True


class OffsetOutOfRange(SparklogError):
    """The offset was deleted or is not written yet: apply `auto.offset.reset`."""

    kafka_code = 1


class NotServing(SparklogError):
    """Another broker leads the partition: refresh metadata and use it."""

    kafka_code = 6
    retriable = True


class NotCoordinator(NotServing):
    """Another broker coordinates the group or the transactional id: find it again."""

    kafka_code = 16


class UnknownLeaderEpoch(SparklogError):
    """This broker does not know the leader epoch of the request yet: back off, try again."""

    kafka_code = 75
    retriable = True


class Fenced(SparklogError):
    """A newer owner exists: stop for good."""

    kafka_code = 74


class TopicDeleted(UnknownTopicOrPartition, Fenced):
    """The partition's topic was deleted; one of the same name is another topic."""

    kafka_code = 3


class Unavailable(SparklogError):
    """The store or a peer does not respond: back off and try again."""

    kafka_code = 7
    retriable = True


class LeaderNotAvailable(Unavailable):
    """The partition has no leader yet: try again in a moment."""

    kafka_code = 5


class NotEnoughReplicas(Unavailable):
    """Fewer brokers are in sync than `min.insync.replicas`: nothing was appended; try again."""

    kafka_code = 19


class NotEnoughReplicasAfterAppend(Unavailable):
    """Appended, but fewer brokers were in sync than `min.insync.replicas` when it was committed."""

    kafka_code = 20


class ConcurrentTransactions(Unavailable):
    """The previous transaction is still ending: try again in a moment."""

    kafka_code = 51


class CoordinatorLoading(Unavailable):
    """This broker is the coordinator, but still reads the log: try again in a moment."""

    kafka_code = 14


class CoordinatorNotAvailable(Unavailable):
    """There is no coordinator, or it cannot commit its decision now: find it again."""

    kafka_code = 15


class OutcomeUnknown(SparklogError):
    """The write may or may not have happened: read back before trying again."""

    kafka_code = 7


class PartitionDamaged(SparklogError):
    """A partition's own log cannot be read or continued: it has no leader until it is repaired."""

    kafka_code = 56
    retriable = True


class DataCorrupt(SparklogError):
    """Stored or received bytes fail their checksum or break the format: stop and investigate."""

    kafka_code = 2


class InvalidJson(DataCorrupt, ValueError):
    """A document is no JSON, or exceeds the limits on its size and nesting."""


class UnreadableRecords(DataCorrupt):
    """An older version acknowledged a producer's batch whose records cannot be read."""


class RootEmptied(DataCorrupt):
    """The store no longer has what this broker wrote: restore it, then start the brokers again."""
