"""FairQueue: a bounded queue in which addresses take turns.

FAIR-QUEUE-1: an item waits for one item of each other address at most, besides those of its own
    address before it
FAIR-QUEUE-2: one address has at most `of_address_max` items. All have at most `items_max`, and
    then one item of each further address, up to as many
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """Items that wait, by the address of a client."""

    def __init__(self, items_max: int, of_address_max: int) -> None:
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
