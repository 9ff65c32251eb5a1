"""SlotSharing: which broker leaves slots of its executor to queries while executors are few.

With more executors than brokers, each broker claims all slots of its executor, and queries run on
the executors that are left (`broker_slots`). If those are lost, brokers hold every slot. One broker
then starts again with one slot, and queries run beside it. It is the only one, so a query that ends
an executor ends one broker at most.

The same broker claims a whole executor again once there is one without a task.

Pure: what Spark has is an argument, the broker to start again is the answer.

SHARED-SLOTS-1: A broker that gets no whole executor in `SHARE_AFTER_S` takes one slot, if another
    executor than those of the other brokers is there.
SHARED-SLOTS-2: A query that has no task in `SHARE_AFTER_S`, because brokers hold every slot, gets
    slots beside one broker.
SHARED-SLOTS-3: No broker starts again for this within `STEADY_S` of the last time.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

SHARE_AFTER_S: Final = 10.0
"""A lost executor is often back in less."""
STEADY_S: Final = 60.0
"""Time for which the executors must be enough before a broker claims a whole one again."""


@dataclass(frozen=True, slots=True)
class ExecutorUse:
    """The executors that Spark has now."""

    executors: int
    idle: int
    """Those without a running task."""
    query_waits: bool
    """A query or job has a stage without a running task."""


@dataclass(frozen=True, slots=True)
class Restart:
    """A broker that is to start again with another claim."""

    broker_id: int
    shares: bool
    """True if it is to leave slots to queries."""


class SlotSharing:
    """See the module. Units: seconds of a monotonic clock. Not thread-safe."""

    def __init__(self, brokers: int) -> None:
        """Begin with brokers that each claim a whole executor."""
        self._brokers = brokers
        self.shared_by: int | None = None
        """The broker that leaves slots to queries."""
        self._since_s: float | None = None
        """Begin of the time without a break in which a change was due."""
        self._changed_s: float | None = None

    def look(
        self, now_s: float, use: ExecutorUse, ready: Collection[int], waiting: Collection[int]
    ) -> Restart | None:
        """Return the broker that is to start again, if one is.

        Args:
            now_s: the time.
            use: the executors.
            ready: ids of the brokers that serve.
            waiting: ids of the brokers that wait for an executor.
        """
        due = self._give_due(use, ready, waiting)
        after_s = SHARE_AFTER_S if self.shared_by is None else STEADY_S
        if due is None or self._since_s is None:
            self._since_s = None if due is None else now_s
            return None
        rests = self._changed_s is not None and now_s - self._changed_s < STEADY_S
        if now_s - self._since_s < after_s or rests:
            return None
        self._since_s, self._changed_s = None, now_s
        self.shared_by = due.broker_id if due.shares else None
        return due

    def _give_due(
        self, use: ExecutorUse, ready: Collection[int], waiting: Collection[int]
    ) -> Restart | None:
        if self.shared_by is not None:
            can_end = use.executors > self._brokers and use.idle and self.shared_by in ready
            return Restart(self.shared_by, shares=False) if can_end else None
        if waiting and use.executors > self._brokers - len(waiting):
            return Restart(min(waiting), shares=True)
        if ready and use.query_waits and use.executors <= len(ready):
            return Restart(max(ready), shares=True)
        return None
