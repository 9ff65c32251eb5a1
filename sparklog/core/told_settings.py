"""Settings as they are told: the value in force, and everything it could come from.

What a newer version has stored and this one does not understand is told as it is stored, as text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Final

from sparklog.core.config import Acts, Config, Kind, Setting, understood_configs
from sparklog.core.dynamic_settings import ONE_BROKER_SETTINGS
from sparklog.core.group_configs import GROUP_CONFIGS, default_name
from sparklog.core.kafka_settings import kafka_broker_settings
from sparklog.core.settings import TOPIC_SETTINGS
from sparklog.core.topic_defaults import DEFAULT_NAMES, DEFAULT_SETTINGS


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


_ONLY_IN_KAFKA: Final = "A setting of Kafka's brokers without a meaning here."

Layer = tuple[ConfigSource, Config, str, str]
"""Where a setting may be set: source, settings there, its name in them, and as it is told."""


@dataclass(frozen=True, slots=True)
class Origin:
    """One of the places that a value could come from."""

    source: ConfigSource
    name: str
    """What the setting is called there."""
    value: str | None
    """None where Kafka has no default."""


@dataclass(frozen=True, slots=True)
class ToldSetting:
    """A setting with its origins, the one in force first."""

    setting: Setting
    origins: tuple[Origin, ...]

    @property
    def value(self) -> str | None:
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
    """
    for_all = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    everybodys, _ = _stored(defaults, TOPIC_SETTINGS)
    return _own_first(
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
        own,
        TOPIC_SETTINGS,
        lambda name: (for_all, everybodys, name, DEFAULT_NAMES.get(name, name)),
    )


def group_told(own: Mapping[str, str], broker: Config) -> list[ToldSetting]:
    """Return every setting of a group, with what `broker` was started with behind it."""
    for_all = ConfigSource.STATIC_BROKER_CONFIG
    return _own_first(
        ConfigSource.DYNAMIC_GROUP_CONFIG,
        own,
        GROUP_CONFIGS,
        lambda name: (for_all, broker, default_name(name), default_name(name)),
    )


def broker_told(
    config: Config, own: Mapping[str, str], defaults: Mapping[str, str]
) -> list[ToldSetting]:
    """Return every setting of a broker: its own, all topics' defaults, and those only Kafka has.

    Args:
        config: what it was started with.
        own: set for this broker at run time.
        defaults: set for all topics.
    """
    mine, strange = _stored(own, ONE_BROKER_SETTINGS)
    everybodys, unknown = _stored(defaults, DEFAULT_SETTINGS)
    own_source, for_all = (
        ConfigSource.DYNAMIC_BROKER_CONFIG,
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    )
    started = ConfigSource.STATIC_BROKER_CONFIG
    told = [
        *(_strange(own_source, name, text) for name, text in strange.items()),
        *(_strange(for_all, name, text) for name, text in unknown.items() if name not in strange),
        *(
            _told(one, [(own_source, mine, name, name), (started, config, name, name)])
            for name, one in config.table.items()
        ),
        *(
            _told(one, [(own_source, mine, name, name), (for_all, everybodys, name, name)])
            for name, one in DEFAULT_SETTINGS.items()
            if name not in unknown
        ),
    ]
    known = {one.setting.name for one in told}
    return [*told, *(one for one in _kafka_told() if one.setting.name not in known)]


@cache
def _kafka_told() -> tuple[ToldSetting, ...]:
    """Return Kafka's settings with Kafka's defaults; passwords are not told."""
    told = []
    for one in kafka_broker_settings().values():
        setting = Setting(one.name, Kind(one.kind), "", Acts.NEVER, _ONLY_IN_KAFKA)
        value = None if setting.kind is Kind.PASSWORD else one.default
        told.append(ToldSetting(setting, (Origin(ConfigSource.DEFAULT_CONFIG, one.name, value),)))
    return tuple(told)


def defaults_told(defaults: Mapping[str, str], *, set_only: bool) -> list[ToldSetting]:
    """Return the defaults of all topics under brokers' names; `set_only`: none that is built in."""
    config, strange = _stored(defaults, DEFAULT_SETTINGS)
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    return [
        *(_strange(source, name, text) for name, text in strange.items()),
        *(
            _told(setting, [(source, config, name, name)])
            for name, setting in config.table.items()
            if name in config.given or not (set_only or name in strange)
        ),
    ]


def _own_first(
    source: ConfigSource,
    own: Mapping[str, str],
    table: Mapping[str, Setting],
    behind: Callable[[str], Layer],
) -> list[ToldSetting]:
    """Return every setting of one topic or group: strange ones, those it has itself, the others.

    Args:
        source: where it keeps what it has itself.
        own: set for this one.
        table: the settings it may have.
        behind: where a setting, by its name, comes from if it has none itself.
    """
    mine, strange = _stored(own, table)
    return [
        *(_strange(source, name, text) for name, text in strange.items()),
        *(
            _told(table[name], [(source, mine, name, name), behind(name)])
            for name in dict.fromkeys((*mine.given, *table))
            if name not in strange
        ),
    ]


def _stored(
    stored: Mapping[str, str], table: Mapping[str, Setting]
) -> tuple[Config, dict[str, str]]:
    """Return what is understood of stored settings, and the text of the others."""
    config = understood_configs(stored, table)
    return config, {n: text for n, text in stored.items() if n not in config.given}


def _strange(source: ConfigSource, name: str, text: str) -> ToldSetting:
    setting = Setting(name, Kind.STRING, "", Acts.NEVER, "A newer version has stored it.")
    return ToldSetting(setting, (Origin(source, name, text),))


def _told(setting: Setting, layers: list[Layer]) -> ToldSetting:
    """Return a setting, given where it may be set."""
    found = [
        Origin(source, told_as, setting.spell(config.given[name]))
        for source, config, name, told_as in layers
        if name in config.given
    ]
    built_in = Origin(ConfigSource.DEFAULT_CONFIG, setting.name, setting.spell(setting.default))
    return ToldSetting(setting, (*found, built_in))
