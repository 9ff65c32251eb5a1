"""The records of `__cluster_metadata`. Source: FORMAT.md 8; names as in Kafka's KRaft records.

A record is a JSON object. Newer fields have a default, and are omitted while they have it. So old
records stay readable and new ones short. `decode` skips unknown types and fields, and reports that.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from sparklog.cluster.metadata.json_values import (
    bytes_of,
    numbers,
    quota_entity,
    rate_or_none,
    text_of,
    text_or_none,
    texts,
)
from sparklog.core.bounded_json import parse_json
from sparklog.core.errors import DataCorrupt
from sparklog.core.quotas import QuotaEntity
from sparklog.core.types import UNLED_EPOCH

NO_LEADER = -1
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
GROUP_RESOURCE = 32
"""Kafka's numbers of resource types."""
EVERY_BROKER = ""
"""Resource name of settings for every broker, instead of a broker's id."""
SPARKLOG_VERSION = "sparklog.version"
"""The feature whose levels are the versions of what brokers store and send each other."""
FIRST_LEVEL = 1
"""The level of a feature that the log does not mention."""


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic was created, or its replication factor changed."""

    name: str
    topic_id: str
    replication_factor: int | None = None
    """Replicas of each partition; None uses `default.replication.factor`."""
    creator: str = ""
    """The principal that created the topic; empty if unknown. A known topic keeps its creator."""


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """A partition was created or changed: the record has its whole state."""

    topic_id: str
    partition: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    leader: int = NO_LEADER
    leader_epoch: int = UNLED_EPOCH
    partition_epoch: int = 0
    recovering: bool = False
    wals: tuple[str, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    next_leader: int = NO_LEADER
    take_lead: bool = False


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """A setting was set, or removed if `value` is None."""

    resource_name: str
    """A topic's name, a broker's id, '' for every broker, or a group's id."""
    name: str
    value: str | None
    resource_type: int = TOPIC_RESOURCE


@dataclass(frozen=True, slots=True)
class ClientQuotaRecord:
    """A quota was set, or removed if `value` is None."""

    entity: QuotaEntity
    key: str
    value: float | None


@dataclass(frozen=True, slots=True)
class RemoveTopicRecord:
    """A topic was deleted."""

    topic_id: str


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """The cluster got its id and the secret of its brokers; the first of each wins."""

    cluster_id: str
    secret: str = dataclasses.field(default="", repr=False)
    """32 hex digits, by which brokers know each other; see decision 52."""
    level: int = FIRST_LEVEL
    """The level of `sparklog.version` at which the cluster begins; see decision 74."""


class BrokerEndpoint(NamedTuple):
    """The address that is advertised for one listener of a broker."""

    listener: str
    protocol: str
    """Kafka's security protocol, such as SASL_SSL."""
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class RegisterBrokerRecord:
    """An incarnation of a broker registered; its broker epoch is the offset of this record."""

    broker_id: int
    incarnation: str
    host: str
    """The host and the port by which brokers reach each other."""
    port: int
    rack: str | None = None
    endpoints: tuple[BrokerEndpoint, ...] = ()
    """All listeners; empty for a single PLAINTEXT one."""
    level: int = FIRST_LEVEL
    """The highest level of `sparklog.version` that the broker supports."""


@dataclass(frozen=True, slots=True)
class BrokerRegistrationChangeRecord:
    """A broker was fenced, or shuts down. A record with another broker epoch has no effect."""

    broker_id: int
    broker_epoch: int
    fenced: bool = False
    in_controlled_shutdown: bool = False


@dataclass(frozen=True, slots=True)
class UnregisterBrokerRecord:
    """A broker was unregistered. A record with another broker epoch has no effect."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class ControllerChangeRecord:
    """A broker's incarnation became the controller."""

    broker_id: int
    incarnation: str
    epoch: int


@dataclass(frozen=True, slots=True)
class FeatureLevelRecord:
    """The level of a feature was finalized; it never falls."""

    name: str
    level: int


@dataclass(frozen=True, slots=True)
class BrokerIdsRecord:
    """An application got the broker ids from `first` on; it keeps them when it starts again."""

    application: str
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class ProducerIdsRecord:
    """A broker reserved the unused producer ids below `next_producer_id`."""

    broker_id: int
    broker_epoch: int
    next_producer_id: int


@dataclass(frozen=True, slots=True)
class HeartbeatRecord:
    """A broker that cannot reach the controller proves that it runs; the controller replies."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class AccessControlEntryRecord:
    """An ACL was created. The numbers are Kafka's; see `security.acls`."""

    acl_id: str
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


@dataclass(frozen=True, slots=True)
class RemoveAccessControlEntryRecord:
    """An ACL was deleted."""

    acl_id: str


