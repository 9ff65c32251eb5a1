"""The embedded protocol of consumers in a classic group: subscriptions and assignments.

Each begins with a version of its own. A newer version than the newest known one is read as that, as
Kafka does: later versions only add fields at the end. Source: Kafka 4.3
`ConsumerProtocolSubscription.json`, `ConsumerProtocolAssignment.json`; KIP-429, KIP-881.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final

from sparklog.core.errors import InvalidRequest
from sparklog.protocol.messages.decoder import Cursor, Malformed, decoder
from sparklog.protocol.messages.encoder import put_entity

PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of groups whose members use this protocol."""
VERSION_MAX: Final = 3
NO_GENERATION: Final = -1
_VERSION: Final = struct.Struct(">h")

Assignment = Mapping[str, tuple[int, ...]]
"""Partitions by topic name."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A member's subscription, and the partitions that it owns from before."""

    topics: tuple[str, ...]
    owned: Assignment
    generation_id: int = NO_GENERATION
    rack_id: str | None = None


def decode_assignment(data: bytes) -> dict[str, tuple[int, ...]]:
    """Return a member's partitions; empty for no bytes.

    Raises:
        InvalidRequest: the bytes are not an assignment.
    """
    return decode_assignment_and_data(data)[0]


def decode_assignment_and_data(data: bytes) -> tuple[dict[str, tuple[int, ...]], bytes]:
    """Return a member's partitions and the user data of its assignor; both empty for no bytes.

    Raises:
        InvalidRequest: the bytes are not an assignment.
    """
    if not data:
        return {}, b""
    found = _decoded("Assignment", data)
    parts = {t.topic: tuple(map(int, t.partitions)) for t in found.assigned_partitions}
    return parts, found.user_data or b""


def encode_assignment(assignment: Assignment, version: int = VERSION_MAX) -> bytes:
    """Return the encoded assignment of a member."""
    module = _module("Assignment", version)
    parts = tuple(
        module.TopicPartition(topic=topic, partitions=tuple(partitions))
        for topic, partitions in sorted(assignment.items())
    )
    entity = module.ConsumerProtocolAssignment(assigned_partitions=parts, user_data=None)
    out = bytearray(_VERSION.pack(version))
    put_entity(out, entity)
    return bytes(out)


def decode_subscription(data: bytes) -> Subscription:
    """Return a member's subscription.

    Raises:
        InvalidRequest: the bytes are not a subscription.
    """
    found = _decoded("Subscription", data)
    owned = getattr(found, "owned_partitions", ())
    return Subscription(
        tuple(found.topics),
        {t.topic: tuple(map(int, t.partitions)) for t in owned},
        int(getattr(found, "generation_id", NO_GENERATION)),
        getattr(found, "rack_id", None),
    )


def version_of(data: bytes) -> int:
    """Return the version of the bytes, at most VERSION_MAX.

    Raises:
        InvalidRequest: the bytes have no valid version.
    """
    if len(data) < _VERSION.size:
        raise InvalidRequest(f"a member's metadata is cut short. size={len(data)}")
    version = int(_VERSION.unpack_from(data)[0])
    if version < 0:
        raise InvalidRequest(f"a member's metadata has no version. version={version}")
    return min(version, VERSION_MAX)


def _decoded(kind: str, data: bytes) -> Any:
    module = _module(kind, version_of(data))
    try:
        return decoder(getattr(module, f"ConsumerProtocol{kind}"))(Cursor(data, _VERSION.size))
    except Malformed as error:
        raise InvalidRequest(f"a member's {kind.lower()} is malformed: {error}") from error


@cache
def _module(kind: str, version: int) -> Any:
    return import_module(f"kio.schema.consumer_protocol_{kind.lower()}.v{version}.data")
