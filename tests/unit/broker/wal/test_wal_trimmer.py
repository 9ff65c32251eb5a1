"""The trimmer: every name goes, and meanwhile a disk and a processor are left to others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import inf

import pytest

from sparklog.broker.runtime.environment import TaskScope
from sparklog.broker.wal.appender import (
    BEHIND,
    CHEAP_DELETE_S,
    FEW,
    LANE_NAMES,
    LANES,
    PAUSE_PER_WORK,
    WalTrimmer,
)
from sparklog.log.layout import WalLayout
from tests.harness.broker_world import World

LAYOUT = WalLayout(1, "0123456789abcdef" * 2)
NAMES = 1000
IDLE_BY_THEN_S = 600.0


class TimedStore:
    """Takes its time for every name, and notes when each was gone."""

    def __init__(self, each_s: float, answers_s: float = inf) -> None:
        self.each_s = each_s
        self.answers_s = answers_s
        """Seconds until each answer."""
        self.gone: list[tuple[str, float]] = []
        self.asked: list[int] = []
        self.answered: list[int] = []
        """Numbers of deleted names at each moment without work."""
        self.at_once = 0
        self.at_once_max = 0

    async def retire_in_turn(self, keys: Sequence[str]) -> int:
        self.asked.append(len(keys))
        self.at_once += 1
        self.at_once_max = max(self.at_once_max, self.at_once)
        done = 0
        for key in keys:
            await asyncio.sleep(self.each_s)
            now_s = asyncio.get_running_loop().time()
            if now_s > self.answers_s:
                break
            self.gone.append((key, now_s))
            done += 1
        self.at_once -= 1
        return done

    @property
    def took_s(self) -> float:
        return max(s for _, s in self.gone) - min(s for _, s in self.gone)


def trim(store: TimedStore, *parts: range, then: Sequence[range] = ()) -> None:
    """Have names trimmed until nothing is left to do; `then`, with a store that answers, more."""

    async def story() -> None:
        crashes: list[BaseException] = []
        tasks = TaskScope("test", crashes.append)
        trimmer = WalTrimmer(store.retire_in_turn, LAYOUT, tasks)
        for some in (parts, then):
            for part in some:
                trimmer.trim(part)
            await asyncio.sleep(IDLE_BY_THEN_S)
            store.answered.append(len(store.gone))
            store.answers_s = inf
        await tasks.close()
        assert not crashes

    World(seed=1).run(story())


def keys(names: int) -> list[str]:
    return sorted(LAYOUT.key(n) for n in range(names))


def test_a_disk_is_left_to_others_most_of_the_time() -> None:
    store = TimedStore(0.001)
    trim(store, range(NAMES // 2), range(NAMES // 2, NAMES))
    assert sorted(key for key, _ in store.gone) == keys(NAMES), "each once"
    assert (store.at_once_max, max(store.asked)) == (1, FEW)
    assert store.took_s == pytest.approx((1 + PAUSE_PER_WORK) * NAMES * store.each_s, rel=0.05)


def test_trimmer_far_behind_takes_no_pause() -> None:
    store = TimedStore(0.001)
    trim(store, range(3 * BEHIND))
    hurried_s = store.gone[2 * BEHIND - 1][1] - store.gone[0][1]
    assert hurried_s == pytest.approx(2 * BEHIND * store.each_s, rel=0.05)
    assert store.took_s > (1 + PAUSE_PER_WORK) * BEHIND * store.each_s


def test_at_a_distance_many_are_deleted_at_the_same_time() -> None:
    store = TimedStore(2 * CHEAP_DELETE_S)
    trim(store, range(NAMES))
    assert sorted(key for key, _ in store.gone) == keys(NAMES), "each once"
    assert (store.at_once_max, max(store.asked)) == (LANES, LANE_NAMES)
    assert store.took_s < 1.2 * NAMES * store.each_s / LANES


def test_names_without_an_answer_are_deleted_by_a_later_trim() -> None:
    store = TimedStore(0.001, answers_s=1.0)
    trim(store, range(NAMES), then=[range(NAMES, NAMES + 1)])
    assert 0 < store.answered[0] < NAMES
    assert sorted(key for key, _ in store.gone) == keys(NAMES + 1), "each once"
