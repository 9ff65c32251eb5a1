"""Settings of one broker that may change while it runs, as with `--entity-name 1`.

Kafka can change more settings for one broker; these have a meaning here. Topic settings without any
effect are accepted too, so that a Kafka broker's settings carry over. Retention and similar
settings belong to the log, and are set for all brokers: `topic_defaults`.
Source: KIP-226; Kafka's `DynamicBrokerConfig`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from sparklog.core.config.broker import BROKER_SETTINGS
from sparklog.core.config.model import (
    Config,
    Effect,
    Setting,
    check_names,
    table_of,
    understood_configs,
)
from sparklog.core.config.topic_defaults import DEFAULT_SETTINGS
from sparklog.core.errors import InvalidConfig

_DYNAMIC: Final = (
    "max.connections",
    "producer.id.expiration.ms",
    "transaction.partition.verification.enable",
)

ONE_BROKER_SETTINGS: Final[Mapping[str, Setting]] = table_of(
    *(BROKER_SETTINGS[name] for name in _DYNAMIC),
    *(one for one in DEFAULT_SETTINGS.values() if one.acts is Effect.NEVER),
)
"""Settings that may be set for one broker."""


def check_one_broker_names(names: Iterable[str]) -> None:
    """Reject names that cannot be set for one broker.

    Raises:
        InvalidConfig: the message says how to set the setting instead.
    """
    asked = list(names)
    for name in asked:
        if name in ONE_BROKER_SETTINGS:
            continue
        if name in DEFAULT_SETTINGS:
            raise InvalidConfig(
                "this setting belongs to the log and not to one broker; set it for all: "
                f"--entity-type brokers --entity-default. setting={name!r}"
            )
        if name in BROKER_SETTINGS:
            raise InvalidConfig(
                "this setting is read when the broker starts; start the broker with "
                f"another value. setting={name!r}"
            )
    check_names(asked, ONE_BROKER_SETTINGS)


def in_force(started: Config, own: Mapping[str, str]) -> Config:
    """Return a broker's settings: its dynamic ones override those from its start."""
    if not own:
        return started
    table = {name: one for name, one in ONE_BROKER_SETTINGS.items() if name in started.table}
    return Config(started.table, {**started.given, **understood_configs(own, table).given})
