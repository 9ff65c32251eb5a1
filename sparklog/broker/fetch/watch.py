"""Which partitions a fetch has news of, and which rest until there is some.

A fetch that waits hears of its partitions until it is answered. A follower's session keeps its
watch from fetch to fetch: it asks for hundreds of partitions many times a second, and most have
nothing for it. One that was found so rests: it is not looked at again before its leader tells of
it, or it is asked for elsewhere. `fetch_session` says which requests it is left out of.
"""

from __future__ import annotations

from sparklog.broker.partition.follower import FetchPosition
from sparklog.broker.partition.purgatory import DelayedFetch, FetchWaits
from sparklog.core.types import PartitionId


class FetchSubscription(DelayedFetch):
    """Hears of partitions, for one fetch while it waits or for a session between fetches, too."""

    def __init__(self) -> None:
        """Hear of nothing yet."""
        super().__init__()
        self.resting: dict[PartitionId, FetchPosition] = {}
        """Where partitions would be read that need not be looked at."""
        self._subscribed: dict[PartitionId, FetchWaits] = {}

    def subscribe(self, waits: FetchWaits) -> None:
        """Hear of a partition from now on, of each as its newest leader here tells."""
        known = self._subscribed.get(waits.partition)
        if known is waits:
            return
        if known is not None:
            known.remove(self)
        self._subscribed[waits.partition] = waits
        waits.add(self)

    def rest(self, waits: FetchWaits, at: FetchPosition) -> None:
        """Take in that nothing is to be had of a partition at `at` before there is news of it."""
        self.subscribe(waits)
        self.resting[waits.partition] = at

    def rouse(self, where: PartitionId) -> FetchPosition | None:
        """Have a partition looked at; return where it would have been read, if it rested."""
        return self.resting.pop(where, None)

    def rouse_changed(self) -> None:
        """Have all looked at that there is news of."""
        for where in self.news:
            self.rouse(where)
        self.news = {}

    def forget(self, where: PartitionId) -> None:
        """Hear of a partition no more."""
        self.rouse(where)
        self.news.pop(where, None)
        waits = self._subscribed.pop(where, None)
        if waits is not None:
            waits.remove(self)

    def close(self) -> None:
        """Hear of nothing any more."""
        for where in list(self._subscribed):
            self.forget(where)
