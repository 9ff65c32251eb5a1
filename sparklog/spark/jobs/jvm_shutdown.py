"""JVM shutdown: Python is notified that Spark's JVM ends before Spark itself is.

Under spark-submit the JVM is the process that operators, YARN and Kubernetes end: it gets the
signal, stops its SparkContext, and with it every executor. A shutdown hook that goes before
Spark's own gives brokers the time to drain, and streaming queries the time to stop. Hadoop's
registry of hooks, in which Spark has its own, is the public way to have an order among them.

Python's output there goes through the JVM, too: it reads a pipe, and drops the pipe's contents
when it ends. So the JVM is held until it has read the last line.
"""

from __future__ import annotations

import fcntl
import signal
import struct
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from threading import Event, main_thread
from typing import Any, Final, TextIO

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started

from sparklog.core.clock import SYSTEM_CLOCK

BEFORE_SPARK = 50
"""Spark's hook has 40 there (FileSystem.SHUTDOWN_HOOK_PRIORITY + 30); the higher goes first."""
READ_TIMEOUT_S: Final = 5.0
"""The JVM's end waits no longer for output that is not read."""
READ_INTERVAL_S: Final = 0.01


def spare_executors() -> None:
    """Keep a terminal's Ctrl-C from executors on this machine, whose brokers are to drain.

    A terminal sends SIGINT to all processes of the foreground. Processes that Spark's JVM starts
    from now on ignore it, as the JVM itself does; the driver's Python gets it, and drains. PySpark
    does the same when it starts the JVM. Call it before there is a session.
    """
    SparkContext._ensure_initialized()  # noqa: SLF001 - as below
    jvm: Any = SparkContext._jvm  # noqa: SLF001 - as below
    interrupt = jvm.sun.misc.Signal("INT")
    jvm.sun.misc.Signal.handle(interrupt, jvm.sun.misc.SignalHandler.SIG_IGN)


class JvmShutdown:
    """Holds up the JVM's end until work is done; a context manager."""

    def __init__(
        self, context: SparkContext, timeout_s: int, notify: Callable[[], None] | None = None
    ) -> None:
        """Hold up the end of the JVM, and call `notify` when it has begun.

        Args:
            context: of the JVM.
            timeout_s: the longest delay of its end, in seconds.
            notify: called in a thread of Py4J.
        """
        self._context = context
        self._timeout_s = timeout_s
        self._hook = _Hook(timeout_s, notify)
        self._hooks: Any = None
        self._thread: Any = None

    @property
    def came(self) -> bool:
        """Return whether the JVM is about to end."""
        return self._hook.came.is_set()

    def __enter__(self) -> JvmShutdown:
        """Begin to listen."""
        gateway: Any = self._context._gateway  # noqa: SLF001 - Python has no other way
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        seconds = gateway.jvm.java.util.concurrent.TimeUnit.SECONDS
        # Each call makes the hook another object to Java. A thread that is never started keeps its
        # identity, and so can be removed.
        self._thread = gateway.jvm.java.lang.Thread(self._hook, "sparklog: end of the job")
        self._hooks = gateway.jvm.org.apache.hadoop.util.ShutdownHookManager.get()
        self._hooks.addShutdownHook(self._thread, BEFORE_SPARK, self._timeout_s, seconds)
        return self

    def __exit__(self, *_: object) -> None:
        """Let the JVM end, once it has passed on what was printed."""
        if self.came:
            for stream in (sys.stdout, sys.stderr):
                await_reader(stream, READ_TIMEOUT_S)
        self._hook.done.set()
        if not self.came:
            # Left there it would call Python when that has gone, and log that there was no answer.
            # A JVM that has begun to end meanwhile, or is gone, has no use for this.
            with suppress(Py4JError, OSError):
                self._hooks.removeShutdownHook(self._thread)


def terminate_main_thread() -> None:
    """Send this process the signal that its JVM got, SIGTERM."""
    thread = main_thread().ident
    assert thread is not None, "it runs"
    signal.pthread_kill(thread, signal.SIGTERM)


def await_reader(stream: TextIO, timeout_s: float) -> bool:
    """Wait until the reader of a pipe has read all of `stream`; return whether it has."""
    deadline_s = SYSTEM_CLOCK.monotonic_s() + timeout_s
    try:
        stream.flush()
        while _unread_bytes(stream.fileno()):
            if SYSTEM_CLOCK.monotonic_s() >= deadline_s:
                return False
            SYSTEM_CLOCK.sleep_s(READ_INTERVAL_S)
    except (OSError, ValueError):
        pass  # it has no reader, or keeps what was written, as a file does
    return True


def _unread_bytes(descriptor: int) -> int:
    (count,) = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, struct.pack("i", 0)))
    return int(count)


class _Hook:
    """A `java.lang.Runnable`."""

    class Java:
        implements = ("java.lang.Runnable",)

    def __init__(self, timeout_s: float, notify: Callable[[], None] | None) -> None:
        self._timeout_s = timeout_s
        self._notify = notify
        self.came = Event()
        self.done = Event()

    def run(self) -> None:
        """Handle the JVM's call."""
        self.came.set()
        if self._notify is not None:
            self._notify()
        self.done.wait(self._timeout_s)
