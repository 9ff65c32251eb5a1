"""FairQueue: a bounded queue in which addresses take turns, and the pause before its next item.

FAIR-QUEUE-1: an item waits for one item of each other address at most, besides those of its own
    address before it
FAIR-QUEUE-2: one address has at most `of_address_max` items. All have at most `items_max`, and
    then one item of each further address, up to as many
"""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

from sparklog.core.quotas import TokenBucket

ITEMS_MAX: Final = 1024
OF_ADDRESS_MAX: Final = 256
PAUSE_MIN_S: Final = 0.001
"""The resolution of timers."""
Item = TypeVar("Item")


def pause_s(budget: TokenBucket, now_s: float) -> float:
    """Return the seconds until a budget allows the next item; 0: it does."""
    wait_s = budget.wait_s(now_s)
    return wait_s if wait_s >= PAUSE_MIN_S else 0.0


class FairQueue(Generic[Item]):
    """Items that wait, by the address of a client."""

    def __init__(self, items_max: int = ITEMS_MAX, of_address_max: int = OF_ADDRESS_MAX) -> None:
        """Begin empty."""
        self._items_max = items_max
        self._of_address_max = of_address_max
        self._by_host: dict[str, deque[Item]] = {}
        """The items of each address; the first address is the next one."""
        self._count = 0

    def __len__(self) -> int:
        """Return how many items wait."""
        return self._count

    def add(self, host: str, item: Item) -> bool:
        """Add an item of an address; return False if it has no place."""
        items = self._by_host.get(host)
        if items is None:
            if len(self._by_host) >= self._items_max:
                return False
            items = self._by_host[host] = deque()
        elif self._count >= self._items_max or len(items) >= self._of_address_max:
            return False
        items.append(item)
        self._count += 1
        return True

    def pop(self) -> Item:
        """Remove and return the next item.

        Raises:
            LookupError: none waits.
        """
        host = next(iter(self._by_host), None)
        if host is None:
            raise LookupError("nothing waits")
        items = self._by_host[host] = self._by_host.pop(host)
        item = items.popleft()
        self._left(host, items)
        return item

    def remove(self, host: str, item: Item) -> bool:
        """Remove an item of an address; return False if it does not wait."""
        items = self._by_host.get(host, deque())
        if item not in items:
            return False
        items.remove(item)
        self._left(host, items)
        return True

    def _left(self, host: str, items: deque[Item]) -> None:
        self._count -= 1
        if not items:
            del self._by_host[host]
