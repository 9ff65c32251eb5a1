"""Work that makes way for everything else on its machine: upkeep in an application with brokers.

A worker process goes on with other tasks afterwards, perhaps a broker's, and priority that was
given up cannot be had back. So a thread gives up its own, and the threads that it starts are alike.
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
LOWEST: Final = 19

Result = TypeVar("Result")


def at_low_priority(work: Callable[[], Result]) -> Result:
    """Return what `work` returns, or raise what it raises, done by a thread of lowest priority."""
    with ThreadPoolExecutor(1, "sparklog-upkeep", initializer=_give_way) as pool:
        return pool.submit(work).result()


def making_way(work: Callable[[], Result]) -> Result:
    """Return what `work` returns; at low priority in tasks of the upkeep's pool."""
    context = TaskContext.get()
    if context is None or context.getLocalProperty("spark.scheduler.pool") != POOL:
        return work()
    return at_low_priority(work)


def _give_way() -> None:
    try:
        # On Linux this is a thread's; elsewhere there is no process of that number.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST)
    except OSError:
        pass  # done at ordinary priority then
