"""Dynamic settings of one group, which override the brokers' defaults for groups.

Names, kinds and limits are Kafka's. Source: KIP-848, KIP-932, KIP-1071; the configuration
definitions of Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sparklog.core.config.model import Config, Effect, Setting, SettingType, parse_configs, table_of
from sparklog.core.config.share_groups import SHARE_GROUP_CONFIGS, check_share_group_configs
from sparklog.core.errors import InvalidConfig

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"

_CARRIED: Final = (
    ("consumer.assignment.interval.ms", SettingType.INT, 1_000, 0),
    ("consumer.assignor.offload.enable", SettingType.BOOLEAN, True, None),
    ("share.assignment.interval.ms", SettingType.INT, 1_000, 0),
    ("share.assignor.offload.enable", SettingType.BOOLEAN, True, None),
    ("streams.acceptable.recovery.lag", SettingType.LONG, 10_000, 0),
    ("streams.assignment.interval.ms", SettingType.INT, 1_000, 0),
    ("streams.assignor.name", SettingType.STRING, "", None),
    ("streams.assignor.offload.enable", SettingType.BOOLEAN, True, None),
    ("streams.heartbeat.interval.ms", SettingType.INT, 5_000, 1),
    ("streams.initial.rebalance.delay.ms", SettingType.INT, 3_000, 0),
    ("streams.num.standby.replicas", SettingType.INT, 0, 0),
    ("streams.num.warmup.replicas", SettingType.INT, 2, 0),
    ("streams.rack.aware.assignment.tags", SettingType.LIST, (), None),
    ("streams.session.timeout.ms", SettingType.INT, 45_000, 1),
    ("streams.task.offset.interval.ms", SettingType.INT, 60_000, 1),
)
"""Name, kind, default and lowest value of settings that have no meaning here."""

GROUP_CONFIGS: Final[Mapping[str, Setting]] = table_of(
    Setting(
        SESSION_TIMEOUT,
        SettingType.INT,
        45_000,
        Effect.BROKER,
        "A member of the group that was not heard of for so long is removed.",
        unit="ms",
        at_least=1,
    ),
    Setting(
        HEARTBEAT_INTERVAL,
        SettingType.INT,
        5_000,
        Effect.BROKER,
        "How often members of the group are told to send heartbeats.",
        unit="ms",
        at_least=1,
    ),
    *SHARE_GROUP_CONFIGS,
    *(
        Setting(
            name,
            kind,
            default,
            Effect.NEVER,
            "Stored and shown, so that a Kafka group's settings carry over.",
            unit="ms" if name.endswith(".ms") else "",
            at_least=low,
        )
        for name, kind, default, low in _CARRIED
    ),
)
"""Settings of a group.

Those of consumer groups and share groups take effect; the others are only stored.
"""
NONE_SET: Final = Config(GROUP_CONFIGS, {})
"""For a group without settings of its own."""


def default_name(name: str) -> str:
    """Return the name of the broker setting with the default of a group's setting."""
    return f"group.{name}"


def parse_group_configs(given: Mapping[str, str], broker: Config) -> Config:
    """Return a group's settings, on a broker with settings of its own.

    Raises:
        InvalidConfig: an unknown name, a value outside the broker's limits, or a session shorter
            than the heartbeat interval. Also a topic that may not have dead letters.
    """
    config = parse_configs(given, GROUP_CONFIGS)
    for name in config.given.keys() & {SESSION_TIMEOUT, HEARTBEAT_INTERVAL}:
        low = f"group.consumer.min.{name.removeprefix('consumer.')}"
        high = f"group.consumer.max.{name.removeprefix('consumer.')}"
        if not broker.whole(low) <= config.whole(name) <= broker.whole(high):
            raise InvalidConfig(
                f"{name} is between {low} and {high}. {name}={config.whole(name)} "
                f"{low}={broker.whole(low)} {high}={broker.whole(high)}"
            )
    heartbeat_ms, session_ms = (
        (config if name in config.given else broker).whole(
            name if name in config.given else default_name(name)
        )
        for name in (HEARTBEAT_INTERVAL, SESSION_TIMEOUT)
    )
    if heartbeat_ms >= session_ms:
        raise InvalidConfig(
            "a member must be heard of within its session. "
            f"{HEARTBEAT_INTERVAL}={heartbeat_ms} {SESSION_TIMEOUT}={session_ms}"
        )
    check_share_group_configs(config, broker)
    return config
