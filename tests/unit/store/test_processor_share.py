"""Low-priority threads: they leave processors idle most of the time."""

from __future__ import annotations

import os

import pytest

from sparklog.core.clock import ManualClock
from sparklog.store.background_io import (
    SHARE,
    CpuShare,
    ThrottledStore,
    paced,
    part_written,
    throttled_by_priority,
)
from sparklog.store.memory import MemoryStore

REST = 1 / SHARE - 1
"""For each second of one processor's work."""


class Worker(ManualClock):
    """Works on a processor, or on several at once."""

    def __init__(self) -> None:
        super().__init__()
        self.used_s = 100.0
        """Processor time of the process before."""
        self.others_go_on = False
        """True if other threads work while one waits."""

    def sleep_s(self, seconds: float) -> None:
        self.work(seconds) if self.others_go_on else super().sleep_s(seconds)

    def work(self, seconds: float, processors: int = 1) -> None:
        self.used_s += seconds * processors
        super().sleep_s(seconds)


def share_of(worker: Worker, monkeypatch: pytest.MonkeyPatch, processors: int = 1) -> CpuShare:
    monkeypatch.setattr(os, "sched_getaffinity", lambda thread: set(range(processors)))
    return CpuShare(worker, lambda: worker.used_s)


def rested_s(of: CpuShare, worker: Worker) -> float:
    before_s = worker.monotonic_s()
    of.passed(1)
    return worker.monotonic_s() - before_s


def test_worker_waits_in_proportion_to_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker()
    share = share_of(worker, monkeypatch)
    for seconds in (0.25, 1.0, 0.0, 0.5):
        worker.work(seconds)
        assert rested_s(share, worker) == pytest.approx(seconds * REST)


def test_time_spent_waiting_counts_as_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker()
    share = share_of(worker, monkeypatch)
    worker.work(1.0)
    worker.sleep_s(0.75)
    assert rested_s(share, worker) == pytest.approx(REST - 0.75)
    worker.sleep_s(10)
    assert rested_s(share, worker) == 0
    worker.work(1.0)
    assert rested_s(share, worker) == pytest.approx(REST), "rest is not saved up"


def test_a_rest_in_which_others_work_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker()
    share = share_of(worker, monkeypatch)
    worker.work(1.0)
    worker.others_go_on = True
    assert rested_s(share, worker) == pytest.approx(REST)
    worker.others_go_on = False
    assert rested_s(share, worker) == pytest.approx(REST + REST * REST), "for both"


def test_share_grows_with_the_number_of_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker()
    share = share_of(worker, monkeypatch, processors=4)
    worker.work(1.0, processors=1)
    assert rested_s(share, worker) == 0
    worker.work(1.0, processors=4)
    assert rested_s(share, worker) == pytest.approx(REST)


def test_only_low_priority_threads_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore("share")
    assert throttled_by_priority(store, ManualClock()) is store
    monkeypatch.setattr("sparklog.store.background_io.makes_way", lambda: True)
    assert isinstance(throttled_by_priority(store, ManualClock()), ThrottledStore)


def test_nested_pauses_are_both_notified_of_a_part() -> None:
    told: list[str] = []
    with paced(lambda size: told.append(f"outer {size}")):
        with paced(lambda size: told.append(f"inner {size}")):
            part_written(7)
        part_written(8)
    part_written(9)
    assert told == ["inner 7", "outer 7", "outer 8"]
