"""How settings are told to clients: where a value comes from and what type it has.

Source: Kafka `DescribeConfigsResponse.ConfigSource` and `ConfigType`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import IntEnum
from typing import Any, Final

from sparklog.core.config import Config, Kind, Setting
from sparklog.protocol.building import Answer


class Resource(IntEnum):
    """Types of what has settings."""

    TOPIC = 2
    BROKER = 4


class Source(IntEnum):
    """Where a setting's value comes from."""

    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    STARTED_WITH = 4
    DEFAULT = 5


_TYPES: Final = {
    Kind.BOOLEAN: 1,
    Kind.STRING: 2,
    Kind.INT: 3,
    Kind.LONG: 5,
    Kind.DOUBLE: 6,
    Kind.LIST: 7,
}


def topic_source(configs: Mapping[str, str], name: str) -> int:
    """Return where a topic's setting comes from, given those that were set."""
    return Source.TOPIC if name in configs else Source.DEFAULT


def entries(
    answer: Answer,
    config: Config,
    set_source: Source,
    asked: Collection[str] | None,
    *,
    read_only: bool,
    synonyms: bool,
    documentation: bool,
) -> tuple[Any, ...]:
    """Return settings as DescribeConfigs tells them; `asked` None or empty asks for all."""
    return tuple(
        _entry(
            answer,
            setting,
            setting.spell(config[name]),
            set_source if name in config.given else Source.DEFAULT,
            read_only=read_only,
            synonyms=synonyms,
            documentation=documentation,
        )
        for name, setting in config.table.items()
        if not asked or name in asked
    )


def _entry(
    answer: Answer,
    setting: Setting,
    value: str,
    source: Source,
    *,
    read_only: bool,
    synonyms: bool,
    documentation: bool,
) -> Any:
    origins = [(value, source)]
    if source is not Source.DEFAULT:
        origins.append((setting.spell(setting.default), Source.DEFAULT))
    return answer.entity(
        "DescribeConfigsResourceResult",
        name=setting.name,
        value=value,
        read_only=read_only,
        config_source=source,
        is_sensitive=False,
        synonyms=tuple(
            answer.entity("DescribeConfigsSynonym", name=setting.name, value=v, source=s)
            for v, s in origins
        )
        if synonyms
        else (),
        config_type=_TYPES[setting.kind],
        documentation=setting.reason if documentation else None,
    )
