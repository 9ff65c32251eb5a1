"""MetadataImage: the cluster's state at one offset of the metadata log, an immutable value.

A new image shares all parts that the records do not change with the previous one. So readers
compare images by identity: a topic that is the same object did not change.

IMAGE-1: Topic names, topic ids and broker ids are unique.
IMAGE-2: Partitions of a topic are numbered from 0 without gaps.
IMAGE-3: A broker's epoch is the offset of its registration, so a later incarnation has a higher
    one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from sparklog.cluster.metadata.access_state import AccessChange, AccessRecord
from sparklog.cluster.metadata.records import (
    BROKER_RESOURCE,
    EVERY_BROKER,
    FIRST_LEVEL,
    GROUP_RESOURCE,
    NO_LEADER,
    SPARKLOG_VERSION,
    TOPIC_RESOURCE,
    BrokerEndpoint,
    BrokerIdsRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ClusterRecord,
    ConfigRecord,
    ControllerChangeRecord,
    FeatureLevelRecord,
    HeartbeatRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    decode,
)
from sparklog.core.config.topic_defaults import inherited
from sparklog.core.quotas import QuotaEntity, Quotas
from sparklog.core.types import UNLED_EPOCH, PartitionId
from sparklog.log.layout import PartitionLayout, WalLayout
from sparklog.security.acls import AclBinding
from sparklog.security.sasl.credentials import ScramCredentials
from sparklog.security.sasl.delegation_tokens import Tokens


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Replicas, ISR and leader of a partition; `leader` is -1 while it has none."""

    replicas: tuple[int, ...] = ()
    """The assigned brokers, the preferred leader first."""
    isr: tuple[int, ...] = ()
    leader: int = NO_LEADER
    leader_epoch: int = UNLED_EPOCH
    """Rises by one with every change of the leader; 0 of the first one."""
    partition_epoch: int = 0
    """Rises by one with every change."""
    recovering: bool = False
    """The leader has not recorded yet that the partition's own log holds all of `wals`."""
    wals: tuple[str, ...] = ()
    """Sealed write-ahead logs, as `<broker id>-<incarnation>`, that may hold batches of it."""
    adding_replicas: tuple[int, ...] = ()
    """Replicas that a running reassignment adds; they are complete when they are in sync."""
    removing_replicas: tuple[int, ...] = ()
    """Replicas that a reassignment removes when all added ones are in sync."""
    next_leader: int = NO_LEADER
    """The broker to which the leader shall hand over, after it has flushed the partition."""
    take_lead: bool = False
    """While recovering:

    the previous leader had not recovered, or there was none. So the new leader fences the
    partition's log.
    """

    def record(self, topic_id: str, partition: int) -> PartitionRecord:
        """Return the record of this state."""
        return PartitionRecord(
            topic_id, partition, *(getattr(self, name) for name in PartitionState.__slots__)
        )


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic: its partitions and settings."""

    name: str
    topic_id: str
    partition_states: tuple[PartitionState, ...] = ()
    configs: Mapping[str, str] = field(default_factory=dict)
    """The topic's own settings, under Kafka's names."""
    replication_factor: int | None = None
    """Replicas of each partition; None uses `default.replication.factor`."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Settings for all topics, under the names of a topic's settings."""
    creator: str = ""
    """The principal that created it, such as `User:alice`; empty if unknown."""

    @property
    def settings(self) -> Mapping[str, str]:
        """Return the effective settings that are not built in; the topic's own win."""
        return {**self.defaults, **self.configs} if self.defaults else self.configs

    @property
    def partitions(self) -> int:
        """Return the number of partitions."""
        return len(self.partition_states)

    def layouts(self) -> list[PartitionLayout]:
        """Return the layouts of its partitions, by number."""
        return [PartitionLayout(self.name, self.topic_id, n) for n in range(self.partitions)]


