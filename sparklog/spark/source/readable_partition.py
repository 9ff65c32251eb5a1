"""ReadablePartition: the state of one partition as a read sees it, at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest.manifest import Entry
from sparklog.log.manifest.refresh import unreadable
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.read_committed import AbortedRange


@dataclass(frozen=True, slots=True)
class ReadablePartition:
    """State of one partition: its segments, and the records beyond them that a leader has."""

    view: PartitionView
    readable_end: int
    """Of a partition that brokers serve, its high watermark or last stable offset. Else the end of
    its segments, as far as they can be read.
    """
    stored_end: int
    """End of the segments' part of a read; beyond it the leader decides which records count."""
    brokers: str = ""
    """Bootstrap servers from which to fetch the records beyond."""
    aborted: tuple[AbortedRange, ...] = ()
    """Records of the segments that readers of committed records leave out."""

    @property
    def end_offset(self) -> int:
        """Return where the partition ends.

        Raises:
            DataCorrupt: a damaged segment of its tail hides the answer.
        """
        if self.is_damaged:
            raise unreadable(self.view)
        return self.readable_end

    @property
    def is_damaged(self) -> bool:
        """Return whether what follows cannot be read; what a leader has is for that one to say."""
        return self.view.damage is not None and not self.brokers

    def end_beyond(self, offset: int) -> int:
        """Return up to where the partition can be read from `offset` on.

        Raises:
            DataCorrupt: it is damaged there.
        """
        return self.end_offset if offset >= self.readable_end else self.readable_end

    @property
    def layout(self) -> PartitionLayout:
        """Return the names of the partition's objects."""
        return self.view.layout

    @property
    def log_start_offset(self) -> int:
        """Return the first offset that may be read."""
        return self.view.log_start_offset

    def covering(self, base_offset: int, end_offset: int) -> tuple[Entry, ...]:
        """Return the entries of segments that hold any of [base_offset, end_offset)."""
        return self.view.covering(base_offset, end_offset)
