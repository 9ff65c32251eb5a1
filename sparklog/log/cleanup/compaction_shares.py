"""Shares of a compaction: several tasks copy the remaining rows of one large partition.

Each task finds the newest rows by itself, which is cheap, and copies some of the runs of objects.
All tasks must read the same log: a digest verifies that. No reader sees a share before one swap
publishes all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sparklog.log.cleanup.compaction_policy import CompactionPlan
from sparklog.log.manifest.change import Replacement
from sparklog.log.manifest.manifest import Entry
from sparklog.log.manifest.view import PartitionView


@dataclass(frozen=True, slots=True)
class ShareOutcome:
    """The outcome of a compaction or a merge, real or planned."""

    rows_before: int = 0
    rows_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    """Of the objects rewritten; unknown, and 0, in a dry run."""
    objects_before: int = 0
    objects_after: int = 0
    dirty_ratio: float = 0.0
    overtaken: bool = False
    """Another job rewrote the same objects first: nothing was changed."""


@dataclass(frozen=True, slots=True)
class CompactionShares:
    """A compaction in shares, by tasks that must read the same log. JSON values."""

    digest: str
    """Of the objects to compact, and of the log start."""
    end_offset: int
    dirty_bytes: int
    dirty_ratio: float
    tombstones_below: int
    started_ms: int
    bytes_left: int
    """Bytes that all tasks together write."""

    @classmethod
    def of(
        cls, view: PartitionView, plan: CompactionPlan, started_ms: int, bytes_left: int
    ) -> CompactionShares:
        """Return the shares of a plan."""
        digest = _digest(view, plan.entries)
        return cls(
            digest, plan.end_offset, plan.dirty_bytes, plan.dirty_ratio, plan.tombstones_below,
            started_ms, bytes_left,
        )  # fmt: skip

    def plan(self, view: PartitionView) -> CompactionPlan | None:
        """Return the same plan, if a view still has the same objects."""
        entries = tuple(e for e in view.manifest.entries if e.end_offset <= self.end_offset)
        if _digest(view, entries) != self.digest:
            return None
        return CompactionPlan(entries, self.dirty_bytes, self.dirty_ratio, self.tombstones_below)


@dataclass(frozen=True, slots=True)
class CompactionShare:
    """The share of one task in a compaction: no reader sees it before it is published."""

    outcome: ShareOutcome
    """Of the whole compaction."""
    replacements: tuple[Replacement, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> CompactionShare:
        """Return the share from the result of `to_json`."""
        return cls(
            ShareOutcome(**document["outcome"]),
            tuple(
                Replacement(*(tuple(Entry(**e) for e in one[name]) for name in ("old", "new")))
                for one in document["replacements"]
            ),
        )


def _digest(view: PartitionView, entries: Sequence[Entry]) -> str:
    text = "\n".join((str(view.log_start_offset), *(e.object for e in entries)))
    return hashlib.sha256(text.encode()).hexdigest()
