"""The administration of a cluster that brokers serve: what `Log` does under a root, over the wire.

The same words and the same values as `sparklog.Log`, so that code can be pointed at either. Not for
many threads at once. Source: KIP-4, KIP-226, KIP-460.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from types import TracebackType
from typing import Any, Final

import confluent_kafka as ck
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import admin as _untyped_admin

from sparklog.client import values
from sparklog.client.addresses import bootstrap_addresses
from sparklog.client.errors import of_exception, of_kafka
from sparklog.client.log_dirs import LogDir, log_dirs
from sparklog.client.reassignments import (
    Reassignment,
    alter_reassignments,
    list_reassignments,
)
from sparklog.client.settings import Settings, client_settings, refused
from sparklog.client.values import ConfigValue, Election, FoundOffset, Resource, ServingBroker
from sparklog.client.wire import TIMEOUT_S
from sparklog.cluster.image import Partition, Topic
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.errors import OutcomeUnknown, SparklogError, UnknownTopicOrPartition
from sparklog.core.types import TopicPartition

ASKED_AGAIN_S: Final = 0.05
"""A broker may hear of a new topic a moment after another one created it."""
ck_admin: Any = _untyped_admin  # its module does not say which names it exports

Assignment = Sequence[Sequence[int]]
"""The replicas of each partition, the preferred leader first."""


class Admin:
    """Administers the cluster behind `bootstrap_servers`. A context manager."""

    def __init__(
        self,
        bootstrap_servers: str,
        settings: Settings | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Prepare to ask; nothing is sent yet. `settings` are librdkafka's.

        Raises:
            InvalidRequest, InvalidConfig: no addresses, or a setting librdkafka does not take.
        """
        self.bootstrap = bootstrap_addresses(bootstrap_servers)
        self.timeout_s = timeout_s
        self._clock = clock
        given = client_settings(bootstrap_servers, settings or {})
        try:
            self._client = ck_admin.AdminClient(given)
        except KafkaException as error:
            raise refused(error) from error

    def close(self) -> None:
        """Do nothing: the connections go with the object."""

    def __enter__(self) -> Admin:
        """Return the object itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    # ── topics ────────────────────────────────────────────────────────────────────────────────────

    def topic_names(self) -> list[str]:
        """Return the names of all topics, sorted. Cost: one request."""
        try:
            return sorted(self._client.list_topics(timeout=self.timeout_s).topics)
        except KafkaException as error:
            raise of_exception(error, "topics could not be listed") from error

    def topics(self) -> Mapping[str, Topic]:
        """Return every topic with its settings, by name. Cost: three requests."""
        return self._described(self.topic_names())

    def topic(self, name: str) -> Topic:
        """Return one topic with its settings.

        Raises:
            UnknownTopicOrPartition: no such topic.
        """
        found = self._described([name])
        if name not in found:
            raise UnknownTopicOrPartition(f"no such topic. topic={name}")
        return found[name]

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        configs: Mapping[str, str] | None = None,
        replication_factor: int | None = None,
        assignment: Assignment | None = None,
    ) -> Topic:
        """Create a topic; what is not given is the cluster's default.

        Raises:
            TopicAlreadyExists, InvalidTopic, InvalidPartitions, InvalidConfig, InvalidRequest.
            OutcomeUnknown: no answer came.
        """
        replicas = [list(brokers) for brokers in assignment] if assignment is not None else None
        wanted = ck_admin.NewTopic(
            name,
            num_partitions=len(replicas) if replicas else _or_default(partitions),
            replication_factor=-1 if replicas else _or_default(replication_factor),
            **({"replica_assignment": replicas} if replicas else {}),
            config=dict(configs or {}),
        )
        made = self._client.create_topics([wanted], **self._patience)
        self._outcome(made[name], "the topic was not created", topic=name)
        deadline_s = self._clock.monotonic_s() + self.timeout_s
        while True:
            try:
                return self.topic(name)
            except UnknownTopicOrPartition:
                if self._clock.monotonic_s() >= deadline_s:
                    raise
                self._clock.sleep_s(ASKED_AGAIN_S)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records.

        Raises:
            UnknownTopicOrPartition: no such topic. OutcomeUnknown: no answer came.
        """
        gone = self._client.delete_topics([name], **self._patience)
        self._outcome(gone[name], "the topic was not deleted", topic=name)

    def add_partitions(self, name: str, total: int, assignment: Assignment | None = None) -> None:
        """Grow a topic to `total` partitions; `assignment` places those that are new.

        Raises:
            UnknownTopicOrPartition, InvalidPartitions, InvalidRequest, OutcomeUnknown.
        """
        placed = [list(brokers) for brokers in assignment] if assignment is not None else None
        given = {"replica_assignment": placed} if placed else {}
        grown = self._client.create_partitions(
            [ck_admin.NewPartitions(name, total, **given)], **self._patience
        )
        self._outcome(grown[name], "partitions were not added", topic=name, partitions=total)

    # ── settings ──────────────────────────────────────────────────────────────────────────────────

    def configs(self, kind: Resource, names: Sequence[str]) -> dict[str, list[ConfigValue]]:
        """Return all settings of topics or brokers, defaults included, by their names.

        Raises:
            UnknownTopicOrPartition: no such topic.
        """
        if not names:
            return {}
        resources = [_resource(kind, name) for name in names]
        asked = self._client.describe_configs(resources, request_timeout=self.timeout_s)
        found = {}
        for resource, future in asked.items():
            entries = self._outcome(
                future, "settings could not be read", **{kind.value: resource.name}
            )
            found[resource.name] = [_config_value(entry) for entry in entries.values()]
        return found

    def alter_configs(
        self,
        name: str,
        values: Mapping[str, str] | None = None,
        remove: Iterable[str] = (),
        *,
        kind: Resource = Resource.TOPIC,
    ) -> None:
        """Set some settings of a topic or a broker, and put others back to their defaults.

        Raises:
            UnknownTopicOrPartition, InvalidConfig, OutcomeUnknown.
        """
        operation = ck_admin.AlterConfigOpType
        changes = [
            *(ck_admin.ConfigEntry(k, v, incremental_operation=operation.SET)
              for k, v in (values or {}).items()),
            *(ck_admin.ConfigEntry(k, None, incremental_operation=operation.DELETE)
              for k in remove),
        ]  # fmt: skip
        resource = ck_admin.ConfigResource(
            _resource(kind, name).restype, name, incremental_configs=changes
        )
        done = self._client.incremental_alter_configs([resource], request_timeout=self.timeout_s)
        self._outcome(done[resource], "settings were not changed", **{kind.value: name})

    # ── records ───────────────────────────────────────────────────────────────────────────────────

    def offsets(
        self, wanted: Mapping[TopicPartition, int], *, committed_only: bool = False
    ) -> dict[TopicPartition, FoundOffset | SparklogError]:
        """Return an offset per partition: EARLIEST, LATEST, MAX_TIMESTAMP or from a time in ms on.

        The offset is -1 where no record is that new. `committed_only` stops at open transactions.
        """
        if not wanted:
            return {}
        isolation = ck.IsolationLevel.READ_UNCOMMITTED
        if committed_only:
            isolation = ck.IsolationLevel.READ_COMMITTED
        asked = self._client.list_offsets(
            {_partition(tp): _offset_spec(at) for tp, at in wanted.items()},
            isolation_level=isolation,
            request_timeout=self.timeout_s,
        )
        doing = "the offset could not be looked up"
        return {
            _ours(tp): found
            if isinstance(found := self._settled(future, doing, _ours(tp)), SparklogError)
            else FoundOffset(found.offset, found.timestamp)
            for tp, future in asked.items()
        }

    def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | SparklogError]:
        """Delete records before an offset of each partition (-1: all); return the new starts."""
        if not before:
            return {}
        asked = self._client.delete_records(
            [_partition(tp, offset) for tp, offset in before.items()], **self._patience
        )
        doing = "records were not deleted"
        return {
            _ours(tp): found
            if isinstance(found := self._settled(future, doing, _ours(tp)), SparklogError)
            else int(found.low_watermark)
            for tp, future in asked.items()
        }

    # ── cluster ───────────────────────────────────────────────────────────────────────────────────

    def brokers(self) -> list[ServingBroker]:
        """Return the brokers that serve, by id."""
        asked = self._client.describe_cluster(request_timeout=self.timeout_s)
        found = self._outcome(asked, "the cluster could not be described")
        controller = found.controller.id if found.controller is not None else None
        return sorted(
            ServingBroker(n.id, n.host, n.port, n.rack, n.id == controller) for n in found.nodes
        )

    def cluster_id(self) -> str | None:
        """Return the cluster's id."""
        asked = self._client.describe_cluster(request_timeout=self.timeout_s)
        found: str | None = self._outcome(asked, "the cluster could not be described").cluster_id
        return found

    def elect_leaders(
        self, election: Election, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, bool | SparklogError]:
        """Elect leaders of some partitions, or of all.

        Returns:
            Per partition True for a new leader, False when the right one leads already, or an
            error.
        """
        kinds = {
            Election.PREFERRED: ck.ElectionType.PREFERRED,
            Election.UNCLEAN: ck.ElectionType.UNCLEAN,
        }
        wanted = None if partitions is None else [_partition(tp) for tp in partitions]
        asked = self._client.elect_leaders(kinds[election], wanted, **self._patience)
        found = self._outcome(asked, "leaders were not elected")
        return {_ours(tp): _elected(_ours(tp), error) for tp, error in found.items()}

    def reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Return the moves of replicas under way, of some partitions or of all.

        Raises:
            InvalidRequest: the brokers know no such call. Unavailable, OutcomeUnknown: no answer.
        """
        return list_reassignments(self.bootstrap, partitions, self.timeout_s)

    def alter_reassignments(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, SparklogError | None]:
        """Start to move partitions to these replicas; None calls a move off.

        Raises:
            InvalidRequest, Unavailable, OutcomeUnknown: as `reassignments`.
        """
        return alter_reassignments(self.bootstrap, wanted, self.timeout_s)

    def log_dirs(self, broker: ServingBroker) -> list[LogDir]:
        """Return where one broker keeps what.

        Raises:
            InvalidRequest, Unavailable, OutcomeUnknown: as `reassignments`.
        """
        return log_dirs(broker.address, self.timeout_s)

    # ── underneath ────────────────────────────────────────────────────────────────────────────────

    @property
    def _patience(self) -> dict[str, float]:
        return {"request_timeout": self.timeout_s, "operation_timeout": self.timeout_s}

    def _described(self, names: Sequence[str]) -> dict[str, Topic]:
        if not names:
            return {}
        asked = self._client.describe_topics(
            ck.TopicCollection(list(names)), request_timeout=self.timeout_s
        )
        described = []
        for name, future in asked.items():
            try:
                described.append(self._outcome(future, "the topic could not be read", topic=name))
            except UnknownTopicOrPartition:  # deleted a moment ago, or never there
                continue
        try:
            configs = self.configs(Resource.TOPIC, [found.name for found in described])
        except UnknownTopicOrPartition:  # one was deleted in between
            return self._described([found.name for found in described])
        return {found.name: _topic(found, configs[found.name]) for found in described}

    def _outcome(self, future: Future[Any], doing: str, **variables: Any) -> Any:
        """Return what a call of librdkafka came to. The waiting is bounded here, too."""
        try:
            return future.result(self.timeout_s + 5)
        except KafkaException as error:
            raise of_exception(error, doing, **variables) from error
        except FutureTimeout as error:
            raise OutcomeUnknown(f"{doing}: no answer came in time. {variables}") from error

    def _settled(self, future: Future[Any], doing: str, tp: TopicPartition) -> Any:
        try:
            return self._outcome(future, doing, partition=tp)
        except SparklogError as error:
            return error


def _or_default(number: int | None) -> int:
    return -1 if number is None else number


def _partition(tp: TopicPartition, offset: int = ck.OFFSET_INVALID) -> ck.TopicPartition:
    return ck.TopicPartition(tp.topic, tp.partition, offset)


def _ours(tp: ck.TopicPartition) -> TopicPartition:
    return TopicPartition(tp.topic, tp.partition)


def _offset_spec(at: int) -> Any:
    match at:
        case values.LATEST:
            return ck_admin.OffsetSpec.latest()
        case values.EARLIEST:
            return ck_admin.OffsetSpec.earliest()
        case values.MAX_TIMESTAMP:
            return ck_admin.OffsetSpec.max_timestamp()
    return ck_admin.OffsetSpec.for_timestamp(at)


def _resource(kind: Resource, name: str) -> Any:
    found = ck_admin.ResourceType.TOPIC if kind is Resource.TOPIC else ck_admin.ResourceType.BROKER
    return ck_admin.ConfigResource(found, name)


def _config_value(entry: Any) -> ConfigValue:
    synonyms = tuple(
        (ck_admin.ConfigSource(s.source).name, s.name, s.value) for s in entry.synonyms.values()
    )
    source = ck_admin.ConfigSource(entry.source).name
    return ConfigValue(entry.name, entry.value, source, entry.is_sensitive, synonyms)


def _topic(found: Any, configs: Sequence[ConfigValue]) -> Topic:
    states = tuple(
        Partition(
            replicas=tuple(node.id for node in p.replicas),
            isr=tuple(node.id for node in p.isr),
            leader=p.leader.id if p.leader is not None else -1,
        )
        for p in sorted(found.partitions, key=lambda p: p.id)
    )
    explicit = {c.name: c.value for c in configs if c.set_here and c.value is not None}
    return Topic(found.name, str(found.topic_id), states, explicit)


def _elected(tp: TopicPartition, error: Any) -> bool | SparklogError:
    failure = error.args[0] if isinstance(error, KafkaException) else error
    if failure is None or failure.code() == KafkaError.NO_ERROR:
        return True
    if failure.code() == KafkaError.ELECTION_NOT_NEEDED:
        return False
    return of_kafka(failure, "no leader was elected", partition=tp)
