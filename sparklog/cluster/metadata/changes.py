"""Decisions about topics and settings: an image in, records out, or a clear error. Pure.

Settings of a newer version that this one does not know stay as they are, unless a request sets or
removes them by name.

Decisions about client quotas: an image in, records out, or a clear error. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sparklog.cluster.metadata import replica_placer
from sparklog.cluster.metadata.image import MetadataImage, PartitionState, Topic
from sparklog.cluster.metadata.records import (
    BROKER_RESOURCE,
    EVERY_BROKER,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    ClientQuotaRecord,
    ConfigRecord,
    PartitionRecord,
    Record,
    RemoveTopicRecord,
    TopicRecord,
)
from sparklog.core.config.broker import parse_broker_configs
from sparklog.core.config.dynamic_broker import ONE_BROKER_SETTINGS, check_one_broker_names
from sparklog.core.config.group import GROUP_CONFIGS, parse_group_configs
from sparklog.core.config.model import (
    Config,
    ConfigChange,
    check_names,
    parse_configs,
    understood,
    understood_configs,
)
from sparklog.core.config.topic import (
    SCHEMA_VALIDATIONS,
    TOPIC_SETTINGS,
    check_topic_config_names,
    parse_topic_configs,
)
from sparklog.core.config.topic_defaults import (
    DEFAULT_SETTINGS,
    check_default_names,
    inherited,
    parse_topic_defaults,
)
from sparklog.core.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    PolicyViolation,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from sparklog.core.quotas import QuotaEntity, check_quota, check_quota_key
from sparklog.core.topic_names import (
    CLOSED_TOPICS,
    SCHEMAS_TOPIC,
    check_not_closed,
    check_topic_name,
)
from sparklog.core.types import FIRST_LED_EPOCH

CREATED_MAX = 10_000
"""Partitions that one request may create. Source: Kafka's MAX_PARTITIONS_PER_BATCH."""
PARTITIONS_MAX = 100_000
"""Limit per topic: far above what one folder listing or one metadata append should carry."""
DEFAULT_REPLICATION_FACTOR = parse_broker_configs({}).whole("default.replication.factor")


class ExistingTopics:
    """Existing topics and brokers, counted once for all topics that one request creates."""

    def __init__(self, image: MetadataImage) -> None:
        """Count the topics of `image`."""
        self.image = image
        self.brokers = image.eligible_brokers()
        self.partitions = sum(topic.partitions for topic in image.topics.values())
        """Number of partitions: the place in the ring of brokers where the next one starts."""
        self._names = {_folded(name): name for name in image.topics}

    def colliding(self, name: str) -> str | None:
        """Return the name that differs from `name` only in '.' and '_', if there is one."""
        return self._names.get(_folded(name))

    def add(self, name: str, partitions: int) -> None:
        """Count new partitions of a topic."""
        self._names[_folded(name)] = name
        self.partitions += partitions


def check_partitions_created(partitions: int) -> None:
    """Reject a request that creates too many partitions, as Kafka does.

    Raises:
        PolicyViolation: send several requests.
    """
    if partitions > CREATED_MAX:
        raise PolicyViolation(
            f"one request creates at most {CREATED_MAX} partitions, those of all its topics "
            f"together: send several requests. partitions={partitions}"
        )


