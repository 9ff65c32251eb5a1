"""Topic ids: 22 characters of base64 in the registry, 16 bytes on the wire.

Messages hold a `UUID`, or None for the id that is all zeros and names no topic.
Source: Kafka `org.apache.kafka.common.Uuid`.
"""

from __future__ import annotations

import base64
import binascii
from functools import lru_cache
from uuid import UUID

_REMEMBERED = 65_536


@lru_cache(_REMEMBERED)
def uuid_of(topic_id: str) -> UUID:
    """Return the wire format of a topic id.

    Raises:
        ValueError: not 128 bits in Kafka's spelling.
    """
    try:
        return UUID(bytes=base64.urlsafe_b64decode(topic_id + "=="))
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"not a topic id. topic_id={topic_id!r}") from error


@lru_cache(_REMEMBERED)
def topic_id_of(uuid: UUID) -> str:
    """Return Kafka's spelling of a topic id."""
    return base64.urlsafe_b64encode(uuid.bytes).decode("ascii").rstrip("=")
