"""Runs an upkeep job on a folder in a process of its own, and kills that before or after a write.

    python -m tests.harness.killed_jobs

reads lines `<root> <job> <n> <before|after>` and answers each with how the process ended and how
many writes it had begun. A process is a fork of this one, which has loaded everything: so that
a test can kill at every write there is. `n` 0 is never reached.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import TypeVar

from sparklog.cluster.log import Log
from sparklog.cluster.named_snapshots import create_snapshot, snapshot_records
from sparklog.log.effects import run
from sparklog.spark.jobs.compact import CompactJob, compacted_by
from sparklog.spark.jobs.partition_tasks import with_pins, work_on
from sparklog.spark.jobs.retain import RetainJob, retained_by
from sparklog.store.base import Data, ObjectStore, PutOutcome
from sparklog.store.delegating_store import DelegatingStore
from sparklog.store.file import FileStore
from sparklog.store.memory import MemoryStore
from tests.harness.log_records import numbered

TOPIC = "t"
Result = TypeVar("Result")


class KillingStore(DelegatingStore):
    """Kills its process at one write, and notes in a file how many have begun."""

    def __init__(self, inner: ObjectStore, at: int, when: str, tally: Path) -> None:
        """Kill `before` or `after` the write number `at`."""
        super().__init__(inner)
        self._at = at
        self._when = when
        self._tally = tally
        self._writes = 0
        self._lock = Lock()

    def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        return self._write(lambda: self._store.put_if_absent(key, data))

    def put(self, key: str, data: bytes) -> None:
        self._write(lambda: self._store.put(key, data))

    def delete(self, key: str) -> None:
        self._write(lambda: self._store.delete(key))

    def retire(self, key: str) -> None:
        self._write(lambda: self._store.retire(key))

    def _write(self, write: Callable[[], Result]) -> Result:
        with self._lock:
            self._writes += 1
            self._tally.write_text(str(self._writes))
            if self._writes == self._at and self._when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            done = write()
            if self._writes == self._at:
                os.kill(os.getpid(), signal.SIGKILL)
            return done


def do(job: str, log: Log) -> None:
    """Do a job's work on the only partition."""
    if job == "snapshot":
        create_snapshot(log, "made", [TOPIC])
        return
    (work,) = with_pins(work_on([log.topic(TOPIC)]), run(snapshot_records(), log.store))
    if job == "compact":
        compacted_by(CompactJob(log.store.url, force=True))(log, work)
    else:
        work.details.update(unpublished=[], keep_staged=False)  # type: ignore[attr-defined]
        retained_by(RetainJob(log.store.url))(log, work)


def ended(root: str, job: str, at: int, when: str) -> tuple[int, int]:
    """Return how a process that does the job ended (negative: the signal), and its writes."""
    handle, name = tempfile.mkstemp()
    os.close(handle)
    tally = Path(name)
    child = os.fork()
    if child == 0:
        try:
            with Log(KillingStore(FileStore(Path(root), fsync=False), at, when, tally)) as log:
                do(job, log)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    writes = int(tally.read_text() or 0)
    tally.unlink()
    return code, writes


def warm_up() -> None:
    """Load what a job compiles, before there are forks that would each do it."""
    with Log(MemoryStore("warm")) as log:
        log.create_topic(TOPIC, 1, {"cleanup.policy": "compact"})
        for number in range(2):
            log.partition(TOPIC, 0).append([numbered(8 * number, 8)])
        do("compact", log)


if __name__ == "__main__":
    warm_up()
    for line in sys.stdin:
        given_root, given_job, number, moment = line.split()
        print(*ended(given_root, given_job, int(number), moment), flush=True)
