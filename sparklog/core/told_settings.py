"""Settings as they are told: the value in force, and everything it could come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from sparklog.core.config import Config, Setting, parse_configs
from sparklog.core.group_configs import GROUP_CONFIGS, default_name
from sparklog.core.settings import parse_topic_configs
from sparklog.core.topic_defaults import DEFAULT_NAMES, DEFAULT_SETTINGS, parse_topic_defaults


class ConfigSource(IntEnum):
    """Where a setting's value comes from. Source: Kafka's `DescribeConfigsResponse`."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True)
class Origin:
    """One of the places that a value could come from."""

    source: ConfigSource
    name: str
    """What the setting is called there."""
    value: str


@dataclass(frozen=True, slots=True)
class ToldSetting:
    """A setting with its origins, the one in force first."""

    setting: Setting
    origins: tuple[Origin, ...]

    @property
    def value(self) -> str:
        """Return the value in force, as Kafka's tools print it."""
        return self.origins[0].value

    @property
    def source(self) -> ConfigSource:
        """Return where the value in force comes from."""
        return self.origins[0].source


def topic_told(own: Mapping[str, str], defaults: Mapping[str, str]) -> list[ToldSetting]:
    """Return every setting of a topic, its own first.

    Args:
        own: set for this topic.
        defaults: set for all topics, under the names of a topic's settings.

    Raises:
        InvalidConfig: a stored value is none.
    """
    mine, everybodys = parse_topic_configs(own), parse_topic_configs(defaults)
    for_one, for_all = ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    return [
        _told(
            setting,
            [
                (for_one, mine, name, name),
                (for_all, everybodys, name, DEFAULT_NAMES.get(name, name)),
            ],
        )
        for name, setting in {**{n: mine.table[n] for n in own}, **mine.table}.items()
    ]


def group_told(own: Mapping[str, str], broker: Config) -> list[ToldSetting]:
    """Return every setting of a group, with what `broker` was started with behind it.

    Raises:
        InvalidConfig: a stored value is none.
    """
    mine = parse_configs(own, GROUP_CONFIGS)
    for_one, for_all = ConfigSource.DYNAMIC_GROUP_CONFIG, ConfigSource.STATIC_BROKER_CONFIG
    return [
        _told(
            setting,
            [
                (for_one, mine, name, name),
                (for_all, broker, default_name(name), default_name(name)),
            ],
        )
        for name, setting in GROUP_CONFIGS.items()
    ]


def broker_told(config: Config) -> list[ToldSetting]:
    """Return every setting that a broker was started with."""
    source = ConfigSource.STATIC_BROKER_CONFIG
    return [_told(s, [(source, config, name, name)]) for name, s in config.table.items()]


def defaults_told(defaults: Mapping[str, str], *, set_only: bool) -> list[ToldSetting]:
    """Return the defaults of all topics under brokers' names; `set_only` leaves out built-in ones.

    Raises:
        InvalidConfig: a stored value is none.
    """
    config = parse_topic_defaults({k: v for k, v in defaults.items() if k in DEFAULT_SETTINGS})
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    return [
        _told(setting, [(source, config, name, name)])
        for name, setting in config.table.items()
        if not set_only or name in config.given
    ]


def _told(setting: Setting, layers: list[tuple[ConfigSource, Config, str, str]]) -> ToldSetting:
    """Return a setting given where it may be set: source, settings there, name in them, as told."""
    found = [
        Origin(source, told_as, setting.spell(config.given[name]))
        for source, config, name, told_as in layers
        if name in config.given
    ]
    built_in = Origin(ConfigSource.DEFAULT_CONFIG, setting.name, setting.spell(setting.default))
    return ToldSetting(setting, (*found, built_in))
