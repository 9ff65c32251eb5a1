"""A throttled store takes its time, and large objects are not written in one burst."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.core.clock import ManualClock
from sparklog.core.errors import Unavailable
from sparklog.store.background_io import IoThrottle, ThrottledStore
from sparklog.store.base import ObjectStore, PutOutcome
from sparklog.store.file import GENTLE_WRITE_BYTES, FileStore
from sparklog.store.memory import MemoryStore

PARTS = 5
DATA = b"d" * (PARTS * GENTLE_WRITE_BYTES)


class Slept(ManualClock):
    """A clock that knows each sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.sleeps: list[float] = []

    def sleep_s(self, seconds: float) -> None:
        super().sleep_s(seconds)
        self.sleeps.append(seconds)


def throttled(store: ObjectStore) -> tuple[ThrottledStore, Slept]:
    """Let one part pass in a second."""
    clock = Slept()
    return ThrottledStore(store, IoThrottle(GENTLE_WRITE_BYTES, clock).passed), clock


def test_a_file_is_written_in_parts_with_a_pause_after_each(tmp_path: Path) -> None:
    store, clock = throttled(FileStore(tmp_path))
    store.put("a", DATA)
    assert store.put_if_absent("b", DATA) is PutOutcome.CREATED
    assert clock.sleeps == [1.0] * (2 * PARTS)
    assert FileStore(tmp_path).get("b") == DATA


def test_put_of_an_existing_name_takes_no_longer(tmp_path: Path) -> None:
    store, clock = throttled(FileStore(tmp_path))
    FileStore(tmp_path).put("a", b"before")
    assert store.put_if_absent("a", DATA) is PutOutcome.EXISTS
    assert clock.monotonic_s() == PARTS


def test_a_store_that_writes_an_object_at_once_is_waited_for_as_long() -> None:
    store, clock = throttled(MemoryStore("throttled"))
    store.put("a", DATA)
    assert clock.sleeps == [PARTS]
    assert store.get("a") == DATA
    assert clock.monotonic_s() == 2 * PARTS


def test_store_without_a_throttle_does_not_wait_after_an_error(tmp_path: Path) -> None:
    (tmp_path / "no folder").write_text("a file")
    store, clock = throttled(FileStore(tmp_path / "no folder"))
    with pytest.raises(Unavailable):
        store.put("a", DATA)
    before_s = clock.monotonic_s()
    FileStore(tmp_path / "free").put("a", DATA)
    assert clock.monotonic_s() == before_s
