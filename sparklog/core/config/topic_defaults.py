"""Defaults for the topics of a whole cluster, under the names of Kafka's brokers.

A topic's setting is its own, else the cluster's default, else the built-in default. The metadata
log keeps the cluster's defaults, not a broker's own settings. So jobs and direct writers, which use
no broker, apply them too. Source: "Broker Configs" of Kafka's documentation, the settings that are
dynamic for the whole cluster, and its `TopicConfigSynonyms`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from sparklog.core.config.model import (
    Config,
    Effect,
    Setting,
    SettingType,
    check_names,
    parse_configs,
    table_of,
)
from sparklog.core.config.topic import SCHEMA_VALIDATIONS, TOPIC_SETTINGS
from sparklog.core.errors import InvalidConfig

_OTHER_NAMES: Final = {
    "cleanup.policy": "log.cleanup.policy",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "preallocate": "log.preallocate",
    "remote.copy.lag.bytes": "log.remote.copy.lag.bytes",
    "remote.copy.lag.ms": "log.remote.copy.lag.ms",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
}
_TOPICS_ONLY: Final = frozenset(
    {
        "errors.deadletterqueue.group.enable",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        *SCHEMA_VALIDATIONS,
    }
)

DEFAULT_NAMES: Final[Mapping[str, str]] = {
    name: _OTHER_NAMES.get(name, name) for name in TOPIC_SETTINGS if name not in _TOPICS_ONLY
}
"""A topic's setting to the name of its default; the same name where Kafka has no other."""

TOPIC_NAMES: Final[Mapping[str, str]] = {default: name for name, default in DEFAULT_NAMES.items()}
"""The inverse of DEFAULT_NAMES."""

CLEANER_RATE: Final = Setting(
    "log.cleaner.io.max.bytes.per.second",
    SettingType.DOUBLE,
    sys.float_info.max,
    Effect.JOBS,
    "What a compaction reads and writes at most, all its tasks together, so that brokers on the "
    "same machines keep their pace. Kafka's holds for each broker.",
    unit="bytes/s",
    at_least=1,
)
"""Not a topic setting, but stored and set with the defaults of topics."""

DEFAULT_SETTINGS: Final[Mapping[str, Setting]] = table_of(
    CLEANER_RATE,
    *(replace(TOPIC_SETTINGS[name], name=default) for name, default in DEFAULT_NAMES.items()),
)

_UNITS: Final = {
    "log.retention.hours": "log.retention.ms",
    "log.retention.minutes": "log.retention.ms",
    "log.roll.hours": "log.roll.ms",
    "log.roll.jitter.hours": "log.roll.jitter.ms",
}
"""Kafka's names for configuration files only, and the dynamic ones."""


def parse_topic_defaults(given: Mapping[str, str]) -> Config:
    """Return the cluster's defaults for topics.

    Raises:
        InvalidConfig: an unknown name, or a value outside its setting's limits.
    """
    check_default_names(given)
    return parse_configs(given, DEFAULT_SETTINGS)


def check_default_names(names: Iterable[str]) -> None:
    """Reject a name that is not a default for topics.

    Raises:
        InvalidConfig: the message has the right name.
    """
    asked = list(names)
    for name in asked:
        if name in _UNITS:
            raise InvalidConfig(f"set {_UNITS[name]}, in milliseconds. setting={name!r}")
        if name not in DEFAULT_SETTINGS and name in DEFAULT_NAMES:
            raise InvalidConfig(
                f"the default of {name} is called {DEFAULT_NAMES[name]}. setting={name!r}"
            )
    check_names(asked, DEFAULT_SETTINGS)


def refuse_topic_defaults(names: Iterable[str]) -> None:
    """Reject defaults of topics among the static settings of a broker.

    Raises:
        InvalidConfig: the message says how to set them.
    """
    for name in names:
        known = _UNITS.get(name, name)
        if known in DEFAULT_SETTINGS:
            raise InvalidConfig(
                "a default of topics is kept with the log and not with a broker: set it with "
                "`sparklog configs --alter --entity-type brokers --entity-default --add-config "
                f"{known}=…`. setting={name!r}"
            )


def cleaner_bytes_per_s(defaults: Mapping[str, str]) -> float | None:
    """Return the limit of a compaction's reads and writes in bytes/s; None without a limit.

    Raises:
        InvalidConfig: the stored value is invalid.
    """
    name = CLEANER_RATE.name
    if name not in defaults:
        return None
    return parse_topic_defaults({name: defaults[name]}).number(name)


def inherited(defaults: Mapping[str, str]) -> dict[str, str]:
    """Return defaults under the names of topics' settings; omit unknown ones.

    A newer version may have stored names that this one does not know.
    """
    return {TOPIC_NAMES[name]: text for name, text in defaults.items() if name in TOPIC_NAMES}
