"""Settings of share groups: those of a broker, and those of one group.

A group's own setting `share.NAME` overrides the broker's `group.share.NAME`. The broker bounds what
groups may set: `group.share.min.NAME` and `group.share.max.NAME`.

Source: KIP-932; KIP-1191 (dead letters); Kafka's `ShareGroupConfig` and `GroupConfig`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from sparklog.core.clock import parse_duration_ms
from sparklog.core.config.model import Config, Effect, Setting, SettingType
from sparklog.core.errors import InvalidConfig

DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
COPIES_RECORDS: Final = "errors.deadletterqueue.copy.record.enable"
DEAD_LETTER_PREFIX: Final = "errors.deadletterqueue.topic.name.prefix"
CREATES_DEAD_LETTER_TOPICS: Final = "errors.deadletterqueue.auto.create.topics.enable"
_INTERNAL_PREFIX: Final = "__"


class ResetPolicy(StrEnum):
    """The position from which a share group begins to read a partition."""

    LATEST = "latest"
    EARLIEST = "earliest"
    BY_DURATION = "by_duration"


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """The value of `share.auto.offset.reset`."""

    policy: ResetPolicy = ResetPolicy.LATEST
    duration_ms: int = 0
    """With BY_DURATION: the age of the oldest record to read."""

    @classmethod
    def parse(cls, text: str) -> OffsetReset:
        """Return the value of `text`.

        Raises:
            ValueError: an unknown policy, or a duration that is missing, unreadable or negative.
        """
        policy, colon, duration = text.partition(":")
        if policy in tuple(ResetPolicy) and bool(colon) == (policy == ResetPolicy.BY_DURATION):
            duration_ms = parse_duration_ms(duration) if colon else 0
            if duration_ms >= 0:
                return cls(ResetPolicy(policy), duration_ms)
        raise ValueError("'earliest', 'latest' or 'by_duration:<PnDTnHnMn.nS>'")


class _Number(NamedTuple):
    """A default, and the lowest and the highest value that the setting itself accepts."""

    default: int
    at_least: int
    at_most: int | None = None


class _Bounded(NamedTuple):
    """A setting of groups with a default and bounds on the broker."""

    name: str
    reason: str
    value: _Number
    low: _Number
    high: _Number

    @property
    def unit(self) -> str:
        """Return the unit of the three settings."""
        return "ms" if self.name.endswith(".ms") else ""

    def of_broker(self) -> Iterator[Setting]:
        """Yield the settings of a broker: the default of all groups, and its bounds."""
        for bound, number, reason in (
            ("", self.value, self.reason),
            ("min.", self.low, f"Lowest share.{self.name} that a group may set."),
            ("max.", self.high, f"Highest share.{self.name} that a group may set."),
        ):
            yield self._setting(f"group.share.{bound}{self.name}", number, reason)

    def of_group(self) -> Setting:
        """Return the setting of one group."""
        number = self.value._replace(at_most=None)
        return self._setting(f"share.{self.name}", number, self.reason)

    def _setting(self, name: str, number: _Number, reason: str) -> Setting:
        return Setting(
            name,
            SettingType.INT,
            number.default,
            Effect.BROKER,
            reason,
            unit=self.unit,
            at_least=number.at_least,
            at_most=number.at_most,
        )


_HEARTBEAT: Final = "heartbeat.interval.ms"
_SESSION: Final = "session.timeout.ms"
_BOUNDED: Final = (
    _Bounded(
        _HEARTBEAT,
        "How often members of share groups send heartbeats. A member learns of a change of its "
        "partitions with its next one.",
        _Number(5_000, 1),
        _Number(5_000, 1),
        _Number(15_000, 1),
    ),
    _Bounded(
        _SESSION,
        "The coordinator removes a member of a share group that sent no heartbeat for so long.",
        _Number(45_000, 1),
        _Number(45_000, 1),
        _Number(60_000, 1),
    ),
    _Bounded(
        "record.lock.duration.ms",
        "How long a member has a record to itself. Afterwards the group delivers it again.",
        _Number(30_000, 1_000, 3_600_000),
        _Number(15_000, 1_000, 30_000),
        _Number(60_000, 30_000, 3_600_000),
    ),
    _Bounded(
        "delivery.count.limit",
        "Deliveries of a record. The group then gives it up, or sends it to its dead letter topic.",
        _Number(5, 2, 10),
        _Number(2, 2, 5),
        _Number(10, 5, 25),
    ),
    _Bounded(
        "partition.max.record.locks",
        "Records of a partition between the first unfinished one and the newest delivered one. The "
        "leader keeps the state of each of them in memory.",
        _Number(2_000, 100, 10_000),
        _Number(100, 100, 2_000),
        _Number(4_000, 2_000, 10_000),
    ),
)

SHARE_GROUP_SETTINGS: Final = (
    *(setting for each in _BOUNDED for setting in each.of_broker()),
    Setting(
        "group.share.max.size",
        SettingType.INT,
        200,
        Effect.BROKER,
        "Members of a share group.",
        unit="members",
        at_least=1,
        at_most=1_000,
    ),
    Setting(
        "group.share.assignors",
        SettingType.LIST,
        ("simple",),
        Effect.BROKER,
        "The assignor of share groups. Kafka loads other classes too; here is only this one.",
        choices=("simple",),
    ),
    Setting(
        "group.share.initialize.retry.interval.ms",
        SettingType.INT,
        30_000,
        Effect.BROKER,
        "How long the coordinator waits before it initializes the state of a partition again.",
        unit="ms",
        at_least=1,
    ),
    Setting(
        "group.share.max.share.sessions",
        SettingType.INT,
        2_000,
        Effect.BROKER,
        "Share sessions of a broker: one for each member that reads from it. The broker keeps the "
        "partitions of each in memory.",
        unit="sessions",
        at_least=1,
    ),
    Setting(
        DEAD_LETTER_PREFIX,
        SettingType.STRING,
        "dlq.",
        Effect.BROKER,
        "Names of dead letter topics begin so. Empty allows any name.",
    ),
    Setting(
        CREATES_DEAD_LETTER_TOPICS,
        SettingType.BOOLEAN,
        default=False,
        acts=Effect.BROKER,
        reason="Whether brokers create a missing dead letter topic.",
    ),
)
"""Settings of a broker for its share groups."""

SHARE_GROUP_CONFIGS: Final = (
    *(each.of_group() for each in _BOUNDED),
    Setting(
        "share.auto.offset.reset",
        SettingType.STRING,
        "latest",
        Effect.BROKER,
        "The position from which a share group begins to read a partition.",
        form=OffsetReset.parse,
    ),
    Setting(
        "share.isolation.level",
        SettingType.STRING,
        "read_uncommitted",
        Effect.BROKER,
        "Whether a share group delivers records of open and aborted transactions.",
        choices=("read_committed", "read_uncommitted"),
    ),
    Setting(
        "share.renew.acknowledge.enable",
        SettingType.BOOLEAN,
        default=True,
        acts=Effect.BROKER,
        reason="Whether a member may renew its lock of a record.",
    ),
    Setting(
        DEAD_LETTER_TOPIC,
        SettingType.STRING,
        "",
        Effect.BROKER,
        "The topic for records that the group rejects or gives up. Empty keeps none.",
    ),
    Setting(
        COPIES_RECORDS,
        SettingType.BOOLEAN,
        default=False,
        acts=Effect.BROKER,
        reason="Whether a dead letter has the key, the value and the headers of the record. It "
        "names the position of the record in any case.",
    ),
)
"""Settings of one share group."""


def check_share_group_settings(config: Config) -> None:
    """Reject settings of a broker that contradict each other.

    Raises:
        InvalidConfig: a default outside its bounds, no assignor, or a session shorter than the
            heartbeat interval.
    """
    for each in _BOUNDED:
        _check_bounds(f"group.share.{each.name}", config, each.name, config)
    _check_session(f"group.share.{_HEARTBEAT}", config, f"group.share.{_SESSION}", config)
    if not config.words("group.share.assignors"):
        raise InvalidConfig("group.share.assignors names at least one assignor")


def check_share_group_configs(config: Config, broker: Config) -> None:
    """Reject settings of a group that its broker does not allow.

    Raises:
        InvalidConfig: a value outside the bounds of the broker, a session shorter than the
            heartbeat interval, or a topic that may not have dead letters.
    """
    for each in _BOUNDED:
        if f"share.{each.name}" in config.given:
            _check_bounds(f"share.{each.name}", config, each.name, broker)
    heartbeat, session = f"share.{_HEARTBEAT}", f"share.{_SESSION}"
    if config.given.keys() & {heartbeat, session}:
        _check_session(
            *((heartbeat, config) if heartbeat in config.given else (f"group.{heartbeat}", broker)),
            *((session, config) if session in config.given else (f"group.{session}", broker)),
        )
    topic, prefix = config.text(DEAD_LETTER_TOPIC), broker.text(DEAD_LETTER_PREFIX)
    if topic.startswith(_INTERNAL_PREFIX):
        raise InvalidConfig(
            f"the name of a dead letter topic cannot start with __. {DEAD_LETTER_TOPIC}={topic!r}"
        )
    if topic and not topic.startswith(prefix):
        raise InvalidConfig(
            "the name of the dead letter topic does not comply with the prefix of such topics. "
            f"{DEAD_LETTER_TOPIC}={topic!r} {DEAD_LETTER_PREFIX}={prefix!r}"
        )


def _check_bounds(name: str, config: Config, bounded: str, broker: Config) -> None:
    """Check a value against the bounds of the broker, with Kafka's words."""
    value = config.whole(name)
    low, high = f"group.share.min.{bounded}", f"group.share.max.{bounded}"
    if value < broker.whole(low):
        raise InvalidConfig(
            f"{name} must be greater than or equal to {low}. {name}={value} "
            f"{low}={broker.whole(low)}"
        )
    if value > broker.whole(high):
        raise InvalidConfig(
            f"{name} must be less than or equal to {high}. {name}={value} "
            f"{high}={broker.whole(high)}"
        )


def _check_session(heartbeat: str, beats: Config, session: str, sessions: Config) -> None:
    heartbeat_ms, session_ms = beats.whole(heartbeat), sessions.whole(session)
    if session_ms <= heartbeat_ms:
        raise InvalidConfig(
            f"{session} must be greater than {heartbeat}. {session}={session_ms} "
            f"{heartbeat}={heartbeat_ms}"
        )
