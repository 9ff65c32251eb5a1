"""Work that makes way for everything else on its machine: upkeep in an application with brokers.

A thread asks for the idle class (Linux, `SCHED_IDLE`): whatever else becomes runnable takes its
processor at once, and it has the rest. Where others leave no rest it still gets some (it weighs 3
against 1024), so it is slow and never stuck. Elsewhere it is as nice as can be.

A worker process goes on with other tasks afterwards, and priority that was given up cannot be had
back. So a thread gives up its own only. Threads that it starts are alike, also those that a library
starts once for the whole process: `gave_way` says so, and a broker takes another process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from pyspark import TaskContext

POOL: Final = "jobs"
"""The FAIR pool of upkeep jobs, beside the brokers' pools and the queries'."""
NICEST: Final = 19

Result = TypeVar("Result")

_gave_way = False


def at_low_priority(work: Callable[[], Result]) -> Result:
    """Return what `work` returns, or raise what it raises, done by a thread of lowest priority."""
    global _gave_way  # noqa: PLW0603 - of the process, as its libraries' threads are
    _gave_way = True
    with ThreadPoolExecutor(1, "sparklog-upkeep", initializer=_give_way) as pool:
        return pool.submit(work).result()


def making_way(work: Callable[[], Result]) -> Result:
    """Return what `work` returns; at low priority in tasks of the upkeep's pool."""
    context = TaskContext.get()
    if context is None or context.getLocalProperty("spark.scheduler.pool") != POOL:
        return work()
    return at_low_priority(work)


def gave_way() -> bool:
    """Return whether threads of this process may have the upkeep's priority."""
    return _gave_way


def _give_way() -> None:
    try:
        # On Linux both are a thread's; elsewhere there is no process of that number.
        thread = threading.get_native_id()
        if hasattr(os, "SCHED_IDLE"):
            os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
        else:
            os.setpriority(os.PRIO_PROCESS, thread, NICEST)
    except OSError:
        pass  # done at ordinary priority then
