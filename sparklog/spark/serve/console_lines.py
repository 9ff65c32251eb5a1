"""Console lines of a launcher of brokers: for people, or a JSON object per line for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from sparklog.spark.jobs.progress import JobProgress
from sparklog.spark.serve.shared_slots import ExecutorUse, Restart
from sparklog.spark.serve.state import Notice

WAITING_EVERY_S: Final = 5.0


class Telling:
    """Prints notices. Lines go where progress goes, objects to standard output."""

    def __init__(self, progress: JobProgress, *, as_json: bool) -> None:
        """Print lines by `progress`, or objects."""
        self._progress = progress
        self._as_json = as_json
        self._said_s = 0.0

    def say(self, notice: Notice) -> None:
        """Print a notice."""
        if self._as_json:
            print(json.dumps(notice.document, separators=(",", ":")), flush=True)
        else:
            self._progress.say(notice.text)
        self._said_s = self._progress.elapsed_s()

    def say_waiting(self, what: str) -> None:
        """Print what is waited for, unless something was printed a moment ago."""
        elapsed_s = self._progress.elapsed_s()
        if elapsed_s - self._said_s >= WAITING_EVERY_S:
            text = f"waiting for {what}, for {elapsed_s:.0f} s"
            self.say(Notice(text, {"event": "waiting", "text": text}))


def compiling() -> Notice:
    """Return the notice that kernels are compiled first."""
    text = "compiling kernels, which takes half a minute and is done once (sparklog warm-up)"
    return Notice(text, {"event": "compiling", "text": text})


def starting(master: str, log: Path) -> Notice:
    """Return the notice that Spark starts, and where its own log is."""
    text = f"starting Spark ({master}), whose log is {log}"
    return Notice(text, {"event": "starting", "text": text, "log": str(log)})


def started(seconds: float, broker_ids: Iterable[int]) -> Notice:
    """Return the notice that Spark runs, and brokers start."""
    text = f"Spark runs after {seconds:.1f} s; starting {brokers_text(broker_ids)}"
    return Notice(text, {"event": "started", "text": text, "seconds": round(seconds, 3)})


def sharing_text(due: Restart, use: ExecutorUse) -> str:
    """Return why a broker starts again with another claim."""
    if due.shares:
        return (
            f"broker {due.broker_id} starts again and leaves slots to queries, because brokers "
            f"need all executors that Spark has now. executors={use.executors}"
        )
    return (
        f"broker {due.broker_id} starts again on an executor without queries. "
        f"executors={use.executors}"
    )


def brokers_text(broker_ids: Iterable[int]) -> str:
    """Return brokers in words: `brokers 1, 2`."""
    found = list(broker_ids)
    return f"broker{'' if len(found) == 1 else 's'} {', '.join(map(str, found))}"
