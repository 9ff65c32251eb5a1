"""Snapshots of the metadata image: a stored object that shortens the replay. FORMAT.md 8."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from sparklog.cluster.metadata.access_state import acl_of, acl_record, token_of, token_record
from sparklog.cluster.metadata.image import (
    Broker,
    Controller,
    MetadataImage,
    PartitionState,
    Topic,
)
from sparklog.cluster.metadata.json_values import bytes_of, quota_entity, text_of
from sparklog.cluster.metadata.records import (
    EVERY_BROKER,
    FIRST_LEVEL,
    AccessControlEntryRecord,
    BrokerIdsRecord,
    DelegationTokenRecord,
    endpoints_of,
)
from sparklog.core.config.topic_defaults import inherited
from sparklog.core.errors import DataCorrupt, InvalidRequest
from sparklog.log.checked_json import decode_checked, encode_checked
from sparklog.security.sasl.credentials import ScramCredential, ScramCredentials, ScramMechanism

SNAPSHOT_EVERY = 256
"""Metadata records between snapshots: bounds the replay of a new reader."""

_SHORT_STATE = 4
"""Elements of a partition's state that are always there: enough for a log without brokers."""

_IMAGE_FIELDS = frozenset(
    {
        "topics",
        "brokers",
        "controller",
        "brokerConfigs",
        "groupConfigs",
        "clientQuotas",
        "nextProducerId",
        "clusterId",
        "clusterSecret",
        "heartbeats",
        "acls",
        "scramCredentials",
        "delegationTokens",
        "features",
        "brokerLevels",
        "brokerIds",
    }
)
_TOPIC_FIELDS = frozenset(
    {"name", "topicId", "configs", "partitions", "replicationFactor", "createdBy"}
)


def is_due(image: MetadataImage, last_end: int) -> bool:
    """Return True if a snapshot is due; `last_end` is the offset of the last one.

    An image that skipped records of a newer version is never stored: that version would trust it.
    """
    return image.end_offset - last_end >= SNAPSHOT_EVERY and not image.strange


_ROW_FIELDS: Final = Broker.__slots__[: Broker.__slots__.index("level")]
"""Fields of a broker's row. Levels are apart, as earlier versions read the whole row."""
_PLAIN_FIELDS: Final = len(_ROW_FIELDS) - 1
"""Fields of a broker that JSON has as they are; the endpoints come behind them."""


def encode(image: MetadataImage) -> bytes:
    """Return the snapshot object of an image."""
    return encode_checked(to_document(image), end_offset=image.end_offset)


def decode(data: bytes, end_offset: int) -> MetadataImage | None:
    """Return the image in a snapshot object; None if unreadable, as the log has everything."""
    try:
        document = decode_checked(data, "metadata snapshot", end_offset=end_offset)
        return from_document(document, end_offset)
    except (ValueError, KeyError, TypeError, AttributeError, DataCorrupt, InvalidRequest):
        return None


def to_document(image: MetadataImage) -> dict[str, Any]:
    """Return the image as JSON values."""
    document: dict[str, Any] = {"topics": [_topic_document(t) for t in image.topics.values()]}
    if image.brokers:
        document["brokers"] = [
            [getattr(b, name) for name in _ROW_FIELDS] for b in image.brokers.values()
        ]
    levels = [[b, one.level] for b, one in image.brokers.items() if one.level != FIRST_LEVEL]
    if levels:
        document["brokerLevels"] = levels
    if image.broker_ids:
        document["brokerIds"] = [_values(record) for record in image.broker_ids.values()]
    if image.features:
        document["features"] = dict(image.features)
    if image.controller is not None:
        document["controller"] = [getattr(image.controller, n) for n in Controller.__slots__]
    if image.broker_configs:
        document["brokerConfigs"] = {k: dict(v) for k, v in image.broker_configs.items()}
    if image.group_configs:
        document["groupConfigs"] = {k: dict(v) for k, v in image.group_configs.items()}
    if image.client_quotas:
        document["clientQuotas"] = [[e, dict(values)] for e, values in image.client_quotas.items()]
    if image.next_producer_id:
        document["nextProducerId"] = image.next_producer_id
    if image.cluster_id:
        document["clusterId"] = image.cluster_id
    if image.cluster_secret:
        document["clusterSecret"] = image.cluster_secret
    if image.heartbeats:
        document["heartbeats"] = sorted(image.heartbeats.items())
    if image.acls:
        document["acls"] = [_values(acl_record(*each)) for each in image.acls.items()]
    if image.scram_credentials:
        document["scramCredentials"] = [
            [
                name,
                int(mechanism),
                *map(text_of, (one.salt, one.stored_key, one.server_key)),
                one.iterations,
            ]
            for name, credentials in image.scram_credentials.items()
            for mechanism, one in credentials.items()
        ]
    if image.tokens:
        document["delegationTokens"] = [
            _values(token_record(token)) for token in image.tokens.values()
        ]
    return document


