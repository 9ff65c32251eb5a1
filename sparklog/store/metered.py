"""Counts what a store is asked for: the bill."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sparklog.core.counters import RequestCounters
from sparklog.store.base import Data, ObjectInfo, ObjectStore, PutOutcome
from sparklog.store.delegating_store import DelegatingStore

LIST_PAGE_KEYS = 1000
"""Keys in one page of an S3 listing; a listing costs one request per page."""


class MeteredStore(DelegatingStore):
    """Passes everything on and counts it by kind and label."""

    def __init__(
        self,
        store: ObjectStore,
        label_of: Callable[[str], str],
        counters: RequestCounters | None = None,
    ) -> None:
        """Count what `store` is asked for; `label_of` turns a key into a label."""
        super().__init__(store)
        self.counters = counters if counters is not None else RequestCounters()
        self._label_of = label_of

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """See `ObjectStore.get`."""
        data = b""
        try:
            data = self._store.get(key, start, end)
        finally:
            self.counters.add("get", self._label_of(key), len(data))
        return data

    def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        """See `ObjectStore.put_if_absent`."""
        self.counters.add("put", self._label_of(key), len(data))
        return self._store.put_if_absent(key, data)

    def put(self, key: str, data: bytes) -> None:
        """See `ObjectStore.put`."""
        self.counters.add("put", self._label_of(key), len(data))
        self._store.put(key, data)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """See `ObjectStore.list`."""
        label = self._label_of(prefix)
        self.counters.add("list", label)
        for at, info in enumerate(self._store.list(prefix, start_after)):
            if at and at % LIST_PAGE_KEYS == 0:
                self.counters.add("list", label)
            yield info

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        self.counters.add("delete", self._label_of(key))
        self._store.delete(key)

    def delete_if(self, key: str, data: bytes) -> bool:
        """See `ObjectStore.delete_if`; counts as a head, a get and a delete, as on clouds."""
        self.counters.add("head", self._label_of(key))
        self.counters.add("get", self._label_of(key), len(data))
        self.counters.add("delete", self._label_of(key))
        return self._store.delete_if(key, data)

    def retire(self, key: str) -> None:
        """See `ObjectStore.retire`; counts as a delete."""
        self.counters.add("delete", self._label_of(key))
        self._store.retire(key)

    def unforced(self) -> MeteredStore | None:
        """See `ObjectStore.unforced`; counted together."""
        store = self._store.unforced()
        return None if store is None else MeteredStore(store, self._label_of, self.counters)

    def head(self, key: str) -> ObjectInfo:
        """See `ObjectStore.head`."""
        self.counters.add("head", self._label_of(key))
        return self._store.head(key)
