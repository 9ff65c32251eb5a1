"""What a broker asks of a blocking store arrives there as it was meant."""

from __future__ import annotations

import asyncio
import threading

from sparklog.broker.async_store import ThreadedStore
from sparklog.core.errors import Unavailable
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
