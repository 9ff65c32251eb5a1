"""All that one incarnation of a broker does for transactions, put together."""

from __future__ import annotations

from sparklog.broker.enlisting import Enlisting
from sparklog.broker.environment import Environment
from sparklog.broker.group_coordinator import GroupCoordinator
from sparklog.broker.marker_writer import MarkerWriter
from sparklog.broker.marking import Marking
from sparklog.broker.metadata_access import MetadataAccess
from sparklog.broker.task_scope import TaskScope
from sparklog.broker.transaction_coordinator import TransactionCoordinator
from sparklog.core.broker_settings import BrokerConfig


class Transactions:
    """The coordinator, who writes its markers, and who asks it."""

    def __init__(
        self,
        environment: Environment,
        config: BrokerConfig,
        broker_id: int,
        metadata: MetadataAccess,
        tasks: TaskScope,
        groups: GroupCoordinator,
        marking: Marking,
    ) -> None:
        """Serve nothing yet: the replicas tell `coordinator` what is led here."""
        self.marking = marking
        self.writer = MarkerWriter(metadata, groups, marking)
        self.coordinator = TransactionCoordinator(
            environment, config, broker_id, metadata, tasks, self.writer.write
        )
        self.enlisting = Enlisting(environment, config, broker_id, metadata, self.coordinator)
