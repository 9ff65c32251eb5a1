"""Low priority of upkeep, by each means that the system grants."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

from sparklog.spark.jobs.low_priority import at_low_priority, gave_way
from sparklog.store.background_io import NICEST, makes_way, threads_of
from tests.harness.waiting import eventually


def test_upkeep_has_the_highest_niceness_without_the_idle_class() -> None:
    # In a process of its own: in this one upkeep may have left threads of libraries.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        pool.submit(_without_the_idle_class).result()


def test_stores_recognise_a_low_priority_thread() -> None:
    threads = at_low_priority(lambda: ThreadPoolExecutor(1))
    assert at_low_priority(makes_way)
    assert at_low_priority(lambda: threads.submit(makes_way).result()), "of whoever starts one"
    assert not makes_way()
    threads.shutdown()


def test_upkeep_has_a_thread_for_each_processor() -> None:
    many = 1000
    assert threads_of(many) == many
    assert at_low_priority(lambda: threads_of(many)) == max(2, len(_half_of_the_processors()))
    assert at_low_priority(lambda: threads_of(1)) == 1


def test_upkeep_has_half_of_the_processors() -> None:
    def seen() -> tuple[set[int], set[int]]:
        with ThreadPoolExecutor(1) as threads:
            return os.sched_getaffinity(0), threads.submit(os.sched_getaffinity, 0).result()

    before = os.sched_getaffinity(0)
    assert at_low_priority(seen) == (_half_of_the_processors(), _half_of_the_processors())
    assert os.sched_getaffinity(0) == before


def _half_of_the_processors() -> set[int]:
    processors = sorted(os.sched_getaffinity(0))
    return set(processors[len(processors) // 2 :])


def _without_the_idle_class() -> None:
    def refused(*given: object) -> None:
        raise PermissionError("as a sandbox says")

    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    os.sched_setscheduler = refused
    before = niceness()
    assert at_low_priority(lambda: (niceness(), gave_way(), makes_way())) == (NICEST, False, True)
    assert niceness() == before
    _the_system_has_ended_its_threads()
    go_on = threading.Event()
    kept = threading.Thread(target=go_on.wait, daemon=True)
    at_low_priority(kept.start)
    assert gave_way(), "a thread that it started is left"
    go_on.set()
    kept.join()
    _the_system_has_ended_its_threads()


def _the_system_has_ended_its_threads() -> None:
    """Threads are joined a moment before the system has taken them away."""
    eventually(lambda: not gave_way(), "no thread of lowest priority")