@dataclass(frozen=True, slots=True)
class UserScramCredentialRecord:
    """A user got a password for a SCRAM mechanism: the record has its derived keys only."""

    name: str
    mechanism: int
    salt: bytes = dataclasses.field(repr=False)
    stored_key: bytes = dataclasses.field(repr=False)
    server_key: bytes = dataclasses.field(repr=False)
    iterations: int


@dataclass(frozen=True, slots=True)
class RemoveUserScramCredentialRecord:
    """A user's password for a SCRAM mechanism was deleted."""

    name: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class DelegationTokenRecord:
    """A token was created or its time changed. Brokers derive its secret: no record has it."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    """Principals as `User:name`; so are owner and requester."""
    issue_timestamp: int
    max_timestamp: int
    expiration_timestamp: int


@dataclass(frozen=True, slots=True)
class RemoveDelegationTokenRecord:
    """A token was removed: it has expired, or a client expired it at once."""

    token_id: str


Record = (
    TopicRecord
    | PartitionRecord
    | ConfigRecord
    | ClientQuotaRecord
    | RemoveTopicRecord
    | ClusterRecord
    | RegisterBrokerRecord
    | BrokerRegistrationChangeRecord
    | UnregisterBrokerRecord
    | ControllerChangeRecord
    | FeatureLevelRecord
    | BrokerIdsRecord
    | ProducerIdsRecord
    | HeartbeatRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | UserScramCredentialRecord
    | RemoveUserScramCredentialRecord
    | DelegationTokenRecord
    | RemoveDelegationTokenRecord
)


@dataclass(frozen=True, slots=True)
class _Field:
    """The JSON form of one attribute of a record."""

    attribute: str
    name: str
    read: Callable[[Any], Any]
    absent: Any = None
    required: bool = True


def _optional(attribute: str, name: str, read: Callable[[Any], Any], absent: Any) -> _Field:
    return _Field(attribute, name, read, absent, required=False)


def endpoints_of(value: Any) -> tuple[BrokerEndpoint, ...]:
    """Return endpoints from JSON values. Raises TypeError or ValueError if they are none."""
    return tuple(
        BrokerEndpoint(str(name), str(protocol), str(host), int(port))
        for name, protocol, host, port in value
    )


_BROKER_ID = _Field("broker_id", "brokerId", int)
_BROKER_EPOCH = _Field("broker_epoch", "brokerEpoch", int)
_INCARNATION = _Field("incarnation", "incarnationId", str)
_ACL_ID = _Field("acl_id", "id", str)
_USER = _Field("name", "name", str)
_MECHANISM = _Field("mechanism", "mechanism", int)
_TOKEN_ID = _Field("token_id", "tokenId", str)
_NEXT_PRODUCER_ID = _Field("next_producer_id", "nextProducerId", int)
_TOPIC_ID = _Field("topic_id", "topicId", str)
_LEVEL = _optional("level", "featureLevel", int, FIRST_LEVEL)

_FIELDS: dict[type[Record], tuple[_Field, ...]] = {
    TopicRecord: (
        _Field("name", "name", str),
        _TOPIC_ID,
        _optional("replication_factor", "replicationFactor", int, None),
        _optional("creator", "createdBy", str, ""),
    ),
    PartitionRecord: (
        _TOPIC_ID,
        _Field("partition", "partitionId", int),
        _Field("replicas", "replicas", numbers),
        _Field("isr", "isr", numbers),
        _Field("leader", "leader", int),
        _Field("leader_epoch", "leaderEpoch", int),
        _optional("partition_epoch", "partitionEpoch", int, 0),
        _optional("recovering", "leaderRecoveryState", bool, absent=False),
        _optional("wals", "wals", texts, ()),
        _optional("adding_replicas", "addingReplicas", numbers, ()),
        _optional("removing_replicas", "removingReplicas", numbers, ()),
        _optional("next_leader", "nextLeader", int, NO_LEADER),
        _optional("take_lead", "takeLead", bool, absent=False),
    ),
    ConfigRecord: (
        _Field("resource_type", "resourceType", int),
        _Field("resource_name", "resourceName", str),
        _Field("name", "name", str),
        _Field("value", "value", text_or_none),
    ),
    ClientQuotaRecord: (
        _Field("entity", "entity", quota_entity),
        _Field("key", "key", str),
        _Field("value", "value", rate_or_none),
    ),
    RemoveTopicRecord: (_TOPIC_ID,),
    ClusterRecord: (
        _Field("cluster_id", "clusterId", str),
        _optional("secret", "secret", str, ""),
        _LEVEL,
    ),
    RegisterBrokerRecord: (
        _BROKER_ID,
        _INCARNATION,
        _Field("host", "host", str),
        _Field("port", "port", int),
        _optional("rack", "rack", text_or_none, None),
        _optional("endpoints", "endPoints", endpoints_of, ()),
        _LEVEL,
    ),
    BrokerRegistrationChangeRecord: (
        _BROKER_ID,
        _BROKER_EPOCH,
        _optional("fenced", "fenced", bool, absent=False),
        _optional("in_controlled_shutdown", "inControlledShutdown", bool, absent=False),
    ),
    UnregisterBrokerRecord: (_BROKER_ID, _BROKER_EPOCH),
    ControllerChangeRecord: (_BROKER_ID, _INCARNATION, _Field("epoch", "epoch", int)),
    BrokerIdsRecord: (
        _Field("application", "application", str),
        _Field("first", "firstBrokerId", int),
        _Field("count", "brokers", int),
    ),
    FeatureLevelRecord: (_Field("name", "name", str), _Field("level", "featureLevel", int)),
    ProducerIdsRecord: (_BROKER_ID, _BROKER_EPOCH, _NEXT_PRODUCER_ID),
    HeartbeatRecord: (_BROKER_ID, _BROKER_EPOCH),
    AccessControlEntryRecord: (
        _ACL_ID,
        _Field("resource_type", "resourceType", int),
        _Field("resource_name", "resourceName", str),
        _Field("pattern_type", "patternType", int),
        _Field("principal", "principal", str),
        _Field("host", "host", str),
        _Field("operation", "operation", int),
        _Field("permission_type", "permissionType", int),
    ),
    RemoveAccessControlEntryRecord: (_ACL_ID,),
    UserScramCredentialRecord: (
        _USER,
        _MECHANISM,
        _Field("salt", "salt", bytes_of),
        _Field("stored_key", "storedKey", bytes_of),
        _Field("server_key", "serverKey", bytes_of),
        _Field("iterations", "iterations", int),
    ),
    RemoveUserScramCredentialRecord: (_USER, _MECHANISM),
    DelegationTokenRecord: (
        _TOKEN_ID,
        _Field("owner", "owner", str),
        _Field("requester", "requester", str),
        _Field("renewers", "renewers", texts),
        _Field("issue_timestamp", "issueTimestamp", int),
        _Field("max_timestamp", "maxTimestamp", int),
        _Field("expiration_timestamp", "expirationTimestamp", int),
    ),
    RemoveDelegationTokenRecord: (_TOKEN_ID,),
}
_TYPES = {kind.__name__: kind for kind in _FIELDS}
_NAMES = {
    kind.__name__: {"type", *(field.name for field in fields)} for kind, fields in _FIELDS.items()
}
"""The known field names of each record type."""
_SECRETS = {
    field.name
    for kind, fields in _FIELDS.items()
    for field in fields
    for attribute in dataclasses.fields(kind)
    if attribute.name == field.attribute and not attribute.repr
}
"""The names of the fields that no `repr` shows."""
_HIDDEN = "[hidden]"


def encode(records: Sequence[Record]) -> pa.RecordBatch:
    """Return the records as one batch to append, with the column `value` (binary)."""
    texts = [json.dumps(_document(r), separators=(",", ":")).encode() for r in records]
    return pa.RecordBatch.from_pydict({"value": pa.array(texts, pa.binary())})


def decode(batch: pa.RecordBatch, base_offset: int) -> tuple[list[Record | None], bool]:
    """Return the records of a batch with column `value`, and True if something was skipped.

    A newer version may have written an unknown field, or an unknown type, which decodes to None.

    Raises:
        DataCorrupt: a value is not a metadata record.
    """
    found: list[Record | None] = []
    strange = False
    for row, text in enumerate(batch.column("value").to_pylist()):
        try:
            document = parse_json(text, f"metadata record at offset {base_offset + row}")
            found.append(_record(document))
            strange |= not document.keys() <= _NAMES.get(document["type"], set())
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise DataCorrupt(
                f"metadata record cannot be read: {error!r}; run verify. offset={base_offset + row}"
            ) from error
    return found, strange


def without_secrets(value: bytes) -> bytes:
    """Return a stored record as it may be shown: `[hidden]` replaces each secret."""
    if not any(f'"{name}"'.encode() in value for name in _SECRETS):
        return value
    try:
        document = parse_json(value, "metadata record")
        shown = {k: _HIDDEN if k in _SECRETS else v for k, v in document.items()}
    except (ValueError, AttributeError):
        return _HIDDEN.encode()
    return json.dumps(shown, separators=(",", ":")).encode()


def _document(record: Record) -> dict[str, Any]:
    document: dict[str, Any] = {"type": type(record).__name__}
    for field in _FIELDS[type(record)]:
        value = getattr(record, field.attribute)
        if field.required or value != field.absent:
            document[field.name] = _spelled(value)
    return document


def _spelled(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, bytes):
        return text_of(value)
    return list(value) if isinstance(value, tuple) else value


def _record(document: dict[str, Any]) -> Record | None:
    kind = _TYPES.get(document["type"])
    if kind is None:
        return None
    return kind(
        **{
            field.attribute: field.read(document[field.name])
            if field.required or field.name in document
            else field.absent
            for field in _FIELDS[kind]
        }
    )