def create_topic(
    image: MetadataImage,
    name: str,
    topic_id: str,
    partitions: int,
    configs: Mapping[str, str],
    *,
    replication_factor: int | None = None,
    assignment: Mapping[int, Sequence[int]] | None = None,
    default_replication_factor: int = DEFAULT_REPLICATION_FACTOR,
    existing: ExistingTopics | None = None,
    by_cluster: bool = False,
) -> list[Record]:
    """Return the records that create a topic; without live brokers its partitions have no leader.

    Args:
        image: the newest image.
        name: the topic's name.
        topic_id: a fresh id.
        partitions: their number; ignored if there is an `assignment`.

        configs: settings, under Kafka's names.
        replication_factor: replicas per partition; None uses the default, limited by live brokers.

        assignment: partition to replicas, in place of both numbers.
        default_replication_factor: the configured default.

        existing: topics of `image` and of this request.
        by_cluster: True if the cluster creates a topic for its own state.

    Raises:
        InvalidTopic: illegal name, one of the cluster's own, or one that metrics confuse with
            another.
        TopicAlreadyExists: choose another name or delete the topic first.
        InvalidPartitions: too few or too many. InvalidConfig: unknown setting or bad value.
        InvalidReplicationFactor: more than there are live brokers.
        InvalidReplicaAssignment: the assignment is invalid.
    """
    check_topic_name(name)
    if not by_cluster:
        check_not_closed(name, "create it")
    if name in image.topics:
        raise TopicAlreadyExists(f"topic exists already. topic={name}")
    existing = ExistingTopics(image) if existing is None else existing
    clash = existing.colliding(name)
    if clash:
        raise InvalidTopic(
            "topic name differs from an existing one only in '.' and '_', which metrics cannot "
            f"tell apart. topic={name} existing={clash}"
        )
    partitions = partitions if assignment is None else len(assignment)
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise InvalidPartitions(
            f"a topic has from 1 to {PARTITIONS_MAX} partitions. "
            f"topic={name} partitions={partitions}"
        )
    parse_topic_configs({**understood(topic_defaults(image), TOPIC_SETTINGS)[0], **configs})
    _check_schemas_exist(image, name, configs)
    if assignment is None:
        wanted = default_replication_factor if replication_factor is None else replication_factor
        exact = replication_factor is not None
        placed = _placed(existing, partitions, wanted, exact=exact)
    else:
        placed = replica_placer.check_assignment(image, assignment)
        replication_factor = len(placed[0])
    existing.add(name, partitions)
    return [
        TopicRecord(name, topic_id, replication_factor),
        *(_fresh(image, topic_id, p, replicas) for p, replicas in enumerate(placed)),
        *(ConfigRecord(name, key, value) for key, value in configs.items()),
    ]


def created_by(creator: str, records: Sequence[Record]) -> list[Record]:
    """Return the records that create a topic, with its creator; empty if no login proved one."""
    return [
        replace(one, creator=creator) if isinstance(one, TopicRecord) else one for one in records
    ]


def delete_topic(image: MetadataImage, name: str) -> list[Record]:
    """Return the records that delete a topic.

    Raises:
        UnknownTopicOrPartition: no such topic. InvalidTopic: one of the cluster's own.
    """
    check_not_closed(name, "delete it")
    return [RemoveTopicRecord(known_topic(image, name).topic_id)]


def add_partitions(
    image: MetadataImage,
    name: str,
    total: int,
    *,
    assignment: Sequence[Sequence[int]] | None = None,
    default_replication_factor: int = DEFAULT_REPLICATION_FACTOR,
    existing: ExistingTopics | None = None,
) -> list[Record]:
    """Return the records that grow a topic to `total` partitions; `assignment` places new ones.

    Raises:
        InvalidTopic: one of the cluster's own. UnknownTopicOrPartition: no such topic.
        InvalidPartitions: not more than before; fewer would lose records.
        InvalidReplicationFactor: fewer live brokers than the topic's replication factor.
        InvalidReplicaAssignment: the assignment is invalid.
    """
    check_not_closed(name, "add partitions to it")
    topic = known_topic(image, name)
    have = topic.partitions
    if total == have:
        raise InvalidPartitions(
            f"topic already has this many partitions. topic={name} partitions={total}"
        )
    if total < have:
        raise InvalidPartitions(
            "the number of partitions can only grow; make a new topic and copy into it. "
            f"topic={name} partitions={have} wanted={total}"
        )
    if total > PARTITIONS_MAX:
        raise InvalidPartitions(f"a topic has at most {PARTITIONS_MAX} partitions. topic={name}")
    existing = ExistingTopics(image) if existing is None else existing
    if assignment is None:
        wanted = topic.replication_factor or default_replication_factor
        exact = topic.replication_factor is not None
        placed = _placed(existing, total - have, wanted, exact=exact)
    else:
        if len(assignment) != total - have:
            raise InvalidReplicaAssignment(
                f"the assignment is for as many partitions as are new. topic={name} "
                f"new={total - have} assigned={len(assignment)}"
            )
        placed = replica_placer.check_assignment(image, dict(enumerate(assignment)))
    existing.add(name, total - have)
    return [_fresh(image, topic.topic_id, have + p, r) for p, r in enumerate(placed)]


