"""FetchSubscription: the partitions a fetch has news of, and those that rest until there is some.

A fetch that waits gets the news of its partitions until it is answered. A follower's session keeps
its watch from fetch to fetch. It asks for hundreds of partitions many times a second, and most have
nothing for it. A partition without records for it rests. It is not looked at again before its
leader has news of it, or it is asked for elsewhere. `session` says which requests leave it out.
"""

from __future__ import annotations

from sparklog.broker.partition.follower import FetchPosition
from sparklog.broker.partition.purgatory import DelayedFetch, FetchWaits
from sparklog.core.types import PartitionId


class FetchSubscription(DelayedFetch):
    """Gets news of partitions, for a fetch while it waits or for a session between fetches, too."""

    def __init__(self) -> None:
        """Begin without partitions."""
        super().__init__()
        self.resting: dict[PartitionId, FetchPosition] = {}
        """The positions of partitions that need not be looked at."""
        self._subscribed: dict[PartitionId, FetchWaits] = {}

    def subscribe(self, waits: FetchWaits) -> None:
        """Get news of a partition from now on, from its newest leader here."""
        known = self._subscribed.get(waits.partition)
        if known is waits:
            return
        if known is not None:
            known.remove(self)
        self._subscribed[waits.partition] = waits
        waits.add(self)

    def rest(self, waits: FetchWaits, at: FetchPosition) -> None:
        """Record that a partition has nothing at `at` before there is news of it."""
        self.subscribe(waits)
        self.resting[waits.partition] = at

    def rouse(self, where: PartitionId) -> FetchPosition | None:
        """Have a partition looked at; return where it would have been read, if it rested."""
        return self.resting.pop(where, None)

    def rouse_changed(self) -> None:
        """Have all looked at that there is news of."""
        for where in self.changed:
            self.rouse(where)
        self.changed = {}

    def forget(self, where: PartitionId) -> None:
        """End the news of a partition."""
        self.rouse(where)
        self.changed.pop(where, None)
        waits = self._subscribed.pop(where, None)
        if waits is not None:
            waits.remove(self)

    def close(self) -> None:
        """End the news of all partitions."""
        for where in list(self._subscribed):
            self.forget(where)
