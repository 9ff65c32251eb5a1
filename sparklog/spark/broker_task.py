"""The task that is a broker: what runs on an executor, in a Python worker of its own.

The task ends in good order, with one row that says how it went, when the broker has drained or
could not go on. It fails only when its process is killed, and the driver hands its job in again. So
an error that would come again, such as a port in use, is waited out by the driver instead of being
tried a hundred times.

SIGTERM to the process of one broker restarts it in good order: it drains and ends, and the driver
hands its job in again.

Spark uses worker processes again. One that did upkeep may have threads of the lowest priority, and
a broker would have them: such a process ends, and the task starts in another.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType
from typing import Any

import pyarrow as pa

from sparklog.broker.ready import Ready
from sparklog.core.errors import InvalidRequest, SparklogError
from sparklog.spark.broker_plan import BrokerPlan
from sparklog.spark.control_line import ControlLine, say
from sparklog.spark.low_priority import gave_way
from sparklog.spark.process_watch import die_with_parents

DRAINED = "drained"
FAILED = "failed"
KILLED = "killed"
"""Its process, or the executor's, was killed: the task has told nothing."""
REFUSED = "refused"
"""The settings are wrong: trying again would end the same."""

SCHEMA = "outcome STRING, message STRING"
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
"""Of what brokers log to standard error, which Spark keeps with the executor's own log."""


def task_of(plan: BrokerPlan) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that `mapInArrow` runs."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        outcome, message = run_broker(plan)
        yield pa.RecordBatch.from_pydict({"outcome": [outcome], "message": [message]})

    return run


def run_broker(plan: BrokerPlan) -> tuple[str, str]:
    """Run a broker until it ends, and return how it ended."""
    if gave_way():
        os.kill(os.getpid(), signal.SIGKILL)
    die_with_parents()
    logging.basicConfig(level=plan.log_level, format=LOG_FORMAT)
    line = ControlLine(plan.control, plan.broker_id)
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
    except InvalidRequest as error:
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
    }
