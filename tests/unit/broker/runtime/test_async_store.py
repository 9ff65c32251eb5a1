"""Requests of a broker to a blocking store: each arrives there unchanged."""

from __future__ import annotations

import asyncio
import threading

import pytest

from sparklog.broker.runtime.async_store import ThreadedStore
from sparklog.core.errors import Unavailable
from sparklog.log.effects import put
from sparklog.store.base import Data, PutOutcome
from sparklog.store.memory import MemoryStore


class Folder(MemoryStore):
    """Notes what is retired and tidied, and on which threads."""

    def __init__(self, answers: int) -> None:
        super().__init__("folder")
        self.asked: list[tuple[str, str]] = []
        self._answers = answers

    def delete(self, key: str) -> None:
        raise AssertionError("deleted")

    def retire(self, key: str) -> None:
        self._note(f"retire {key}")

    def tidy(self, prefix: str) -> None:
        self._note(f"tidy {prefix}")

    def _note(self, what: str) -> None:
        if len(self.asked) == self._answers:
            raise Unavailable("away")
        self.asked.append((what, threading.current_thread().name.rpartition("_")[0]))


def test_names_of_a_log_are_retired_in_turn_until_the_store_is_away() -> None:
    folder = Folder(answers=2)

    async def story() -> None:
        store = ThreadedStore(folder)
        assert await store.retire_in_turn([]) == 0
        assert await store.retire_in_turn(["wal/1-a/0", "wal/1-a/1", "wal/1-a/2"]) == 2
        store.close()

    asyncio.run(story())
    assert folder.asked == [(f"retire wal/1-a/{n}", "sparklog-wal") for n in range(2)]


def test_tidying_takes_no_thread_of_those_that_put() -> None:
    folder = Folder(answers=1)

    async def story() -> None:
        store = ThreadedStore(folder)
        await store.tidy("wal/1-")
        store.close()

    asyncio.run(story())
    assert folder.asked == [("tidy wal/1-", "sparklog-wal-read")]


class Disk(MemoryStore):
    """Notes what is put and retired."""

    def __init__(self) -> None:
        super().__init__("disk")
        self.asked: list[str] = []

    def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        self.asked.append(f"put {key}")
        return PutOutcome.CREATED

    def retire(self, key: str) -> None:
        self.asked.append(f"retire {key}")


@pytest.mark.parametrize("apart", [True, False])
def test_unforced_put_goes_to_the_unforced_store(apart: bool) -> None:
    forced, unforced = Disk(), Disk()

    async def story() -> None:
        store = ThreadedStore(forced, unforced if apart else None)
        await store.run(put("wal/1-a/1", b"", forced=False))
        await store.run(put("wal/1-a/2", b""))
        await store.put_if_absent("log/0", b"")
        assert await store.retire_in_turn(["wal/1-a/0"]) == 1
        store.close()

    asyncio.run(story())
    lazily = ["put wal/1-a/1", "retire wal/1-a/0"]
    assert unforced.asked == (lazily if apart else [])
    assert [one for one in forced.asked if one not in lazily] == ["put wal/1-a/2", "put log/0"]
    assert sorted(forced.asked + unforced.asked) == sorted([*lazily, "put wal/1-a/2", "put log/0"])
