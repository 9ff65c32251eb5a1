"""ShareGroupService: deliveries to share groups from the partitions that this broker leads.

It joins sessions, windows, fetches and dead letters of one incarnation of a broker.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparklog.broker.coordinator.groups import GroupRules
from sparklog.broker.fetch.fetch import FetchService
from sparklog.broker.fetch.read import Leaders
from sparklog.broker.produce.produce import ProduceService
from sparklog.broker.replication.offset_lookup import OffsetLookup
from sparklog.broker.runtime.environment import Environment, TaskScope
from sparklog.broker.runtime.metadata_access import MetadataAccess
from sparklog.broker.runtime.metrics import BrokerMetrics, Gauge
from sparklog.broker.runtime.request import ConnectionEnd
from sparklog.broker.share.dead_letters import DeadLetterWriter
from sparklog.broker.share.fetch import ShareFetchService
from sparklog.broker.share.partitions import SharePartitions
from sparklog.broker.share.sessions import ShareSession, ShareSessionCache
from sparklog.broker.share.state_client import ShareStateClient
from sparklog.coordinator.share.delivery_state import DeliveryState
from sparklog.coordinator.share.settings import ShareGroupSettings, ShareSettings
from sparklog.core.config.broker import BrokerConfig
from sparklog.core.config.model import Config


@dataclass(frozen=True, slots=True)
class PartitionServices:
    """The services of the partitions that a broker leads."""

    leaders: Leaders
    fetches: FetchService
    produces: ProduceService
    offsets: OffsetLookup


class ShareGroupService:
    """See the module."""

    def __init__(
        self,
        environment: Environment,
        config: BrokerConfig,
        broker_id: int,
        metadata: MetadataAccess,
        tasks: TaskScope,
        states: ShareStateClient,
        metrics: BrokerMetrics,
        services: PartitionServices,
    ) -> None:
        """Begin without sessions."""
        self._settings = ShareSettings.of(config)
        self._rules = GroupRules(metadata)
        self._known: dict[str, tuple[Config, ShareGroupSettings]] = {}
        """By group: its configs and the settings of these. A cache: each record needs them."""
        self.sessions = ShareSessionCache(self._settings.sessions_max)
        self.dead_letters = DeadLetterWriter(
            environment,
            metadata,
            services.fetches,
            services.produces,
            tasks,
            metrics,
            broker_id=broker_id,
            replication_factor=config.whole("default.replication.factor"),
            settings=self._settings,
            settings_of=self.settings_of,
        )
        self.partitions = SharePartitions(
            environment,
            services.leaders,
            services.offsets,
            states,
            tasks,
            self.settings_of,
            self.dead_letters,
        )
        self.dead_letters.all_written = self.partitions.forget_idle
        self.fetch_service = ShareFetchService(services.fetches)
        metrics.watch(Gauge.SHARE_SESSIONS, lambda: len(self.sessions))
        metrics.watch(Gauge.SHARE_ACQUIRED, lambda: self._count_of(DeliveryState.ACQUIRED))
        metrics.watch(Gauge.DEAD_LETTERS_WAITING, lambda: self.dead_letters.waiting)

    def settings_of(self, group_id: str) -> ShareGroupSettings:
        """Return the settings of a group, as they are now."""
        config = self._rules.of(group_id)
        known = self._known.get(group_id)
        if known is not None and known[0] is config:
            return known[1]
        settings = self._settings.for_group(config)
        self._known[group_id] = config, settings
        return settings

    def end_with(self, connection: ConnectionEnd | None, session: ShareSession) -> None:
        """End a session when its connection is lost."""
        if connection is not None:
            connection.call(session.key, lambda: self.end(session))

    def end(self, session: ShareSession) -> None:
        """End a session, and release all that its member has acquired here."""
        if not self.sessions.end(session):
            return
        group_id, member_id = session.key
        for part in self.partitions.of_group(group_id):
            part.release(member_id)
        if not self.sessions.has_group(group_id):
            self.partitions.retire(group_id)

    def forget_resigned(self) -> None:
        """Drop the windows of partitions that this broker leads no more."""
        self.partitions.forget_resigned()

    def _count_of(self, state: DeliveryState) -> int:
        return sum(part.window.count_of(state) for part in self.partitions.all())
