"""Placement of groups, transactional ids and share groups' states in the internal topics.

Source: Kafka's `Utils.abs(id.hashCode) % partitions`, so that its tools find them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

GROUPS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
SHARE_STATE_TOPIC: Final = "__share_group_state"
INTERNAL_TOPICS: Final = frozenset({GROUPS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC})
"""Only coordinators write to these."""

HASHES_KEPT: Final = 4096
"""Cache size: every commit needs the hash of its group."""
_BITS: Final = 32
_SIGN: Final = 1 << 31


def partition_for(name: str, partitions: int) -> int:
    """Return the partition whose leader coordinates a group, or what else has this name."""
    return _absolute(java_hash(name)) % partitions


@lru_cache(maxsize=HASHES_KEPT)
def java_hash(text: str) -> int:
    """Return Java's `String.hashCode`: over UTF-16 code units, 32 bits with a sign."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (value * 31 + (units[at] << 8 | units[at + 1])) & ((1 << _BITS) - 1)
    return value - (1 << _BITS) if value & _SIGN else value


def _absolute(value: int) -> int:
    """Return Kafka's absolute value: that of the lowest number is 0."""
    return 0 if value == -_SIGN else abs(value)
