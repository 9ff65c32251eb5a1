r"""All settings of a broker of Kafka 4.4, by name: most of them have no effect here.

Clients and consoles list a broker's settings and look names up in the list. So brokers here list
all names of Kafka's brokers. Those without a meaning here are read-only, with Kafka's default. The
table is `kafka_broker_settings.tsv`: name, type, default (`\N` for none), limits.
Source: the configuration definitions of Apache Kafka 4.4.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

_NONE: Final = "\\N"


@dataclass(frozen=True, slots=True)
class KafkaSetting:
    """A setting of Kafka's brokers."""

    name: str
    kind: str
    """Kafka's type in lower case: `int`, `short`, `class`, `password` and so on."""
    default: str | None
    limits: str
    """As Kafka prints them: `[1,...]`, or empty."""


@cache
def kafka_broker_settings() -> Mapping[str, KafkaSetting]:
    """Return every setting of a broker of Kafka 4.4 by its name."""
    text = (files("sparklog.core") / "kafka_broker_settings.tsv").read_text()
    found = {}
    for line in text.splitlines():
        name, kind, default, limits = line.split("\t")
        found[name] = KafkaSetting(name, kind, None if default == _NONE else default, limits)
    return found