@dataclass(frozen=True, slots=True)
class Broker:
    """The newest registration of one broker id."""

    broker_id: int
    incarnation: str
    host: str
    port: int
    rack: str | None
    epoch: int
    """Offset of the registration in the metadata log."""
    fenced: bool = False
    """Deposed: its write-ahead log is sealed, and it leads no partition."""
    shutting_down: bool = False
    endpoints: tuple[BrokerEndpoint, ...] = ()
    """All listeners; empty for a single PLAINTEXT one."""
    level: int = FIRST_LEVEL
    """The highest level of `sparklog.version` that it supports."""

    def at(self, listener: str) -> Broker | None:
        """Return the broker with its address for a listener; None if it has no such listener.

        An empty name stands for the listener by which brokers reach each other.
        """
        if not listener or not self.endpoints:
            return self
        for one in self.endpoints:
            if one.listener == listener:
                return replace(self, host=one.host, port=one.port)
        return None

    def with_protocol(self, protocol: str) -> Broker | None:
        """Return the broker with its address for a security protocol; None if it has none."""
        if not self.endpoints:
            return self
        names = [one.listener for one in self.endpoints if one.protocol == protocol]
        return self.at(names[0]) if names else None

    @property
    def eligible(self) -> bool:
        """Return True if the broker may get leaderships and replicas."""
        return not self.fenced and not self.shutting_down

    @property
    def wal(self) -> WalLayout:
        """Return the layout of its write-ahead log."""
        return WalLayout(self.broker_id, self.incarnation)


def at_listener(image: MetadataImage, listener: str) -> MetadataImage:
    """Return the image with the brokers' addresses for one listener; others are left out."""
    brokers = {
        broker_id: at
        for broker_id, broker in image.brokers.items()
        if (at := broker.at(listener)) is not None
    }
    return replace(image, brokers=brokers)


@dataclass(frozen=True, slots=True)
class Controller:
    """The controller of one epoch."""

    broker_id: int
    incarnation: str
    epoch: int


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The registry as of `end_offset` of the metadata log."""

    end_offset: int = 0
    topics: Mapping[str, Topic] = field(default_factory=dict)
    """By topic name."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Topic id to name."""
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    """Every registered broker by id, fenced ones too."""
    controller: Controller | None = None
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Dynamic settings by broker id as text; '' holds for every broker."""
    next_producer_id: int = 0
    cluster_id: str = ""
    """Empty until the first broker registers."""
    cluster_secret: str = field(default="", repr=False, kw_only=True)
    """Brokers authenticate each other by it; no client gets it. Empty until a broker registers."""
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Dynamic settings by group id."""
    client_quotas: Quotas = field(default_factory=dict)
    strange: bool = False
    """True if a record of a newer version was skipped: a snapshot of this image would lose it."""
    heartbeats: Mapping[int, int] = field(default_factory=dict)
    """Offset of the newest HeartbeatRecord by broker id."""
    acls: Mapping[str, AclBinding] = field(default_factory=dict, kw_only=True)
    """By id. It is the same object until an ACL changes."""
    scram_credentials: ScramCredentials = field(default_factory=dict, repr=False, kw_only=True)
    tokens: Tokens = field(default_factory=dict, kw_only=True)
    """Delegation tokens by id. It is the same object until a token changes."""
    features: Mapping[str, int] = field(default_factory=dict, kw_only=True)
    """The finalized levels by feature; a feature that is absent is at its first level."""
    broker_ids: Mapping[str, BrokerIdsRecord] = field(default_factory=dict, kw_only=True)
    """The broker ids of each application that took some, by its name."""

    def read_on(self, batch: pa.RecordBatch) -> MetadataImage:
        """Return the image after a batch of the metadata log that begins where this one ends.

        Raises:
            DataCorrupt: the batch has a value that is not a metadata record.
        """
        records, strange = decode(batch, self.end_offset)
        image = self.applied(records, self.end_offset + batch.num_rows)
        return replace(image, strange=True) if strange else image

    def applied(self, records: Sequence[Record | None], end_offset: int) -> MetadataImage:
        """Return the image after these records, one per offset; the log ends at `end_offset`."""
        change = _Change(self)
        for offset, record in enumerate(records, end_offset - len(records)):
            change.apply(record, offset)
        return change.image(end_offset)

    def topic_of(self, topic_id: str) -> Topic | None:
        """Return the topic with this id, or None."""
        name = self.names.get(topic_id)
        return self.topics[name] if name is not None else None

    def partition(self, where: PartitionId) -> PartitionState | None:
        """Return one partition, or None if the topic or the number does not exist."""
        topic = self.topic_of(where.topic_id)
        if topic is None or not 0 <= where.partition < topic.partitions:
            return None
        return topic.partition_states[where.partition]

    def partitions(self) -> Iterator[tuple[PartitionId, PartitionState]]:
        """Yield every partition."""
        for topic in self.topics.values():
            for number, state in enumerate(topic.partition_states):
                yield PartitionId(topic.topic_id, number), state

    def changed_topics(self, before: MetadataImage) -> list[Topic]:
        """Return the topics that are new or another object than in `before`, an earlier image.

        Cost: one comparison by identity for each topic; none if no topic changed.
        """
        if self.topics is before.topics:
            return []
        return [t for name, t in self.topics.items() if before.topics.get(name) is not t]

    def eligible_brokers(self) -> list[Broker]:
        """Return the brokers that may lead and hold partitions, by id."""
        return sorted((b for b in self.brokers.values() if b.eligible), key=lambda b: b.broker_id)

    def live_brokers(self) -> list[Broker]:
        """Return the brokers that are not fenced, by id: those that clients may connect to."""
        return sorted((b for b in self.brokers.values() if not b.fenced), key=lambda b: b.broker_id)


