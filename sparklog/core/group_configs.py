"""Settings of one group, set at run time in place of the brokers' defaults for groups.

Names, kinds and the limits that brokers put to them are Kafka's. Source: KIP-848, KIP-932.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sparklog.core.config import Acts, Config, Kind, Setting, parse_configs, table_of
from sparklog.core.errors import InvalidConfig

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"

GROUP_CONFIGS: Final[Mapping[str, Setting]] = table_of(
    Setting(
        SESSION_TIMEOUT,
        Kind.INT,
        45_000,
        Acts.BROKER,
        "A member of the group that was not heard of for so long is removed.",
        unit="ms",
        at_least=1,
    ),
    Setting(
        HEARTBEAT_INTERVAL,
        Kind.INT,
        5_000,
        Acts.BROKER,
        "How often members of the group are told to send heartbeats.",
        unit="ms",
        at_least=1,
    ),
)
"""Of a group of the newer protocol."""
NONE_SET: Final = Config(GROUP_CONFIGS, {})
"""Of a group that has none of its own."""


def default_name(name: str) -> str:
    """Return under which name brokers have the default of a group's setting."""
    return f"group.{name}"


def parse_group_configs(given: Mapping[str, str], broker: Config) -> Config:
    """Return a group's settings, on a broker with settings of its own.

    Raises:
        InvalidConfig: an unknown name, a value beyond what the broker allows, or a session that
            ends before a member is to be heard of again.
    """
    config = parse_configs(given, GROUP_CONFIGS)
    for name in config.given:
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
    return config
