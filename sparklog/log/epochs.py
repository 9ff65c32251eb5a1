"""Leader epochs of the partition's own log: who led at an offset, and where an epoch ended.

Direct appends have no leader of their own; they count for the epoch before them, so that epochs
never fall from offset to offset, as clients expect. Pure. Source: FORMAT.md 9; KIP-320.
"""

from __future__ import annotations

from collections.abc import Iterable

from sparklog.core.types import UNLED_EPOCH
from sparklog.log.manifest import Entry
from sparklog.log.view import PartitionView


def epoch_at(view: PartitionView, offset: int) -> int:
    """Return the leader epoch of the record at `offset`; UNLED_EPOCH before the first leader."""
    if view.leader_epoch == UNLED_EPOCH:
        return UNLED_EPOCH
    return _highest(e for e in view.entries if e.base_offset <= offset)


def end_of_epoch(view: PartitionView, leader_epoch: int) -> tuple[int, int]:
    """Return the highest epoch of the log that is at most `leader_epoch`, and its end offset.

    The end is where the next epoch begins, or the end of the log. Without such an epoch, it is
    UNLED_EPOCH, and the end that of what nobody led.
    """
    found = UNLED_EPOCH
    for entry in view.entries:
        if entry.leader_epoch > leader_epoch:
            return found, entry.base_offset
        found = max(found, entry.leader_epoch)
    return found, view.end_offset


def _highest(entries: Iterable[Entry]) -> int:
    return max((entry.leader_epoch for entry in entries), default=UNLED_EPOCH)
