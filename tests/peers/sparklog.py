"""sparklog's own brokers, started as people start them: `jobs/serve.py` in a process of its own.

    with SparklogCluster(folder, "--brokers", "3") as cluster:
        cluster.bootstrap   # "127.0.0.1:40123,…"

A broker can be killed, and Spark brings it back. All processes end with the cluster, and an error
that asyncio logged in one of the brokers fails the block.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Any

from tests.asyncio_errors import OpenLogs
from tests.peers.guard import die_with_parent

PROJECT = Path(__file__).resolve().parents[2]
SERVE = PROJECT / "jobs" / "serve.py"
LAUNCHER = (sys.executable, str(SERVE))
"""Command that users start."""
DEADLINE_S = 400.0
Event = dict[str, Any]


class SparklogCluster:
    """A launcher's process, the events it prints, and its brokers; a context manager."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        program: Sequence[str] = LAUNCHER,
        root: str | None = None,
        environment: Mapping[str, str] | None = None,
        waits: bool = True,
    ) -> None:
        """Prepare `program` with its options; the log is in `folder` unless `root` says where.

        Args:
            waits: whether the block begins when all brokers serve, or at once.
        """
        self.folder = folder
        self.root = root or (folder / "log").as_uri()
        self._words = [*program, "--root", self.root, "--port", "0", "--json", *options]
        self._environment = dict(environment or {})
        self._waits = waits
        self._events: SimpleQueue[Event] = SimpleQueue()
        self.seen: list[Event] = []
        self.brokers: dict[int, Event] = {}
        """Last event of each ready broker."""
        self.logs = OpenLogs()
        """The logs of all executors that run or ran a broker, and Spark's own."""
        self._spark_log: Path | None = None
        self._process: subprocess.Popen[str] | None = None

    @property
    def process(self) -> subprocess.Popen[str]:
        """Return the launcher's process."""
        assert self._process is not None, "start it first"
        return self._process

    @property
    def bootstrap(self) -> str:
        """Return `bootstrap.servers`."""
        return ",".join(f"{b['host']}:{b['port']}" for b in self.brokers.values())

    @property
    def log_file(self) -> Path:
        """Return what the launcher and Spark print."""
        return self.folder / "launcher.log"

    def launch(self) -> None:
        """Start the launcher; returns before anything serves."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("w") as log:
            self._process = subprocess.Popen(
                self._words,
                env={**spark_environment(), **self._environment},
                cwd=self.folder,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                # Its brokers would outlive a test or benchmark that is killed.
                preexec_fn=partial(die_with_parent, signal.SIGTERM),  # noqa: PLW1509
                start_new_session=True,
            )
        Thread(target=self._listen, daemon=True).start()

    def await_serving(self) -> None:
        """Wait until all brokers serve."""
        self.until("serving")

    def until(self, event: str, **fields: object) -> Event:
        """Return the next event of a kind that has these fields."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                found = self._events.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                found = {"event": "silence"}
            self._take(found)
            if found["event"] == event and fields.items() <= found.items():
                return found
            if found["event"] in ("silence", "no more"):
                log = self.log_file.read_text(errors="replace")[-3000:]
                raise AssertionError(f"no {event} {fields}: {self.seen[-10:]} log={log}")

    def first(self, event: str) -> Event:
        """Return the first event of a kind, which came already or is to come."""
        came = (one for one in self.seen if one["event"] == event)
        return next(came, None) or self.until(event)

    def rest(self) -> list[Event]:
        """Wait for the launcher's end, and return the events until then."""
        self.process.wait(DEADLINE_S)
        found: list[Event] = []
        while (one := self._events.get(timeout=DEADLINE_S))["event"] != "no more":
            found.append(one)
        return found

    def kill_broker(self, broker: int) -> None:
        """Kill a broker's process with SIGKILL."""
        os.kill(self.brokers[broker]["pid"], signal.SIGKILL)

    def close(self) -> None:
        """End all processes. Closing twice is fine."""
        if self._process is None:
            return
        # The drivers' JVM and executors share the launcher's group; brokers die with executors.
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()

    def __enter__(self) -> SparklogCluster:
        """Start it, and wait until all brokers serve unless it was made not to wait."""
        self.launch()
        try:
            if self._waits:
                self.await_serving()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it.

        Raises:
            AssertionError: a broker has logged an error of asyncio, and the block raised nothing.
        """
        self.close()
        complaints = self.logs.close()
        if error is None:
            assert not complaints, complaints

    def _take(self, event: Event) -> None:
        self.seen.append(event)
        if event["event"] == "ready":
            self.brokers[event["broker"]] = event

    def _open_logs(self, event: Event) -> None:
        """Open the logs that are there at an event; a launcher that ends removes its folder."""
        self.logs.open([self.log_file])
        if event["event"] == "starting":
            self._spark_log = Path(event["log"])
        if self._spark_log is not None:
            executors = (self._spark_log.parent / "spark").glob("work/*/*/stderr")
            self.logs.open([self._spark_log, *executors])
        if "folder" in event:  # where the executor of one broker works
            self.logs.open([Path(event["folder"]) / "stderr"])

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                if line.startswith("{"):
                    event = json.loads(line)
                    self._open_logs(event)
                    self._events.put(event)
        self._events.put({"event": "no more"})


def spark_environment() -> dict[str, str]:
    """Return the environment of a shell with the virtual environment active, and no more of Spark.

    `JAVA_TOOL_OPTIONS`, which no user sets, is `quick_jvm`'s: many short JVMs.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
    return {
        **kept,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}",
        # Programs of tests import from tests.
        "PYTHONPATH": str(PROJECT),
    }
