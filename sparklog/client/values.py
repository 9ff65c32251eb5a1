"""What clients are told and ask for: plain immutable values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from sparklog.client.addresses import BrokerAddress

EARLIEST: Final = -2
LATEST: Final = -1
MAX_TIMESTAMP: Final = -3
"""Instead of a time: the log start, the high watermark, the record with the newest timestamp."""


@dataclass(frozen=True, order=True, slots=True)
class ServingBroker:
    """A broker as a client sees it."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    controller: bool

    @property
    def address(self) -> BrokerAddress:
        """Return where it listens."""
        return BrokerAddress(self.host, self.port)


_SET_HERE = frozenset({"DYNAMIC_TOPIC_CONFIG", "DYNAMIC_BROKER_CONFIG", "DYNAMIC_GROUP_CONFIG"})


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """One setting of a topic, a broker or a group."""

    name: str
    value: str | None
    source: str
    """Who set it, as Kafka says it: DYNAMIC_TOPIC_CONFIG, DEFAULT_CONFIG, …"""
    sensitive: bool
    synonyms: tuple[tuple[str, str, str | None], ...]
    """(source, name, value) of everything it could come from, the one in force first."""

    @property
    def set_here(self) -> bool:
        """Say whether it was set for this very topic, broker or group."""
        return self.source in _SET_HERE


class Resource(Enum):
    """What has settings."""

    TOPIC = "topic"
    BROKER = "broker"
    GROUP = "group"


class Election(Enum):
    """Who may become leader: the first replica, if in sync; or, with loss, one that is not."""

    PREFERRED = "preferred"
    UNCLEAN = "unclean"


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """An offset, and its record's timestamp where one was looked for; -1 when there is none."""

    offset: int
    timestamp_ms: int
