"""How much of what is there goes into the next batch of a stream.

As in Spark's Kafka source: a maximum is shared out by what each partition has, and a minimum is
waited for, but not for ever. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from sparklog.core.types import TopicPartition

Offsets = Mapping[TopicPartition, int]


@dataclass(slots=True)
class Delay:
    """Holds a batch back until there are `rows_min` records or `delay_max_s` has passed."""

    rows_min: int
    delay_max_s: float
    last_s: float = -math.inf
    """When a batch was last let through."""

    def holds(self, begin: Offsets, latest: Offsets, now_s: float) -> bool:
        """Say whether to wait; if not, the batch counts as let through."""
        rows = available(begin, latest)
        if not rows or (rows < self.rows_min and now_s - self.last_s < self.delay_max_s):
            return True
        self.last_s = now_s
        return False


def available(begin: Offsets, latest: Offsets) -> int:
    """Return how many offsets lie between."""
    return sum(max(0, end - begin[place]) for place, end in latest.items())


def at_most(rows_max: int, begin: Offsets, latest: Offsets) -> dict[TopicPartition, int]:
    """Return the offsets up to which to read so that there are about `rows_max` records.

    Every partition gets a share by what it has, and at least one record, so that small ones do not
    starve beside large ones.
    """
    total = available(begin, latest)
    limited: dict[TopicPartition, int] = {}
    for place, end in latest.items():
        size = end - begin[place]
        if size <= 0 or not total:
            limited[place] = end
            continue
        share = rows_max * (size / total)
        rows = math.ceil(share) if share < 1 else math.floor(share)
        limited[place] = min(end, begin[place] + rows)
    return limited