def from_document(document: dict[str, Any], end_offset: int) -> MetadataImage:
    """Return the image from the output of `to_document`.

    Raises:
        ValueError, KeyError, TypeError: the document is not an image.
    """
    broker_configs = document.get("brokerConfigs", {})
    defaults = inherited(broker_configs.get(EVERY_BROKER, {}))
    topics = {
        entry["name"]: Topic(
            entry["name"],
            entry["topicId"],
            tuple(_partition(state) for state in entry["partitions"]),
            entry["configs"],
            entry.get("replicationFactor"),
            defaults,
            str(entry.get("createdBy", "")),
        )
        for entry in document["topics"]
    }
    levels = {int(broker_id): int(level) for broker_id, level in document.get("brokerLevels", ())}
    brokers = [_broker(values, levels) for values in document.get("brokers", ())]
    controller = document.get("controller")
    return MetadataImage(
        end_offset,
        topics,
        {t.topic_id: t.name for t in topics.values()},
        {b.broker_id: b for b in brokers},
        Controller(*controller) if controller is not None else None,
        broker_configs,
        int(document.get("nextProducerId", 0)),
        str(document.get("clusterId", "")),
        document.get("groupConfigs", {}),
        {
            quota_entity(entity): {str(key): float(rate) for key, rate in values.items()}
            for entity, values in document.get("clientQuotas", ())
        },
        cluster_secret=str(document.get("clusterSecret", "")),
        strange=not (
            document.keys() <= _IMAGE_FIELDS
            and all(entry.keys() <= _TOPIC_FIELDS for entry in document["topics"])
        ),
        acls={
            str(values[0]): acl_of(AccessControlEntryRecord(*values))
            for values in document.get("acls", ())
        },
        scram_credentials=_scram_credentials(document.get("scramCredentials", ())),
        tokens={
            str(values[0]): token_of(DelegationTokenRecord(*values))
            for values in document.get("delegationTokens", ())
        },
        heartbeats={int(b): int(offset) for b, offset in document.get("heartbeats", ())},
        broker_ids={
            str(values[0]): BrokerIdsRecord(*values) for values in document.get("brokerIds", ())
        },
        features={str(k): int(level) for k, level in document.get("features", {}).items()},
    )


def _broker(values: list[Any], levels: dict[int, int]) -> Broker:
    known = Broker(*values[:_PLAIN_FIELDS], *map(endpoints_of, values[_PLAIN_FIELDS:]))
    return replace(known, level=levels.get(known.broker_id, FIRST_LEVEL))


def _values(
    record: AccessControlEntryRecord | BrokerIdsRecord | DelegationTokenRecord,
) -> list[Any]:
    """Return the attributes of a record in their order."""
    return [getattr(record, name) for name in record.__slots__]


def _scram_credentials(entries: list[list[Any]]) -> ScramCredentials:
    users: dict[str, dict[ScramMechanism, ScramCredential]] = {}
    for name, mechanism, salt, stored_key, server_key, iterations in entries:
        users.setdefault(str(name), {})[ScramMechanism(mechanism)] = ScramCredential(
            bytes_of(salt), bytes_of(stored_key), bytes_of(server_key), int(iterations)
        )
    return users


def _topic_document(topic: Topic) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": topic.name,
        "topicId": topic.topic_id,
        "configs": dict(topic.configs),
        "partitions": [_state(p) for p in topic.partition_states],
    }
    if topic.replication_factor is not None:
        document["replicationFactor"] = topic.replication_factor
    if topic.creator:
        document["createdBy"] = topic.creator
    return document


def _state(partition: PartitionState) -> list[Any]:
    values = [getattr(partition, name) for name in PartitionState.__slots__]
    rest = [getattr(_UNLED, name) for name in PartitionState.__slots__][_SHORT_STATE:]
    return values[:_SHORT_STATE] if values[_SHORT_STATE:] == rest else values


def _partition(state: list[Any]) -> PartitionState:
    values: list[Any] = [tuple(v) if isinstance(v, list) else v for v in state]
    return PartitionState(*values)


_UNLED = PartitionState()
