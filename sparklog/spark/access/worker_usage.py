"""WorkerUsage: the usage reports of a Python worker of Spark.

When an application ends, Spark closes a worker's connection, and its daemon of workers sends
SIGHUP. The worker runs the daemon's loop of tasks. That sets the default action of SIGHUP before
each task, and ends by `os._exit`, which runs no hooks of Python's. A worker that has requests to
report must do so first, within a bounded time. So the loop gets other functions for these two
calls. All other code sees the modules `os` and `signal` as they are. Source: pyspark/daemon.py.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Callable, MutableMapping
from threading import current_thread, main_thread
from types import FrameType, ModuleType
from typing import Any, Final, NoReturn

from sparklog.cluster.log import Log
from sparklog.cluster.usage_reporter import UsageReporter

SPARK_QUERY: Final = "Spark query"
"""The name of reads and writes of Spark on the bill."""
FIRST_S: Final = 1.0
"""When a query stops, Spark kills the worker that plans its batches. Many live only for seconds."""
END_WAIT_S: Final = 2.0
"""A worker that Spark ends takes no longer for its last reports."""


def is_python_worker() -> bool:
    """Return whether Spark started this process for Python code of an application."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")


class WorkerUsage:
    """The reporters of one process. Thread-safe."""

    def __init__(self) -> None:
        """Report no log yet."""
        self._reporters: list[UsageReporter] = []
        self._process = os.getpid()
        self._reports_at_exit = False

    def add(self, log: Log) -> None:
        """Report a log's requests from now on."""
        reporter = UsageReporter(log, SPARK_QUERY, first_s=FIRST_S)
        reporter.start()
        self._reporters.append(reporter)

    def report_at_exit(self, loop: MutableMapping[str, Any]) -> None:
        """Report before Spark ends the process. Only the main thread can ask for that.

        `loop`: the names of the module that runs Spark's loop of tasks.
        """
        if self._reports_at_exit or current_thread() is not main_thread():
            return
        self._reports_at_exit = True
        atexit.register(self._end)
        if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
            signal.signal(signal.SIGHUP, self._hung_up)
        if loop.get("os") is os and loop.get("signal") is signal:
            loop["os"] = _LoopModule(os, _exit=self._exit)
            loop["signal"] = _LoopModule(signal, signal=self._set_action)

    def _exit(self, status: int) -> NoReturn:
        if os.getpid() == self._process:  # a child of it ends as it would have
            self._end()
        os._exit(status)

    def _set_action(self, number: int, action: Any) -> Any:
        if number == signal.SIGHUP and action is signal.SIG_DFL:
            action = self._hung_up
        return signal.signal(number, action)

    def _hung_up(self, number: int, frame: FrameType | None) -> None:
        self._exit(128 + number)

    def _end(self) -> None:
        """Report the last requests of each log. SIGHUP does not cut that short."""
        if current_thread() is main_thread():
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for reporter in list(self._reporters):
            reporter.end(END_WAIT_S)


class _LoopModule:
    """A module with other functions for some of its names."""

    def __init__(self, module: ModuleType, **functions: Callable[..., Any]) -> None:
        self._module = module
        self.__dict__.update(functions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)
