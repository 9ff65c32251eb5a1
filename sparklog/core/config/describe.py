"""Settings as DescribeConfigs returns them: the effective value, and all its possible sources.

A setting that a newer version has stored, and this one does not understand, is returned as its
stored text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Final

from sparklog.core.config.dynamic_broker import ONE_BROKER_SETTINGS
from sparklog.core.config.group import GROUP_CONFIGS, default_name
from sparklog.core.config.kafka_broker import kafka_broker_settings
from sparklog.core.config.model import (
    Config,
    Effect,
    Setting,
    SettingType,
    is_secret_name,
    understood_configs,
)
from sparklog.core.config.topic import TOPIC_SETTINGS
from sparklog.core.config.topic_defaults import DEFAULT_NAMES, DEFAULT_SETTINGS


class ConfigSource(IntEnum):
    """Sources of a setting's value. Source: Kafka's `DescribeConfigsResponse`."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


_ONLY_IN_KAFKA: Final = "A setting of Kafka's brokers without a meaning here."

CREATED_BY: Final = "sparklog.created.by"
"""The creator of a topic among its settings: read-only, and with the source of a default."""
_CREATOR: Final = Setting(
    CREATED_BY, SettingType.STRING, "", Effect.NEVER, "The principal that created the topic."
)

Layer = tuple[ConfigSource, Config, str, str]
"""One level of settings: its source, its values, the setting's name in them, and the reported name.
"""


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """One possible source of a value."""

    source: ConfigSource
    name: str
    """The setting's name at this source."""
    value: str | None
    """None if Kafka has no default, or the value is a secret."""


@dataclass(frozen=True, slots=True)
class DescribedConfig:
    """A setting with its origins, the effective one first."""

    setting: Setting
    origins: tuple[ConfigSynonym, ...]

    @property
    def value(self) -> str | None:
        """Return the effective value, as Kafka's tools print it."""
        return self.origins[0].value

    @property
    def source(self) -> ConfigSource:
        """Return the source of the effective value."""
        return self.origins[0].source


def described_topic(
    own: Mapping[str, str], defaults: Mapping[str, str], creator: str = ""
) -> list[DescribedConfig]:
    """Return every setting of a topic, its own first, and its creator as `CREATED_BY`.

    Args:
        own: set for this topic.
        defaults: set for all topics, under the names of a topic's settings.
        creator: the principal that created it; empty if unknown.
    """
    for_all = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    everybodys, _ = _stored(defaults, TOPIC_SETTINGS)
    settings = _own_first(
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
        own,
        TOPIC_SETTINGS,
        lambda name: (for_all, everybodys, name, DEFAULT_NAMES.get(name, name)),
    )
    if creator:
        origin = ConfigSynonym(ConfigSource.DEFAULT_CONFIG, CREATED_BY, creator)
        settings.append(DescribedConfig(_CREATOR, (origin,)))
    return settings


def described_group(own: Mapping[str, str], broker: Config) -> list[DescribedConfig]:
    """Return every setting of a group, with the static settings of `broker` as defaults."""
    for_all = ConfigSource.STATIC_BROKER_CONFIG
    return _own_first(
        ConfigSource.DYNAMIC_GROUP_CONFIG,
        own,
        GROUP_CONFIGS,
        lambda name: (for_all, broker, default_name(name), default_name(name)),
    )


def described_broker(
    config: Config, own: Mapping[str, str], defaults: Mapping[str, str]
) -> list[DescribedConfig]:
    """Return every setting of a broker: its own, all topics' defaults, and those only Kafka has.

    Args:
        config: static settings.
        own: dynamic settings of this broker.
        defaults: set for all topics.
    """
    mine, strange = _stored(own, ONE_BROKER_SETTINGS)
    everybodys, unknown = _stored(defaults, DEFAULT_SETTINGS)
    own_source, for_all = (
        ConfigSource.DYNAMIC_BROKER_CONFIG,
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    )
    started = ConfigSource.STATIC_BROKER_CONFIG
    described = [
        *(_strange(own_source, name, text) for name, text in strange.items()),
        *(_strange(for_all, name, text) for name, text in unknown.items() if name not in strange),
        *(
            _described(one, [(own_source, mine, name, name), (started, config, name, name)])
            for name, one in config.table.items()
        ),
        *(
            _described(one, [(own_source, mine, name, name), (for_all, everybodys, name, name)])
            for name, one in DEFAULT_SETTINGS.items()
            if name not in unknown
        ),
    ]
    known = {one.setting.name for one in described}
    return [*described, *(one for one in _described_by_kafka() if one.setting.name not in known)]


@cache
def _described_by_kafka() -> tuple[DescribedConfig, ...]:
    """Return Kafka's settings with Kafka's defaults; passwords have no value."""
    described = []
    for one in kafka_broker_settings().values():
        setting = Setting(one.name, SettingType(one.kind), "", Effect.NEVER, _ONLY_IN_KAFKA)
        value = None if one.default is None else _shown(setting, one.default)
        described.append(
            DescribedConfig(setting, (ConfigSynonym(ConfigSource.DEFAULT_CONFIG, one.name, value),))
        )
    return tuple(described)


def described_defaults(defaults: Mapping[str, str], *, set_only: bool) -> list[DescribedConfig]:
    """Return the defaults of all topics under brokers' names; `set_only` omits built-in ones."""
    config, strange = _stored(defaults, DEFAULT_SETTINGS)
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    return [
        *(_strange(source, name, text) for name, text in strange.items()),
        *(
            _described(setting, [(source, config, name, name)])
            for name, setting in config.table.items()
            if name in config.given or not (set_only or name in strange)
        ),
    ]


def _own_first(
    source: ConfigSource,
    own: Mapping[str, str],
    table: Mapping[str, Setting],
    behind: Callable[[str], Layer],
) -> list[DescribedConfig]:
    """Return every setting of one topic or group: unknown ones, then its own, then the others.

    Args:
        source: source of its own settings.
        own: its own settings.
        table: all settings.
        behind: returns a setting's next level, by name.
    """
    mine, strange = _stored(own, table)
    return [
        *(_strange(source, name, text) for name, text in strange.items()),
        *(
            _described(table[name], [(source, mine, name, name), behind(name)])
            for name in dict.fromkeys((*mine.given, *table))
            if name not in strange
        ),
    ]


def _stored(
    stored: Mapping[str, str], table: Mapping[str, Setting]
) -> tuple[Config, dict[str, str]]:
    """Return the understood ones of stored settings, and the text of the others."""
    config = understood_configs(stored, table)
    return config, {n: text for n, text in stored.items() if n not in config.given}


def _shown(setting: Setting, text: str) -> str | None:
    """Return a value for readers; None for a secret, from each source."""
    return None if setting.kind is SettingType.PASSWORD else text


def _strange(source: ConfigSource, name: str, text: str) -> DescribedConfig:
    kind = SettingType.PASSWORD if is_secret_name(name) else SettingType.STRING
    setting = Setting(name, kind, "", Effect.NEVER, "A newer version has stored it.")
    return DescribedConfig(setting, (ConfigSynonym(source, name, _shown(setting, text)),))


def _described(setting: Setting, layers: list[Layer]) -> DescribedConfig:
    """Return a setting with its levels."""
    found = [
        ConfigSynonym(source, shown_as, _shown(setting, setting.spell(config.given[name])))
        for source, config, name, shown_as in layers
        if name in config.given
    ]
    built_in = ConfigSynonym(
        ConfigSource.DEFAULT_CONFIG, setting.name, _shown(setting, setting.spell(setting.default))
    )
    return DescribedConfig(setting, (*found, built_in))
