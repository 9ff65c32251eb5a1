"""GroupSettings: the settings of group coordinators. Times are ms, sizes bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sparklog.core.config.model import INT_MAX, Config

_MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Settings under Kafka's names with underscores for dots; see `core.group_settings`."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = INT_MAX
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_max_size: int = INT_MAX
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_migration_policy: str = "bidirectional"
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 10_080 * _MINUTE_MS
    offsets_retention_check_interval_ms: int = 600_000
    batch_bytes_max: int = 1_000_000
    """Limit for the records of one event:

    below the default max.message.bytes of the internal topic.
    """

    @property
    def may_upgrade(self) -> bool:
        """Return True if a classic group with members may become a consumer group."""
        return self.group_consumer_migration_policy in {"bidirectional", "upgrade"}

    @property
    def may_downgrade(self) -> bool:
        """Return True if a consumer group with members may become a classic group."""
        return self.group_consumer_migration_policy in {"bidirectional", "downgrade"}

    @classmethod
    def of(cls, config: Config) -> GroupSettings:
        """Return the settings from a broker's configuration."""
        return cls(
            group_min_session_timeout_ms=config.whole("group.min.session.timeout.ms"),
            group_max_session_timeout_ms=config.whole("group.max.session.timeout.ms"),
            group_initial_rebalance_delay_ms=config.whole("group.initial.rebalance.delay.ms"),
            group_max_size=config.whole("group.max.size"),
            group_consumer_session_timeout_ms=config.whole("group.consumer.session.timeout.ms"),
            group_consumer_heartbeat_interval_ms=config.whole(
                "group.consumer.heartbeat.interval.ms"
            ),
            group_consumer_max_size=config.whole("group.consumer.max.size"),
            group_consumer_assignors=config.words("group.consumer.assignors"),
            group_consumer_migration_policy=config.text("group.consumer.migration.policy"),
            offset_metadata_max_bytes=config.whole("offset.metadata.max.bytes"),
            offsets_retention_ms=config.whole("offsets.retention.minutes") * _MINUTE_MS,
            offsets_retention_check_interval_ms=config.whole("offsets.retention.check.interval.ms"),
        )
