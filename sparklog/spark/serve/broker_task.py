"""The task that is a broker: what runs on an executor, in a Python worker of its own.

The task ends in good order, and returns how it went, when the broker has drained or
could not go on. It fails only when its process is killed, and the driver hands its job in again.
So the driver waits out an error that would come again, such as a port in use. It does not try it a
hundred times.

SIGTERM to the process of one broker restarts it in good order: it drains and ends, and the driver
hands its job in again.

Spark uses worker processes again. One that did upkeep may have threads of the lowest priority, and
a broker would have them. Such a process ends, and the task starts in another.

A broker ends with its executor: a Python worker whose JVM is gone must not serve on.

Spark ends workers by SIGHUP when an executor's JVM goes, through a daemon between the two. When
that daemon dies first (the kernel's out-of-memory killer takes single processes), the worker gets
no signal, and Spark starts a second broker elsewhere. So the kernel is asked for a signal when the
daemon dies, and a thread looks whether the JVM is still the daemon's parent. Death is at once and
without a farewell: everything acknowledged is on storage, and a broken connection is what the
others notice first.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from types import FrameType
from typing import Any

from sparklog.broker.runtime.diagnostics import LOG_VARIABLE, start_diagnostics
from sparklog.broker.runtime.identity import Ready
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.errors import InvalidRequest, RootEmptied, SparklogError
from sparklog.spark.jobs.low_priority import gave_way
from sparklog.spark.serve.broker_plan import BrokerPlan
from sparklog.spark.serve.control_channel import ControlChannel, say

PR_SET_PDEATHSIG = 1
LOOK_INTERVAL_S = 0.5
ORPHANED = 86
"""Exit code of a broker that ends because its executor did."""


def die_with_parents(clock: Clock = SYSTEM_CLOCK) -> None:
    """End this process as soon as its parent, or its parent's parent, is gone."""
    parent = os.getppid()
    grandparent = parent_of(parent)
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(ORPHANED)  # it died before the kernel knew of our wish

    def watch() -> None:
        while os.getppid() == parent and parent_of(parent) == grandparent:
            clock.sleep_s(LOOK_INTERVAL_S)
        os._exit(ORPHANED)

    Thread(target=watch, name="sparklog-parents", daemon=True).start()


def parent_of(pid: int) -> int | None:
    """Return a process' parent; None where that is not to be found out, or it is gone."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name in parentheses may hold anything, so the fields are counted from its end.
    return int(status.rpartition(")")[2].split()[1])


DRAINED = "drained"
FAILED = "failed"
KILLED = "killed"
"""Its process, or the executor's, was killed: the task has reported nothing."""
REFUSED = "refused"
"""The settings are wrong, or the root was emptied: a new try would end the same, or worse."""


def task_of(plan: BrokerPlan) -> Callable[[Iterable[int]], Iterator[tuple[str, str]]]:
    """Return the function that `mapPartitions` runs: it yields how the broker ended, and why."""

    def run(broker_ids: Iterable[int]) -> Iterator[tuple[str, str]]:
        for _ in broker_ids:
            pass
        yield run_broker(plan)

    return run


def run_broker(plan: BrokerPlan) -> tuple[str, str]:
    """Run a broker until it ends, and return how it ended."""
    if gave_way():
        os.kill(os.getpid(), signal.SIGKILL)
    die_with_parents()
    start_diagnostics(plan.log_level, {LOG_VARIABLE: plan.log_levels})
    line = ControlChannel(plan.control, plan.broker_id)
    facts = {"pid": os.getpid(), "executor_host": line.own_host, "folder": os.getcwd()}
    line.tell({"event": "started", **facts})

    def ready(found: Ready) -> None:
        line.tell({"event": "ready", **_fields(found)})

    def note(text: str) -> None:
        line.tell({"event": "note", "text": text})

    try:
        settings = plan.settings(line.own_host, os.environ)  # noqa: TID251 - the executor's edge
        with _sigterm() as terminated:

            def stop() -> bool:
                return terminated.is_set() or line.stop_asked()

            plan.entry(plan.root, settings, stop=stop, ready=ready, note=note)
        outcome, message = DRAINED, ""
        line.tell({"event": "drained"})
    except (InvalidRequest, RootEmptied) as error:
        outcome, message = REFUSED, str(error)
    except (SparklogError, OSError) as error:
        outcome, message = FAILED, _words(error)
    if message:
        say(f"broker {plan.broker_id} {outcome}: {message}")
    line.close()
    return outcome, message


@contextmanager
def _sigterm() -> Iterator[Event]:
    """Have SIGTERM set an event, in the process' main thread; the worker may be used again."""
    terminated = Event()

    def note(number: int, frame: FrameType | None) -> None:
        terminated.set()

    before = signal.signal(signal.SIGTERM, note)
    try:
        yield terminated
    finally:
        signal.signal(signal.SIGTERM, before)


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.strerror}: {error.filename}"
    return f"{type(error).__name__}: {error}"


def _fields(found: Ready) -> dict[str, Any]:
    return {
        "incarnation": found.incarnation,
        "host": found.host,
        "port": found.port,
        "metrics_port": found.metrics_port,
        "cluster_id": found.cluster_id,
        "began_log": found.began_log,
    }
