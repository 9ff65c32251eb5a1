"""KeptEnds: keeps the ends of objects that one look-up reads, and answers from them.

A segment's footer and the filter of its keys are at its end, and a small segment is its end. So one
request serves all of them. Segments never change under their names while a look-up lasts. A store
of this kind is for one look-up only.
"""

from __future__ import annotations

from threading import Lock
from typing import Final, Self

from sparklog.store.base import ObjectStore
from sparklog.store.delegating_store import DelegatingStore

KEPT_BYTES_MAX: Final = 8 << 20
"""The ends of 128 objects; later ones are not kept."""


class KeptEnds(DelegatingStore):
    """Keeps what is read from the end of an object. Thread-safe."""

    def __init__(self, store: ObjectStore) -> None:
        """Read from `store`."""
        super().__init__(store)
        self._ends: dict[str, bytes] = {}
        self._sizes: dict[str, int] = {}
        self._free_bytes = KEPT_BYTES_MAX
        self._lock = Lock()

    @classmethod
    def over(cls, store: ObjectStore) -> Self:
        """Return a store that keeps the ends of objects in `store`, or `store` if it does."""
        return store if isinstance(store, cls) else cls(store)

    def learn_size(self, key: str, size_bytes: int) -> None:
        """Learn the bytes of an object, which say where its end begins."""
        self._sizes.setdefault(key, size_bytes)

    def forget(self, key: str) -> None:
        """Free the memory of an object that the look-up has done with."""
        with self._lock:
            self._free_bytes += len(self._ends.pop(key, b""))

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """See `ObjectStore.get`."""
        kept = self._ends.get(key)
        if kept is not None:
            known = self._cut(kept, key, start or 0, end)
            if known is not None:
                return known
        data = self._store.get(key, start, end)
        if start is not None and start < 0 and end is None:
            self._keep(key, data, whole=len(data) < -start)
        return data

    def _cut(self, kept: bytes, key: str, start: int, end: int | None) -> bytes | None:
        """Return the bytes asked for, or None if they are not all kept."""
        size = self._sizes.get(key)
        whole = size == len(kept)
        if end is None:
            if start < 0 and (whole or -start <= len(kept)):
                return kept[max(0, len(kept) + start) :]
            return kept[start:] if whole and start >= 0 else None
        if size is None or not size - len(kept) <= start <= end <= size:
            return None
        base = size - len(kept)
        return kept[start - base : end - base]

    def _keep(self, key: str, data: bytes, *, whole: bool) -> None:
        with self._lock:
            if whole:
                self._sizes[key] = len(data)
            longer = len(data) - len(self._ends.get(key, b""))
            if 0 < longer <= self._free_bytes:
                self._free_bytes -= longer
                self._ends[key] = data
