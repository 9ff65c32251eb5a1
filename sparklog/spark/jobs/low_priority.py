"""Low priority: upkeep in an application with brokers yields to all other work on its machine.

A thread asks for the idle class (Linux, `SCHED_IDLE`): any other runnable thread takes its
processor at once, and it has the rest. If others leave no rest it still gets some (it weighs 3
against 1024), so it is slow and never stuck. Elsewhere, and where that is refused, it is as nice
as can be. It has half of the processors only, where the system allows to ask for that. The host
then has less reason to stop all of the machine, or of the container.

A worker process goes on with other tasks afterwards, and priority that was given up cannot be had
back. So a thread gives up its own only. Threads that it starts are alike, also those that a
library starts once for the whole process. `gave_way` looks for them, and a broker takes another
process.

A task lowers its priority before it imports anything of this package. So `packed` sends along what
it needs of this module: that may know nothing but the standard library, Spark and constants.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, TypeVar

from pyspark import TaskContext, cloudpickle

from sparklog.store.background_io import NICEST, makes_way

POOL: Final = "jobs"
"""The FAIR pool of upkeep jobs, beside the brokers' pools and the queries'."""

Given = TypeVar("Given")
Result = TypeVar("Result")


def at_low_priority(work: Callable[[], Result]) -> Result:
    """Return what `work` returns, or raise what it raises, done by a thread of lowest priority."""
    with ThreadPoolExecutor(1, "sparklog-upkeep", initializer=_give_way) as pool:
        return pool.submit(work).result()


def packed(work: Callable[[list[Given]], Result]) -> Callable[[Iterable[Given]], Result]:
    """Return `work` for a task of low priority.

    A new worker process imports most of this package as it unpacks its work. That takes a second
    of a processor and more, and is done at low priority, too.
    """
    pickler: Any = cloudpickle  # Spark's own, which has no types
    data = pickler.dumps(work)
    pickler.register_pickle_by_value(sys.modules[__name__])

    def done(given: list[Given]) -> Result:
        unpacked: Callable[[list[Given]], Result] = cloudpickle.loads(data)
        return unpacked(given)

    def in_task(given: Iterable[Given]) -> Result:
        known = list(given)  # Spark's own iterator stays with its thread
        return at_task_priority(lambda: done(known))

    return in_task


def at_task_priority(work: Callable[[], Result]) -> Result:
    """Return what `work` returns; at low priority in tasks of the upkeep's pool."""
    context = TaskContext.get()
    if context is None or context.getLocalProperty("spark.scheduler.pool") != POOL:
        return work()
    return at_low_priority(lambda: _swept(work))


def _swept(work: Callable[[], Result]) -> Result:
    """Do `work`, and sweep up behind it.

    Spark has a worker that waits for its next task collect its garbage, at ordinary priority: with
    all that was imported that is 50 ms. The collector no longer visits objects that stay.
    """
    try:
        return work()
    finally:
        gc.collect()
        gc.freeze()


def gave_way() -> bool:
    """Return whether threads of this process have the upkeep's priority, and this one has not."""
    if not hasattr(os, "SCHED_IDLE") or makes_way():
        return False
    return any(makes_way(int(thread)) for thread in os.listdir("/proc/self/task"))


def _give_way() -> None:
    thread = threading.get_native_id()
    _leave_processors(thread)
    if hasattr(os, "SCHED_IDLE"):
        with suppress(OSError):  # a sandbox may refuse it, and not the other
            os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
            return
    with suppress(OSError):  # done at ordinary priority then
        # On Linux a thread's own; elsewhere there is no process of that number.
        os.setpriority(os.PRIO_PROCESS, thread, NICEST)


def _leave_processors(thread: int) -> None:
    """Have a thread, and those that it starts, run on half of the processors only."""
    if not hasattr(os, "sched_setaffinity"):
        return
    with suppress(OSError):
        processors = sorted(os.sched_getaffinity(thread))
        os.sched_setaffinity(thread, processors[len(processors) // 2 :])
