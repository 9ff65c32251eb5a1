"""The demo's brokers: `jobs/serve.py` on three executors of this machine, watched and killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.errors import Unavailable
from sparklog.core.shipped_files import shipped_folder
from sparklog.spark.demo.processes import Child, shown
from sparklog.spark.demo.scene import Scene
from sparklog.spark.serve.broker_task import parent_of

BROKERS = 3
TOPIC = "departures"
MASTER = f"local-cluster[{BROKERS},2,1024]"
PATIENCE_S = 90.0


class DemoBrokers:
    """The launcher's process, and what it says of its brokers."""

    def __init__(self, scene: Scene, schedule: Path) -> None:
        """Submit it, with a schedule of upkeep jobs."""
        self._narrator = scene.narrator
        self._jobs_done: set[str] = set()
        arguments = (
            *("--root", scene.stage.root, "--brokers", str(BROKERS), "--port", "0"),
            *("--jobs", str(schedule)),
        )
        call = shown("jobs/serve.py", arguments)
        self._narrator.command(call.replace("spark-submit", f'spark-submit --master "{MASTER}"', 1))
        words = scene.submitter.words(
            shipped_folder("jobs") / "serve.py", *arguments, "--json", master=MASTER
        )
        self._child: Child = scene.children.start(words, scene.submitter.environ())
        self._events: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        self._known: dict[int, dict[str, Any]] = {}
        Thread(target=self._listen, name="brokers", daemon=True).start()

    @property
    def bootstrap_servers(self) -> str:
        """Return the addresses of all brokers."""
        return ",".join(f"{one['host']}:{one['port']}" for one in self._known.values())

    def await_event(self, event: str) -> dict[str, Any]:
        """Return the next event of a kind.

        Raises:
            Unavailable: it did not come. ChildFailed: the launcher has ended instead.
        """
        deadline_s = SYSTEM_CLOCK.monotonic_s() + PATIENCE_S
        while True:
            try:
                found = self._events.get(timeout=max(0.0, deadline_s - SYSTEM_CLOCK.monotonic_s()))
            except Empty:
                raise Unavailable(f"brokers did not say so in time. event={event}") from None
            if found is None:
                self._child.finish()
                raise Unavailable(f"the launcher has ended instead. event={event}")
            self._tell(found)
            if found["event"] == event:
                return found

    def await_job(self, job: str) -> None:
        """Wait until a scheduled job is done, unless it has been already.

        Raises:
            Unavailable: it is not in time. ChildFailed: the launcher has ended instead.
        """
        while job not in self._jobs_done:
            self.await_event("job")

    def look(self) -> None:
        """Report what has happened meanwhile."""
        while not self._events.empty():
            event = self._events.get()
            if event is not None:
                self._tell(event)

    def kill_executor_of(self, broker: int) -> float:
        """Kill the executor that a broker runs on; returns when, on the monotonic clock.

        Raises:
            Unavailable: the broker's process has gone already.
        """
        executor = parent_of(parent_of(self._known[broker]["pid"]) or 0)
        if executor is None:
            raise Unavailable(f"the broker's executor is not there. broker={broker}")
        self._narrator.command(f"kill -9 {executor}   # the executor of broker {broker}")
        moment_s = SYSTEM_CLOCK.monotonic_s()
        os.kill(executor, signal.SIGKILL)
        return moment_s

    def drain(self) -> int:
        """Ask for the end, as an operator would, and return how many brokers have drained."""
        # To the launcher alone: its executors are to end only when brokers have handed over.
        self._child.process.send_signal(signal.SIGTERM)
        return int(self.await_event("ended")["drained"])

    def _tell(self, event: dict[str, Any]) -> None:
        kind, broker = event["event"], event.get("broker")
        if kind == "ready":
            assert isinstance(broker, int), "a ready broker has an id"
            self._known[broker] = event
            where = f"{event['host']}:{event['port']}"
            self._narrator.tell(f"broker {broker} serves at {where}, process {event['pid']}")
        elif kind == "lost":
            self._narrator.tell(f"broker {broker} is gone; Spark starts it again")
        elif kind == "job":
            if event["outcome"] != "running":
                self._narrator.tell(f"{event['text']} ({event['duration_ms'] / 1000:.1f} s)")
            if event["outcome"] == "done":
                self._jobs_done.add(event["job"])
        elif kind in ("failed", "note"):
            self._narrator.tell(str(event.get("message") or event.get("text")))

    def _listen(self) -> None:
        for document in self._child.documents():
            self._events.put(document)
        self._events.put(None)
