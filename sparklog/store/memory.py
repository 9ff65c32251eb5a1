"""The reference store: objects in this process's memory, shared by name."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock

from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.store.base import (
    Data,
    ObjectInfo,
    ObjectNotFound,
    ObjectStore,
    PutOutcome,
    check_key,
    check_prefix,
    check_range,
)

_SHARED: dict[str, MemoryStore] = {}
_SHARED_LOCK = Lock()


def shared_memory_store(name: str, clock: Clock = SYSTEM_CLOCK) -> MemoryStore:
    """Return this process's store of that name; made at the first call."""
    with _SHARED_LOCK:
        return _SHARED.setdefault(name, MemoryStore(name, clock))


def forget_memory_store(name: str) -> None:
    """Drop this process's store of that name, if there is one; its users keep theirs."""
    with _SHARED_LOCK:
        _SHARED.pop(name, None)


class MemoryStore(ObjectStore):
    """A dictionary that keeps STORE-1 to STORE-5 by one lock."""

    def __init__(self, name: str, clock: Clock = SYSTEM_CLOCK) -> None:
        """Start empty."""
        self.url = f"memory://{name}"
        self._clock = clock
        self._objects: dict[str, tuple[bytes, int]] = {}
        self._lock = Lock()

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """See `ObjectStore.get`."""
        check_range(start, end)
        return self._found(key)[0][start:end]

    def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        """See `ObjectStore.put_if_absent`; never UNKNOWN."""
        check_key(key)
        with self._lock:
            if key in self._objects:
                return PutOutcome.EXISTS
            self._objects[key] = bytes(data), self._clock.now_ms()
            return PutOutcome.CREATED

    def put(self, key: str, data: bytes) -> None:
        """See `ObjectStore.put`."""
        check_key(key)
        with self._lock:
            self._objects[key] = bytes(data), self._clock.now_ms()

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """See `ObjectStore.list`."""
        check_prefix(prefix)
        with self._lock:
            keys = sorted(k for k in self._objects if k.startswith(prefix) and k > start_after)
            found = [ObjectInfo(k, len(self._objects[k][0]), self._objects[k][1]) for k in keys]
        yield from found

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        check_key(key)
        with self._lock:
            self._objects.pop(key, None)

    def delete_if(self, key: str, data: bytes) -> bool:
        """See `ObjectStore.delete_if`."""
        check_key(key)
        with self._lock:
            if key in self._objects and self._objects[key][0] != data:
                return False
            self._objects.pop(key, None)
            return True

    def head(self, key: str) -> ObjectInfo:
        """See `ObjectStore.head`."""
        data, modified_ms = self._found(key)
        return ObjectInfo(key, len(data), modified_ms)

    def _found(self, key: str) -> tuple[bytes, int]:
        check_key(key)
        with self._lock:
            if key not in self._objects:
                raise ObjectNotFound(key)
            return self._objects[key]
