"""Maps brokers' error codes to the classes of our errors.

The module loads Kafka's protocol, so `errors` imports it with the first error. Source: Kafka
protocol guide, error codes.
"""

from __future__ import annotations

from collections.abc import Mapping

from kio.schema.errors import ErrorCode

from sparklog.core.errors import (
    ClusterAuthorizationFailed,
    DataCorrupt,
    DuplicateResource,
    Fenced,
    GroupAuthorizationFailed,
    GroupIdNotFound,
    IllegalSaslState,
    InvalidConfig,
    InvalidPartitions,
    InvalidRequest,
    InvalidTopic,
    InvalidTxnState,
    NotServing,
    OffsetOutOfRange,
    OutcomeUnknown,
    PolicyViolation,
    RecordTooLarge,
    ResourceNotFound,
    SaslAuthenticationFailed,
    SecurityDisabled,
    SparklogError,
    TopicAlreadyExists,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    UnacceptableCredential,
    Unavailable,
    UnknownTopicOrPartition,
    UnsupportedSaslMechanism,
)
from sparklog.core.token_errors import (
    DelegationTokenAuthDisabled,
    DelegationTokenAuthorizationFailed,
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    DelegationTokenRequestNotAllowed,
    InvalidPrincipalType,
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
    ErrorCode.policy_violation: PolicyViolation,
    ErrorCode.topic_already_exists: TopicAlreadyExists,
    ErrorCode.invalid_partitions: InvalidPartitions,
    ErrorCode.invalid_config: InvalidConfig,
    ErrorCode.request_timed_out: OutcomeUnknown,
    ErrorCode.network_exception: OutcomeUnknown,
    ErrorCode.not_enough_replicas_after_append: OutcomeUnknown,
    ErrorCode.invalid_producer_epoch: Fenced,
    ErrorCode.producer_fenced: Fenced,
    ErrorCode.invalid_txn_state: InvalidTxnState,
    ErrorCode.fenced_instance_id: Fenced,
    ErrorCode.fenced_leader_epoch: NotServing,
    ErrorCode.group_id_not_found: GroupIdNotFound,
    ErrorCode.topic_authorization_failed: TopicAuthorizationFailed,
    ErrorCode.group_authorization_failed: GroupAuthorizationFailed,
    ErrorCode.cluster_authorization_failed: ClusterAuthorizationFailed,
    ErrorCode.transactional_id_authorization_failed: TransactionalIdAuthorizationFailed,
    ErrorCode.unsupported_sasl_mechanism: UnsupportedSaslMechanism,
    ErrorCode.illegal_sasl_state: IllegalSaslState,
    ErrorCode.sasl_authentication_failed: SaslAuthenticationFailed,
    ErrorCode.security_disabled: SecurityDisabled,
    ErrorCode.resource_not_found: ResourceNotFound,
    ErrorCode.duplicate_resource: DuplicateResource,
    ErrorCode.unacceptable_credential: UnacceptableCredential,
    ErrorCode.delegation_token_auth_disabled: DelegationTokenAuthDisabled,
    ErrorCode.delegation_token_not_found: DelegationTokenNotFound,
    ErrorCode.delegation_token_owner_mismatch: DelegationTokenOwnerMismatch,
    ErrorCode.delegation_token_request_not_allowed: DelegationTokenRequestNotAllowed,
    ErrorCode.delegation_token_authorization_failed: DelegationTokenAuthorizationFailed,
    ErrorCode.delegation_token_expired: DelegationTokenExpired,
    ErrorCode.invalid_principal_type: InvalidPrincipalType,
    ErrorCode.broker_not_available: Unavailable,
    ErrorCode.eligible_leaders_not_available: Unavailable,
    ErrorCode.preferred_leader_not_available: Unavailable,
    ErrorCode.unknown_server_error: SparklogError,
}
"""Every other code is `Unavailable` if Kafka calls it retriable, else `InvalidRequest`."""


def kind_of(code: int) -> tuple[type[SparklogError], str]:
    """Return the class of an error code and Kafka's name of it.

    Raises:
        ValueError: the code is unknown.
    """
    known = ErrorCode(code)
    retry = Unavailable if known.retriable else InvalidRequest
    return _OF_BROKER.get(known, retry), known.name
