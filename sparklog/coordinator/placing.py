"""Which partition of an internal topic a group or a transactional id belongs to.

Source: Kafka's `Utils.abs(id.hashCode) % partitions`, so that its tools look at the right place.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

GROUPS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset({GROUPS_TOPIC, TRANSACTIONS_TOPIC})
"""Written by coordinators alone."""

HASHES_KEPT: Final = 4096
"""A group commits again and again, and each time it is looked up where."""
_BITS: Final = 32
_SIGN: Final = 1 << 31


def partition_for(name: str, partitions: int) -> int:
    """Return the partition whose leader coordinates a group or a transactional id."""
    return _absolute(java_hash(name)) % partitions


@lru_cache(maxsize=HASHES_KEPT)
def java_hash(text: str) -> int:
    """Return what Java's `String.hashCode` gives: over UTF-16 code units, 32 bits with a sign."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (value * 31 + (units[at] << 8 | units[at + 1])) & ((1 << _BITS) - 1)
    return value - (1 << _BITS) if value & _SIGN else value


def _absolute(value: int) -> int:
    """Return Kafka's absolute value: that of the lowest number is 0."""
    return 0 if value == -_SIGN else abs(value)
