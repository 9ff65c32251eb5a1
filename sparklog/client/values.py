"""Immutable values in requests and responses of clients.

Other immutable values describe groups and transactions to clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from sparklog.client.addresses import BrokerAddress
from sparklog.core.types import TopicPartition

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


class ConfigResource(Enum):
    """Types of resources with settings."""

    TOPIC = "topic"
    BROKER = "broker"
    GROUP = "group"


class Election(Enum):
    """Elections of the preferred replica, if in sync; or, with data loss, of one not in sync."""

    PREFERRED = "preferred"
    UNCLEAN = "unclean"


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """An offset, and its record's timestamp if the lookup was by time; -1 if there is none."""

    offset: int
    timestamp_ms: int


CLASSIC: Final = "Classic"
CONSUMER: Final = "Consumer"
SHARE: Final = "Share"
"""Types of groups: the members assign partitions, or the coordinator does (KIP-848), or members
share partitions (KIP-932)."""
INACTIVE: Final = frozenset({"Empty", "Dead"})
"""States of a group without members."""


@dataclass(frozen=True, order=True, slots=True)
class GroupListing:
    """One group in a list."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str
    """CLASSIC, CONSUMER, SHARE, …; "Unknown" if the broker does not send it."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member of a group, and its assignment."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...] = ()
    """Its target assignment, in a group whose coordinator assigns."""
    epoch: int | None = None
    upgraded: bool | None = None
    """True if it uses the newer protocol, in a group whose members may use either."""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """One group, as its coordinator describes it."""

    group_id: str
    coordinator: ServingBroker
    state: str
    group_type: str
    assignor: str
    members: tuple[GroupMember, ...]
    epoch: int | None = None
    assignment_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The position from which a group continues to read a partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, order=True, slots=True)
class TransactionListing:
    """One transactional id in a list."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """One transactional id, as its coordinator describes it."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_time_ms: int | None
    """None while no transaction is open."""
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer in the state of a partition's leader."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    transaction_start_offset: int | None
    """None if it has no open transaction here."""


Committed = Mapping[TopicPartition, CommittedOffset]


@dataclass(frozen=True, slots=True)
class ShareOffset:
    """The position of a share group in a partition: all records before it are finished."""

    offset: int | None
    """None if the group has read nothing there yet."""
    leader_epoch: int = -1
    lag: int | None = None
    """Records that are not finished yet (KIP-1226); None if the broker does not send it."""


ShareOffsets = Mapping[TopicPartition, ShareOffset]
