"""Immutable values in requests and responses of clients."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from sparklog.client.addresses import BrokerAddress

EARLIEST: Final = -2
LATEST: Final = -1
MAX_TIMESTAMP: Final = -3
"""Special times: the log start, the high watermark, the record with the newest timestamp."""


@dataclass(frozen=True, order=True, slots=True)
class ServingBroker:
    """A live broker, as a client sees it."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    controller: bool

    @property
    def address(self) -> BrokerAddress:
        """Return its address."""
        return BrokerAddress(self.host, self.port)


_SET_HERE = frozenset({"DYNAMIC_TOPIC_CONFIG", "DYNAMIC_BROKER_CONFIG", "DYNAMIC_GROUP_CONFIG"})


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """One setting of a topic, a broker or a group."""

    name: str
    value: str | None
    source: str
    """Its source under Kafka's name: DYNAMIC_TOPIC_CONFIG, DEFAULT_CONFIG, …"""
    sensitive: bool
    synonyms: tuple[tuple[str, str, str | None], ...]
    """(source, name, value) of all its possible sources, the effective one first."""

    @property
    def set_here(self) -> bool:
        """Return True if it was set for this topic, broker or group itself."""
        return self.source in _SET_HERE


class Resource(Enum):
    """Types of resources with settings."""

    TOPIC = "topic"
    BROKER = "broker"
    GROUP = "group"


class Election(Enum):
    """Elections of the preferred replica, if in sync; or, with data loss, of one not in sync."""

    PREFERRED = "preferred"
    UNCLEAN = "unclean"


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """An offset, and its record's timestamp if the lookup was by time; -1 if there is none."""

    offset: int
    timestamp_ms: int