def check_may_delete_records(topic: Topic) -> None:
    """Reject DeleteRecords as Kafka does: where retention may not remove records either.

    Raises:
        InvalidTopic: one of the cluster's own. PolicyViolation: `cleanup.policy` has no `delete`.
    """
    check_not_closed(topic.name, "delete its records")
    policy = understood_configs(topic.settings, TOPIC_SETTINGS).words("cleanup.policy")
    if "delete" not in policy:
        raise PolicyViolation(
            "records are deleted only where cleanup.policy has delete: add it, for example "
            f"cleanup.policy=compact,delete. topic={topic.name} "
            f"cleanup.policy={','.join(policy)}"
        )


def alter_configs(
    image: MetadataImage, name: str, set_: Mapping[str, str], remove: Iterable[str]
) -> list[Record]:
    """Return the records that change a topic's settings; empty when nothing changes.

    Raises:
        UnknownTopicOrPartition: no such topic. InvalidConfig: unknown setting or bad value.
    """
    topic = known_topic(image, name)
    change = ConfigChange.of(topic.configs, set_, remove)
    check_topic_config_names(change.names)
    parse_topic_configs(change.after(TOPIC_SETTINGS, topic.defaults))
    _check_schemas_exist(image, name, set_)
    return _said(change, TOPIC_RESOURCE, name)


def _check_schemas_exist(image: MetadataImage, topic: str, set_: Mapping[str, str]) -> None:
    """Reject schema validation where brokers cannot know the schemas, and for cluster's topics.

    Raises:
        InvalidConfig: there is no topic `_schemas`, or it or an internal topic is to be validated.
    """
    asked = [n for n in SCHEMA_VALIDATIONS if n in set_ and TOPIC_SETTINGS[n].parse(set_[n])]
    if not asked:
        return
    if topic == SCHEMAS_TOPIC or topic in CLOSED_TOPICS:
        raise InvalidConfig(f"{asked[0]} is for topics of clients. topic={topic}")
    if SCHEMAS_TOPIC not in image.topics:
        raise InvalidConfig(
            "brokers know schemas from the topic of a registry in this cluster, and there is none: "
            "first register a schema at a registry of these brokers (sparklog registry --serve). "
            f"topic={SCHEMAS_TOPIC} setting={asked[0]}"
        )


def alter_topic_defaults(
    image: MetadataImage, set_: Mapping[str, str], remove: Iterable[str]
) -> list[Record]:
    """Return the records that change the defaults of all topics; empty when nothing changes.

    Names are those of brokers' settings: `log.retention.ms`, not `retention.ms`.

    Raises:
        InvalidConfig: unknown setting or bad value, alone or together with a topic's own.
    """
    change = ConfigChange.of(image.broker_configs.get(EVERY_BROKER, {}), set_, remove)
    check_default_names(change.names)
    after = change.after(DEFAULT_SETTINGS)
    parse_topic_defaults(after)
    parse_topic_configs(inherited(after))
    for topic in image.topics.values():
        merged = {**inherited(after), **topic.configs}
        try:
            parse_topic_configs(understood(merged, TOPIC_SETTINGS)[0])
        except InvalidConfig as error:
            raise InvalidConfig(
                f"the default contradicts what a topic has set. topic={topic.name} {error}"
            ) from None
    return _said(change, BROKER_RESOURCE, EVERY_BROKER)


def alter_broker_configs(
    image: MetadataImage, broker_id: str, set_: Mapping[str, str], remove: Iterable[str]
) -> list[Record]:
    """Return the records that change one broker's settings; empty when nothing changes.

    Removing an absent setting succeeds: Kafka's reassignment tool removes throttles from all
    brokers.

    Raises:
        InvalidConfig: bad value, or a setting that cannot be changed for one broker.
    """
    own = image.broker_configs.get(broker_id, {})
    change = ConfigChange.of(own, set_, [name for name in remove if name in own])
    check_one_broker_names(change.names)
    parse_configs(change.after(ONE_BROKER_SETTINGS), ONE_BROKER_SETTINGS)
    return _said(change, BROKER_RESOURCE, broker_id)


