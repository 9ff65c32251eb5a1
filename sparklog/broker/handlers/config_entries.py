"""How settings are told to clients. Source: Kafka `DescribeConfigsResponse.ConfigType`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import IntEnum
from typing import Any, Final

from sparklog.core.config import Kind
from sparklog.core.told_settings import ToldSetting
from sparklog.protocol.building import Answer


class Resource(IntEnum):
    """Types of what has settings."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


_TYPES: Final = {
    Kind.BOOLEAN: 1,
    Kind.STRING: 2,
    Kind.INT: 3,
    Kind.LONG: 5,
    Kind.DOUBLE: 6,
    Kind.LIST: 7,
    Kind.SHORT: 4,
    Kind.CLASS: 8,
    Kind.PASSWORD: 9,
}


def entries(
    answer: Answer,
    told: Iterable[ToldSetting],
    asked: Collection[str] | None,
    *,
    alterable: Collection[str] | None,
    synonyms: bool,
    documentation: bool,
) -> tuple[Any, ...]:
    """Return settings as DescribeConfigs tells them.

    `asked` None or empty asks for all; `alterable` None means that none is read-only.
    """
    return tuple(
        _entry(
            answer, one, alterable is not None and one.setting.name not in alterable,
            synonyms=synonyms, documentation=documentation,
        )
        for one in told
        if not asked or one.setting.name in asked
    )  # fmt: skip


def _entry(
    answer: Answer, told: ToldSetting, read_only: bool, *, synonyms: bool, documentation: bool
) -> Any:
    return answer.entity(
        "DescribeConfigsResourceResult",
        name=told.setting.name,
        value=told.value,
        read_only=read_only,
        config_source=told.source,
        is_sensitive=told.setting.kind is Kind.PASSWORD,
        synonyms=tuple(
            answer.entity("DescribeConfigsSynonym", name=o.name, value=o.value, source=o.source)
            for o in told.origins
        )
        if synonyms
        else (),
        config_type=_TYPES[told.setting.kind],
        documentation=told.setting.reason if documentation else None,
    )
