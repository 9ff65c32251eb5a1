"""Settings of share groups, resolved from those of a broker and those of a group.

The bounds of a broker may have changed since a group's value was stored. Such a value counts as the
nearest one that the broker allows. Source: Kafka's `GroupConfig.evaluate`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from sparklog.core.config.broker import BROKER_SETTINGS, BrokerConfig
from sparklog.core.config.model import Config
from sparklog.core.config.share_groups import (
    COPIES_RECORDS,
    CREATES_DEAD_LETTER_TOPICS,
    DEAD_LETTER_PREFIX,
    DEAD_LETTER_TOPIC,
    OffsetReset,
    ResetPolicy,
)

__all__ = ["DEFAULTS", "OffsetReset", "ResetPolicy", "ShareGroupSettings", "ShareSettings"]

_READ_COMMITTED: Final = "read_committed"


@dataclass(frozen=True, slots=True)
class ShareGroupSettings:
    """The settings of one share group. Times are ms."""

    lock_ms: int
    """Time for which a member has an acquired record to itself."""
    count_max: int
    """Deliveries of a record."""
    records_max: int
    """Records of a partition between the start offset and the end offset of the group."""
    heartbeat_interval_ms: int
    session_timeout_ms: int
    read_committed: bool
    """Only records of committed transactions are delivered."""
    offset_reset: OffsetReset
    """The position at which a partition without a start offset begins."""
    renew: bool
    """Members may renew their locks."""
    dead_letter_topic: str
    """The topic for records that the group gives up; empty for none."""
    copies_records: bool
    """Dead letters have the keys, values and headers of their records."""


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """The settings of a broker for all share groups."""

    size_max: int
    """Members of a group."""
    sessions_max: int
    """Share sessions of the broker."""
    initialize_retry_ms: int
    """Pause after the state of partitions could not be initialized."""
    dead_letter_prefix: str
    """Dead letter topics have names that begin so; empty for any name."""
    creates_dead_letter_topics: bool
    _broker: Config = field(repr=False)

    @classmethod
    def of(cls, config: BrokerConfig) -> ShareSettings:
        """Return the settings from the configuration of a broker."""
        return cls(
            config.whole("group.share.max.size"),
            config.whole("group.share.max.share.sessions"),
            config.whole("group.share.initialize.retry.interval.ms"),
            config.text(DEAD_LETTER_PREFIX),
            config.flag(CREATES_DEAD_LETTER_TOPICS),
            config,
        )

    def for_group(self, config: Config) -> ShareGroupSettings:
        """Return the settings of the group that has the configuration `config`."""
        return ShareGroupSettings(
            lock_ms=self._bounded(config, "record.lock.duration.ms"),
            count_max=self._bounded(config, "delivery.count.limit"),
            records_max=self._bounded(config, "partition.max.record.locks"),
            heartbeat_interval_ms=self._bounded(config, "heartbeat.interval.ms"),
            session_timeout_ms=self._bounded(config, "session.timeout.ms"),
            read_committed=config.text("share.isolation.level") == _READ_COMMITTED,
            offset_reset=OffsetReset.parse(config.text("share.auto.offset.reset")),
            renew=config.flag("share.renew.acknowledge.enable"),
            dead_letter_topic=config.text(DEAD_LETTER_TOPIC),
            copies_records=config.flag(COPIES_RECORDS),
        )

    def _bounded(self, config: Config, name: str) -> int:
        """Return the value of a group within the bounds of the broker, or else the default."""
        if f"share.{name}" not in config.given:
            return self._broker.whole(f"group.share.{name}")
        low = self._broker.whole(f"group.share.min.{name}")
        high = self._broker.whole(f"group.share.max.{name}")
        return min(max(config.whole(f"share.{name}"), low), high)


DEFAULTS: Final = ShareSettings.of(Config(BROKER_SETTINGS, {}))
"""The settings of a broker without any of its own."""