def alter_group_configs(
    image: MetadataImage,
    group_id: str,
    broker: Config,
    set_: Mapping[str, str],
    remove: Iterable[str],
) -> list[Record]:
    """Return the records that change a group's settings; empty when nothing changes.

    Raises:
        InvalidConfig: unknown setting or bad value, alone or beside `broker`, a broker's settings.
        InvalidRequest: empty group id; the default for all groups is a broker setting.
    """
    if not group_id:
        raise InvalidRequest("Default group resources are not allowed.")
    change = ConfigChange.of(image.group_configs.get(group_id, {}), set_, remove)
    check_names(change.names, GROUP_CONFIGS)
    parse_group_configs(change.after(GROUP_CONFIGS), broker)
    return _said(change, GROUP_RESOURCE, group_id)


def topic_defaults(image: MetadataImage) -> Mapping[str, str]:
    """Return the settings for all topics, under the names of topics' settings."""
    return inherited(image.broker_configs.get(EVERY_BROKER, {}))


def known_topic(image: MetadataImage, name: str) -> Topic:
    """Return a topic of an image; raises as `topic_named`."""
    return topic_named(image.topics, name)


def topic_named(topics: Mapping[str, Topic], name: str) -> Topic:
    """Return a topic by name.

    Raises:
        UnknownTopicOrPartition: no such topic; the message says how to create or list topics.
    """
    topic = topics.get(name)
    if topic is None:
        raise UnknownTopicOrPartition(
            "no such topic; list them with `sparklog topics --list` or make it with "
            f"`sparklog topics --create --topic {name}`. topic={name}"
        )
    return topic


def _said(change: ConfigChange, resource_type: int, resource_name: str) -> list[Record]:
    """Return the records of a change of settings."""
    values = {**change.given, **dict.fromkeys(change.gone)}
    return [ConfigRecord(resource_name, k, v, resource_type) for k, v in values.items()]


def _placed(
    existing: ExistingTopics, partitions: int, wanted: int, *, exact: bool
) -> list[tuple[int, ...]]:
    """Return the replicas of new partitions: empty ones without live brokers."""
    if wanted < 1:
        raise InvalidReplicationFactor(
            f"replication factor must be at least 1. replication_factor={wanted}"
        )
    brokers = existing.brokers
    if not brokers:
        return [()] * partitions
    factor = wanted if exact else min(wanted, len(brokers))
    return replica_placer.place(brokers, partitions, factor, existing.partitions)


def _fresh(
    image: MetadataImage, topic_id: str, number: int, replicas: tuple[int, ...]
) -> PartitionRecord:
    """Return the record of a new partition: it is empty, so every live replica is in sync."""
    alive = tuple(r for r in replicas if image.brokers[r].eligible)
    if not alive:
        return PartitionRecord(topic_id, number)
    state = PartitionState(
        replicas,
        alive,
        leader=alive[0],
        leader_epoch=FIRST_LED_EPOCH,
        recovering=True,
        take_lead=True,
    )
    return state.record(topic_id, number)


def _folded(name: str) -> str:
    return name.replace(".", "_")


def alter(
    image: MetadataImage, entity: QuotaEntity, changes: Mapping[str, float | None]
) -> list[Record]:
    """Return the records that set some quotas of an entity and remove others.

    A quota that a newer version has set stays; a change may remove it by its name.

    Args:
        image: the newest image.
        entity: as `entity_of` returns it.
        changes: new values by quota; None removes one.

    Raises:
        InvalidRequest: unknown quota, or a value that is not a rate.
    """
    own = image.client_quotas.get(entity, {})
    records: list[Record] = []
    for key, value in changes.items():
        if value is not None:
            check_quota(entity, key, value)
        elif key not in own:
            check_quota_key(entity, key)
        if own.get(key) != value:
            records.append(ClientQuotaRecord(entity, key, value))
    return records
