"""Following partitions from trigger to trigger, without paying for a listing each time.

A stream without a trigger interval asks a hundred times a second. One small request per partition
answers most of those questions. When nothing has come for a while, the answer is what was seen a
moment ago.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.cluster.log import Log
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.types import TopicPartition
from sparklog.spark.access.leaders import PartitionLeaders
from sparklog.spark.source.partition_states import PartitionLookup, PartitionStates, new_pool
from sparklog.spark.source.selection import Selection

FULL_LOOK_EVERY_S = 10.0
"""Interval of looks at manifests, too, without appends: a probe does not see that the log start
has moved. Well below `file.delete.delay.ms`, after which rewritten objects are gone.
"""
PATIENCE_MAX_S = 0.1
"""The longest time a new record may lie unnoticed, for the sake of the bill."""
PATIENCE_SHARE = 0.1
"""After a second without records, look ten times a second; after a tenth of one, at every call."""


class Tracker:
    """Looks at the selected partitions as often as is worth it. Not thread-safe."""

    def __init__(
        self,
        log: Log,
        selection: Selection,
        clock: Clock = SYSTEM_CLOCK,
        leaders: PartitionLeaders | None = None,
        *,
        committed_only: bool = False,
    ) -> None:
        """Follow `selection`; nothing is looked at before it is needed."""
        self._clock = clock
        self._pool = new_pool()
        self._leaders = leaders
        self._looking = PartitionLookup(
            log, selection, self._pool, leaders, clock, committed_only=committed_only
        )
        self._snapshot: PartitionStates | None = None
        self._looked_s = self._looked_fully_s = self._changed_s = clock.monotonic_s()
        self._recreated: set[TopicPartition] = set()

    def first(self) -> PartitionStates:
        """Look for the first time, when everything that is named must exist.

        Raises:
            UnknownTopicOrPartition: a topic or partition that is named does not exist.
        """
        return self._look(fully=True, lenient=False)

    def now(self) -> PartitionStates:
        """Return the partitions as they are, or were at most `PATIENCE_MAX_S` ago."""
        now_s = self._clock.monotonic_s()
        patience_s = min((now_s - self._changed_s) * PATIENCE_SHARE, PATIENCE_MAX_S)
        if self._snapshot is not None and now_s - self._looked_s < patience_s:
            return self._snapshot
        fully = self._snapshot is None or now_s - self._looked_fully_s >= FULL_LOOK_EVERY_S
        return self._look(fully=fully, lenient=True)

    def holding(self, ends: Mapping[TopicPartition, int]) -> PartitionStates:
        """Return a snapshot that reaches `ends`, as far as the log does."""
        known = self._snapshot
        if known is not None and all(
            place in known.views and end <= known.views[place].readable_end
            for place, end in ends.items()
        ):
            return known
        return self._look(fully=True, lenient=True, known_ends=ends)

    def take_recreated(self) -> set[TopicPartition]:
        """Return the partitions whose topic was deleted and created again since the last call."""
        found, self._recreated = self._recreated, set()
        return found

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._leaders is not None:
            self._leaders.close()

    def _look(
        self,
        *,
        fully: bool,
        lenient: bool,
        known_ends: Mapping[TopicPartition, int] | None = None,
    ) -> PartitionStates:
        now_s = self._clock.monotonic_s()
        before = self._snapshot
        ends = {} if before is None else before.readable_ends
        found = self._looking.take(
            probing=not fully, lenient=lenient, known_ends={**ends, **(known_ends or {})}
        )
        self._snapshot, self._looked_s = found, now_s
        if fully:
            self._looked_fully_s = now_s
        if before is None or ends != found.readable_ends:
            self._changed_s = now_s
        if before is not None:
            self._recreated |= {
                place
                for place in before.views.keys() & found.views.keys()
                if before.views[place].layout != found.views[place].layout
            }
        return found
