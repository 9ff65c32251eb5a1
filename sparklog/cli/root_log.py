"""RootLog: a log under a root behind the interface of `AdminTarget`, without brokers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from sparklog.client.values import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    ConfigResource,
    ConfigValue,
    ListedOffset,
    ServingBroker,
)
from sparklog.cluster.log import Log
from sparklog.cluster.metadata.changes import check_may_delete_records
from sparklog.cluster.metadata.image import Topic
from sparklog.cluster.metadata.records import EVERY_BROKER
from sparklog.core.config.describe import DescribedConfig, described_defaults, described_topic
from sparklog.core.errors import InvalidRequest, SparklogError
from sparklog.core.quotas import Quotas
from sparklog.core.types import NO_TIMESTAMP_MS, TopicPartition
from sparklog.log.partition.offset_lookup import TimedOffset
from sparklog.security.acls import AclBinding, AclFilter
from sparklog.security.sasl.credentials import ITERATIONS_MIN, ScramMechanism

LOOKED_AT_ONCE = 8
NO_OFFSET = -1
_ASK_BROKERS = "settings of brokers and groups are asked of the brokers; use --bootstrap-server"
NOWHERE = ListedOffset(NO_OFFSET, NO_TIMESTAMP_MS)

Assignment = Sequence[Sequence[int]]
Result = TypeVar("Result")


class RootLog:
    """A log under a root, administered without brokers, also for topics that have leaders."""

    def __init__(self, log: Log) -> None:
        """Administer `log`."""
        self.log = log

    def topic_names(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return sorted(self.log.topics())

    def topics(self) -> Mapping[str, Topic]:
        """Return every topic, by name."""
        return self.log.topics()

    def topic(self, name: str) -> Topic:
        """Return one topic. Raises UnknownTopicOrPartition."""
        return self.log.topic(name)

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        configs: Mapping[str, str] | None = None,
        replication_factor: int | None = None,
        assignment: Assignment | None = None,
    ) -> Topic:
        """Create a topic. Raises as `Log.create_topic`; InvalidRequest for an assignment."""
        _refuse(assignment)
        return self.log.create_topic(
            name, 1 if partitions is None else partitions, configs, replication_factor
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records. Raises UnknownTopicOrPartition."""
        self.log.delete_topic(name)

    def add_partitions(self, name: str, total: int, assignment: Assignment | None = None) -> None:
        """Grow a topic. Raises as `Log.add_partitions`; InvalidRequest for an assignment."""
        _refuse(assignment)
        self.log.add_partitions(name, total)

    def configs(
        self, kind: ConfigResource, names: Sequence[str]
    ) -> Mapping[str, list[ConfigValue]]:
        """Return all settings of topics, or the defaults of all topics.

        Raises:
            UnknownTopicOrPartition: no such topic. InvalidRequest: settings of one broker.
        """
        if kind is not ConfigResource.TOPIC:
            _every_broker(kind, names)
            described = described_defaults(self.log.topic_defaults(), set_only=True)
            return {EVERY_BROKER: [_config_value(one) for one in described]}
        topics = self.log.topics()
        found = [topics.get(name) or self.log.topic(name) for name in names]
        return {
            topic.name: [
                _config_value(one)
                for one in described_topic(topic.configs, topic.defaults, topic.creator)
            ]
            for topic in found
        }

    def alter_configs(
        self,
        name: str,
        values: Mapping[str, str] | None = None,
        remove: Iterable[str] = (),
        *,
        kind: ConfigResource = ConfigResource.TOPIC,
    ) -> None:
        """Change settings of a topic, or the defaults of all topics.

        Raises:
            As `Log.alter_configs`. InvalidRequest: settings of one broker.
        """
        if kind is not ConfigResource.TOPIC:
            _every_broker(kind, [name])
            self.log.alter_topic_defaults(values, remove)
        else:
            self.log.alter_configs(name, values, remove)

    def groups_with_configs(self) -> list[str]:
        """Raise InvalidRequest: only brokers have groups."""
        raise InvalidRequest(_ASK_BROKERS)

    def client_quotas(self) -> Quotas:
        """Return the configured quotas of clients and users."""
        return self.log.client_quotas()

    def alter_client_quotas(
        self, parts: Mapping[str, str | None], changes: Mapping[str, float | None]
    ) -> None:
        """Change quotas; brokers apply them a moment later. Raises as `Log`'s."""
        self.log.alter_client_quotas(parts, changes)

    def users(self) -> Mapping[str, Mapping[ScramMechanism, int]]:
        """Return the users: for each name, the iterations of its credentials by mechanism."""
        return self.log.users()

    def set_password(
        self,
        user: str,
        password: str,
        mechanisms: Collection[ScramMechanism] = tuple(ScramMechanism),
        iterations: int = ITERATIONS_MIN,
    ) -> None:
        """Create a user or change a password. Raises as `Log.set_password`."""
        self.log.set_password(user, password, mechanisms, iterations)

    def remove_password(
        self, user: str, mechanisms: Collection[ScramMechanism] | None = None
    ) -> None:
        """Delete a user's credentials, by default all. Raises ResourceNotFound."""
        self.log.remove_password(user, mechanisms)

    def acls(self, wanted: AclFilter | None = None) -> list[AclBinding]:
        """Return the ACLs that a filter matches, by default all."""
        return self.log.acls(wanted)

    def create_acls(self, acls: Iterable[AclBinding]) -> None:
        """Create ACLs. Raises InvalidRequest."""
        self.log.create_acls(acls)

    def delete_acls(self, filters: Iterable[AclFilter]) -> list[AclBinding]:
        """Delete the ACLs that a filter matches, and return them."""
        return self.log.delete_acls(filters)

    def offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, ListedOffset | SparklogError]:
        """Return an offset per partition; with a leader, up to the flushed end."""
        with ThreadPoolExecutor(LOOKED_AT_ONCE) as pool:
            found = pool.map(lambda item: _or_error(partial(self._offset, *item)), wanted.items())
            return dict(zip(wanted, found, strict=True))

    def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | SparklogError]:
        """Delete the records before an offset of each partition; return the new log starts."""
        return {tp: _or_error(partial(self._deleted, tp, offset)) for tp, offset in before.items()}

    def brokers(self) -> list[ServingBroker]:
        """Return the brokers that are registered and not fenced, by id."""
        image = self.log.refresh()
        controller = image.controller.broker_id if image.controller is not None else None
        return [
            ServingBroker(b.broker_id, b.host, b.port, b.rack, b.broker_id == controller)
            for b in image.live_brokers()
        ]

    def _offset(self, tp: TopicPartition, at: int) -> ListedOffset:
        partition = self.log.partition(tp.topic, tp.partition)
        match at:
            case _ if at == LATEST:
                return ListedOffset(partition.view().end_offset, NO_TIMESTAMP_MS)
            case _ if at == EARLIEST:
                return ListedOffset(partition.readable().log_start_offset, NO_TIMESTAMP_MS)
            case _ if at == MAX_TIMESTAMP:
                return _found(partition.offset_of_max_timestamp())
        return _found(partition.offset_for_time(at))

    def _deleted(self, tp: TopicPartition, offset: int) -> int:
        check_may_delete_records(self.log.topic(tp.topic))
        return self.log.partition(tp.topic, tp.partition).delete_records(offset)


def _found(answer: TimedOffset | None) -> ListedOffset:
    return NOWHERE if answer is None else ListedOffset(answer.offset, answer.timestamp_ms)


def _or_error(look: Callable[[], Result]) -> Result | SparklogError:
    try:
        return look()
    except SparklogError as error:
        return error


def _config_value(described: DescribedConfig) -> ConfigValue:
    synonyms = tuple(
        (origin.source.name, origin.name, origin.value) for origin in described.origins
    )
    return ConfigValue(
        described.setting.name, described.value, described.source.name, False, synonyms
    )


def _every_broker(kind: ConfigResource, names: Sequence[str]) -> None:
    if kind is ConfigResource.GROUP or list(names) != [EVERY_BROKER]:
        raise InvalidRequest(_ASK_BROKERS)


def _refuse(assignment: Assignment | None) -> None:
    if assignment is not None:
        raise InvalidRequest("replicas are placed by brokers; use --bootstrap-server")
