"""DelegatingStore: the base of stores that stand in front of another one.

A subclass overrides what it changes. `unforced` is not forwarded: the store that it returns would
bypass the subclass, so a subclass that has it wraps the result.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparklog.store.base import Data, ObjectInfo, ObjectStore, PutOutcome


class DelegatingStore(ObjectStore):
    """Forwards each operation to another store."""

    def __init__(self, store: ObjectStore) -> None:
        """Forward to `store`."""
        self.url = store.url
        self._store = store

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """See `ObjectStore.get`."""
        return self._store.get(key, start, end)

    def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        """See `ObjectStore.put_if_absent`."""
        return self._store.put_if_absent(key, data)

    def put(self, key: str, data: bytes) -> None:
        """See `ObjectStore.put`."""
        self._store.put(key, data)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """See `ObjectStore.list`."""
        return self._store.list(prefix, start_after)

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        self._store.delete(key)

    def delete_if(self, key: str, data: bytes) -> bool:
        """See `ObjectStore.delete_if`."""
        return self._store.delete_if(key, data)

    def retire(self, key: str) -> None:
        """See `ObjectStore.retire`."""
        self._store.retire(key)

    def check_puts(self) -> None:
        """See `ObjectStore.check_puts`."""
        self._store.check_puts()

    def tidy(self, prefix: str) -> None:
        """See `ObjectStore.tidy`."""
        self._store.tidy(prefix)

    def head(self, key: str) -> ObjectInfo:
        """See `ObjectStore.head`."""
        return self._store.head(key)

    def close(self) -> None:
        """Close the store."""
        self._store.close()
