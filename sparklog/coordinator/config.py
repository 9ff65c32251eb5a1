"""GroupSettings: the settings of group coordinators. Times are ms, sizes bytes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final

from sparklog.core.config.model import Config

_MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Settings under Kafka's names with underscores for dots.

    `core.config.group_coordinator` has their defaults and limits.
    """

    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_initial_rebalance_delay_ms: int
    group_max_size: int
    group_consumer_session_timeout_ms: int
    group_consumer_heartbeat_interval_ms: int
    group_consumer_max_size: int
    group_consumer_assignors: tuple[str, ...]
    group_consumer_migration_policy: str
    offset_metadata_max_bytes: int
    offsets_retention_ms: int
    """`offsets.retention.minutes`, in ms."""
    offsets_retention_check_interval_ms: int
    batch_bytes_max: ClassVar[int] = 1_000_000
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
        values: dict[str, Any] = {
            each.name: config[each.name.replace("_", ".")]
            for each in fields(cls)
            if each.name != "offsets_retention_ms"
        }
        retention_ms = config.whole("offsets.retention.minutes") * _MINUTE_MS
        return cls(offsets_retention_ms=retention_ms, **values)