class _Change:
    """A mutable image while records are applied. It copies a changed part once."""

    def __init__(self, before: MetadataImage) -> None:
        self._before = before
        self._topics: dict[str, Topic] | None = None
        self._names: dict[str, str] | None = None
        self._states: dict[str, list[PartitionState]] = {}
        """Partitions of the changed topics, by topic name."""
        self._brokers = before.brokers
        self._controller = before.controller
        self._broker_configs = before.broker_configs
        self._topic_defaults = inherited(before.broker_configs.get(EVERY_BROKER, {}))
        self._next_producer_id = before.next_producer_id
        self._cluster_id = before.cluster_id
        self._secret = before.cluster_secret
        self._group_configs = before.group_configs
        self._client_quotas = before.client_quotas
        self._strange = before.strange
        self._access = AccessChange(before)
        self._heartbeats = before.heartbeats
        self._features = before.features
        self._broker_ids = before.broker_ids

    def apply(self, record: Record | None, offset: int) -> None:
        """Apply one record; skip one of an unknown type, or about an unknown object."""
        match record:
            case TopicRecord() | RemoveTopicRecord():
                self._topic(record)
            case PartitionRecord():
                self._partition(record)
            case ConfigRecord():
                self._config(record)
            case ClientQuotaRecord(entity, key, value):
                self._client_quotas = _with_quota(self._client_quotas, entity, key, value)
            case RegisterBrokerRecord():
                self._brokers = {**self._brokers, record.broker_id: _registered(record, offset)}
            case BrokerRegistrationChangeRecord() | UnregisterBrokerRecord():
                self._registration(record)
            case ControllerChangeRecord(broker_id, incarnation, epoch):
                self._controller = Controller(broker_id, incarnation, epoch)
            case ProducerIdsRecord():
                self._next_producer_id = max(self._next_producer_id, record.next_producer_id)
            case HeartbeatRecord(broker_id):
                self._heartbeats = {**self._heartbeats, broker_id: offset}
            case ClusterRecord(cluster_id, secret, level):
                if not self._cluster_id and level > FIRST_LEVEL:
                    self._finalize(SPARKLOG_VERSION, level)
                self._cluster_id = self._cluster_id or cluster_id
                self._secret = self._secret or secret
            case FeatureLevelRecord(name, level):
                self._finalize(name, level)
            case BrokerIdsRecord(application):
                self._broker_ids = {**self._broker_ids, application: record}
            case None:
                pass
            case _:
                self._change_access(record)

    def image(self, end_offset: int) -> MetadataImage:
        """Return the image in its present state."""
        if self._states:
            topics = self._own_topics()
            for name, states in self._states.items():
                topics[name] = replace(topics[name], partition_states=tuple(states))
            self._states = {}
        return MetadataImage(
            end_offset,
            self._before.topics if self._topics is None else self._topics,
            self._before.names if self._names is None else self._names,
            self._brokers,
            self._controller,
            self._broker_configs,
            self._next_producer_id,
            self._cluster_id,
            self._group_configs,
            self._client_quotas,
            self._strange,
            self._heartbeats,
            cluster_secret=self._secret,
            acls=self._access.acls,
            scram_credentials=self._access.scram_credentials,
            tokens=self._access.tokens,
            features=self._features,
            broker_ids=self._broker_ids,
        )

    def _finalize(self, name: str, level: int) -> None:
        if level > self._features.get(name, FIRST_LEVEL):
            self._features = {**self._features, name: level}

    def _own_topics(self) -> dict[str, Topic]:
        if self._topics is None:
            self._topics = dict(self._before.topics)
        return self._topics

    def _own_names(self) -> dict[str, str]:
        if self._names is None:
            self._names = dict(self._before.names)
        return self._names

    def _name_of(self, topic_id: str) -> str | None:
        return (self._before.names if self._names is None else self._names).get(topic_id)

    def _topic(self, record: TopicRecord | RemoveTopicRecord) -> None:
        known = self._name_of(record.topic_id)
        if isinstance(record, TopicRecord):
            topics = self._own_topics()
            if known is None:
                topics[record.name] = Topic(
                    record.name, record.topic_id, defaults=self._topic_defaults,
                    creator=record.creator,
                )  # fmt: skip
                self._own_names()[record.topic_id] = record.name
            name = known if known is not None else record.name
            topics[name] = replace(topics[name], replication_factor=record.replication_factor)
        elif known is not None:
            del self._own_topics()[known]
            del self._own_names()[record.topic_id]
            self._states.pop(known, None)

    def _partition(self, record: PartitionRecord) -> None:
        name = self._name_of(record.topic_id)
        if name is None:
            return
        if name not in self._states:
            topics = self._before.topics if self._topics is None else self._topics
            self._states[name] = list(topics[name].partition_states)
        states = self._states[name]
        state = PartitionState(*(getattr(record, attribute) for attribute in _PARTITION_ATTRIBUTES))
        if record.partition == len(states):
            states.append(state)
        elif 0 <= record.partition < len(states):
            states[record.partition] = state

    def _config(self, record: ConfigRecord) -> None:
        name = record.resource_name
        if record.resource_type == TOPIC_RESOURCE:
            topics = self._before.topics if self._topics is None else self._topics
            if name in topics:
                configs = _with_config(topics[name].configs, record)
                self._own_topics()[name] = replace(topics[name], configs=configs)
        elif record.resource_type == BROKER_RESOURCE:
            self._broker_configs = _with_resource(self._broker_configs, record)
            if name == EVERY_BROKER:
                self._default(inherited(self._broker_configs.get(name, {})))
        elif record.resource_type == GROUP_RESOURCE:
            self._group_configs = _with_resource(self._group_configs, record)
        else:
            self._strange = True

    def _default(self, defaults: Mapping[str, str]) -> None:
        self._topic_defaults = dict(defaults)
        topics = self._own_topics()
        for name, topic in topics.items():
            topics[name] = replace(topic, defaults=self._topic_defaults)

    def _change_access(self, record: AccessRecord) -> None:
        if not self._access.apply(record):
            self._strange = True

    def _registration(
        self, record: BrokerRegistrationChangeRecord | UnregisterBrokerRecord
    ) -> None:
        known = self._brokers.get(record.broker_id)
        if known is None or known.epoch != record.broker_epoch:
            return
        others = {k: b for k, b in self._brokers.items() if k != record.broker_id}
        if isinstance(record, BrokerRegistrationChangeRecord):
            others[record.broker_id] = replace(
                known, fenced=record.fenced, shutting_down=record.in_controlled_shutdown
            )
        self._brokers = others


_PARTITION_ATTRIBUTES = PartitionState.__slots__


def _with_resource(
    resources: Mapping[str, Mapping[str, str]], record: ConfigRecord
) -> Mapping[str, Mapping[str, str]]:
    name = record.resource_name
    configs = _with_config(resources.get(name, {}), record)
    kept = {k: v for k, v in resources.items() if k != name}
    return {**kept, name: configs} if configs else kept


def _with_quota(quotas: Quotas, entity: QuotaEntity, key: str, value: float | None) -> Quotas:
    own = {k: v for k, v in quotas.get(entity, {}).items() if k != key}
    if value is not None:
        own[key] = value
    others = {e: values for e, values in quotas.items() if e != entity}
    return {**others, entity: own} if own else others


def _registered(record: RegisterBrokerRecord, offset: int) -> Broker:
    return Broker(
        record.broker_id,
        record.incarnation,
        record.host,
        record.port,
        record.rack,
        epoch=offset,
        endpoints=record.endpoints,
        level=record.level,
    )


def _with_config(configs: Mapping[str, str], record: ConfigRecord) -> dict[str, str]:
    kept = {k: v for k, v in configs.items() if k != record.name}
    if record.value is not None:
        kept[record.name] = record.value
    return kept
