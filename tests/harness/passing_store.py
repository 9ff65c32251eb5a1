"""A store that passes everything on: the base of those that meddle with one operation."""

from __future__ import annotations

from collections.abc import Iterator

from sparklog.store.base import Data, ObjectInfo, ObjectStore, PutOutcome


class PassingStore(ObjectStore):
    """In front of another store."""

    def __init__(self, inner: ObjectStore) -> None:
        """Pass everything on to `inner`."""
        self.url = inner.url
        self.inner = inner

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        return self.inner.get(key, start, end)

    def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        return self.inner.put_if_absent(key, data)

    def put(self, key: str, data: bytes) -> None:
        self.inner.put(key, data)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        return self.inner.list(prefix, start_after)

    def delete(self, key: str) -> None:
        self.inner.delete(key)

    def retire(self, key: str) -> None:
        self.inner.retire(key)

    def tidy(self, prefix: str) -> None:
        self.inner.tidy(prefix)

    def head(self, key: str) -> ObjectInfo:
        return self.inner.head(key)

    def close(self) -> None:
        self.inner.close()
