"""Running a schedule beside brokers: an alarm clock, a queue, and few threads that run jobs.

An alarm clock wakes the runner when a job may be due; `schedule` decides from the log's claims
which jobs are due. So a wrong or missing alarm costs time and never a run too many. If a job still
runs or waits when its time comes again, the runner skips that time.

All threads are daemons: a job that hangs does not keep the application from ending.

The alarm clock is a thread that rings when a cron expression's next time comes.

As many jobs of one application run at once as there are places.

A job that the runner checks has a place, so that it can begin if it is due. A requested run has
one from before the application answers that it takes it (`listener`). So it begins at once, and a
job whose time comes meanwhile waits. The places are pure but for a lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from queue import SimpleQueue
from threading import Condition, Event, Lock, Thread
from typing import Final

from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.spark.jobs.job import OpenSession
from sparklog.spark.jobs.progress import JobProgress
from sparklog.spark.schedule.claims import ScheduleClaims, going_on
from sparklog.spark.schedule.cron import Cron
from sparklog.spark.schedule.history import JobRun
from sparklog.spark.schedule.run import (
    ENDED_WITH_APPLICATION,
    PoolSession,
    RunEnd,
    RunLog,
    logged_warnings,
    run_body,
)
from sparklog.spark.schedule.schedule import Schedule, ScheduledJob


class RunSlots:
    """The jobs and runs that have a place, and the jobs that wait for one. For threads."""

    def __init__(self, count: int) -> None:
        """Begin with `count` places, all free."""
        self._count = count
        self._lock = Lock()
        self._jobs: set[str] = set()
        self._runs: set[str] = set()
        self._waiting: list[str] = []

    def take(self, job: str) -> bool:
        """Give a job a place; returns False if it has to wait until one is free."""
        with self._lock:
            if not self._has_capacity():
                self._waiting.append(job)
                return False
            self._jobs.add(job)
            return True

    def reserve(self, run_id: str) -> bool:
        """Keep a place for a requested run; returns False if none is free."""
        with self._lock:
            if not self._has_capacity():
                return False
            self._runs.add(run_id)
            return True

    def leave(self, job: str) -> list[str]:
        """Free a job's place; returns the jobs that waited for one: let them try again."""
        return self._freed(self._jobs, job)

    def release(self, run_id: str) -> list[str]:
        """Free a run's place; returns as `leave`."""
        return self._freed(self._runs, run_id)

    def _has_capacity(self) -> bool:
        return len(self._jobs) + len(self._runs) < self._count

    def _freed(self, places: set[str], who: str) -> list[str]:
        with self._lock:
            places.discard(who)
            waited, self._waiting = self._waiting, []
            return waited


LOOK_S: Final = 30.0
"""The wall clock is read at least this often: it may be set, and a machine may sleep."""
MS_PER_S: Final = 1000.0


class CronTimer:
    """Rings for jobs in a thread of its own: an alarm that is late rings once, however late."""

    def __init__(self, ring: Callable[[str], None], clock: Clock = SYSTEM_CLOCK) -> None:
        """Ring by calling `ring` with a job's name; nothing happens before `start`."""
        self._ring = ring
        self._clock = clock
        self._changed = Condition()
        self._crons: dict[str, Cron] = {}
        self._times: dict[str, int] = {}
        """When each job's own time comes next."""
        self._again: dict[str, int] = {}
        """When to ring once more, beside a job's own times."""
        self._seen_ms = 0
        self._stopped = False
        self._thread = Thread(target=self._run, name="sparklog-job-alarms", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Ring no more; an alarm that rings now is not waited for."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def ring_by(self, name: str, cron: Cron) -> None:
        """Ring for a job whenever its time comes."""
        with self._changed:
            self._crons[name] = cron
            self._plan(name, self._clock.now_ms())
            self._changed.notify()

    def ring_at(self, name: str, at_ms: int) -> None:
        """Ring for a job once more, and no more at what was said before."""
        with self._changed:
            self._again[name] = at_ms
            self._changed.notify()

    def due(self, now_ms: int) -> list[str]:
        """Return the jobs to ring for now, each once, and plan their next times."""
        with self._changed:
            if now_ms < self._seen_ms:  # the clock was set back
                for name in self._crons:
                    self._plan(name, now_ms)
            self._seen_ms = now_ms
            own = [name for name, at_ms in self._times.items() if at_ms <= now_ms]
            again = [name for name, at_ms in self._again.items() if at_ms <= now_ms]
            for name in again:
                del self._again[name]
            for name in own:
                self._plan(name, now_ms)
        return list(dict.fromkeys([*own, *again]))

    def _plan(self, name: str, now_ms: int) -> None:
        next_ms = self._crons[name].next_ms(now_ms)
        if next_ms is None:
            self._times.pop(name, None)
        else:
            self._times[name] = next_ms

    def _run(self) -> None:
        while True:
            for name in self.due(self._clock.now_ms()):
                self._ring(name)
            with self._changed:
                if self._stopped:
                    return
                self._changed.wait(self._wait_s(self._clock.now_ms()))

    def _wait_s(self, now_ms: int) -> float:
        times = [*self._times.values(), *self._again.values()]
        soonest_s = (min(times) - now_ms) / MS_PER_S if times else LOOK_S
        return min(max(soonest_s, 0.0), LOOK_S)


logger = logging.getLogger(__name__)

CANCEL_EVERY_S: Final = 0.5
TRIES_AGAIN_S: Final = 30.0
"""After the store or the history did not answer."""

OpenRun = Callable[[JobRun], PoolSession]
RunBody = Callable[[str, list[str], OpenSession, JobProgress, Callable[[], bool]], RunEnd]


class ScheduledJobs:
    """Runs the jobs of a schedule until it is stopped."""

    def __init__(
        self,
        schedule: Schedule,
        root: str,
        looking: ScheduleClaims,
        open_run: OpenRun,
        *,
        ended: Callable[[JobRun], None] = lambda run: None,
        began: Callable[[JobRun], None] = lambda run: None,
        body: RunBody = run_body,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Run `schedule` on the log under `root`; nothing happens before `start`."""
        self._all = {job.name: job for job in schedule.jobs}
        self._jobs = {name: job for name, job in self._all.items() if job.enabled}
        self._schedule = schedule
        self._root = root
        self._looking = looking
        self._open_run = open_run
        self._ended = ended
        self._began = began
        self._body = body
        self._clock = clock
        self._alarms = CronTimer(self.ring)
        self._waiting: SimpleQueue[str | JobRun | None] = SimpleQueue()
        """Names of jobs to check, and requested runs; None: a thread's end."""
        self._lock = Lock()
        self._busy: set[str] = set()
        """Jobs that wait in the queue or for a place, or run."""
        self._places = RunSlots(schedule.at_once)
        self._sessions: dict[str, PoolSession] = {}
        self._stopping = Event()
        self._workers: list[Thread] = []

    def start(self) -> None:
        """Begin: what was missed first, then what comes. Returns at once."""
        for name, job in self._jobs.items():
            self._alarms.ring_by(name, job.cron)
        self._alarms.start()
        for number in range(self._schedule.at_once):
            worker = Thread(target=self._work, name=f"sparklog-jobs-{number}", daemon=True)
            self._workers.append(worker)
        introducing = Thread(target=self._introduce, name="sparklog-jobs", daemon=True)
        introducing.start()
        for worker in self._workers:
            worker.start()
        for name in self._jobs:
            self.ring(name)

    def ring(self, name: str) -> None:
        """Look soon whether a job is due, unless it waits or runs already."""
        with self._lock:
            if name in self._busy or self._stopping.is_set():
                return
            self._busy.add(name)
        self._waiting.put(name)

    def reserve(self, name: str, run_id: str) -> bool:
        """Keep a place for a run of a job, an enabled one or not; returns False if none is free."""
        may = name in self._all and not self._stopping.is_set()
        return may and self._places.reserve(run_id)

    def release(self, run_id: str) -> None:
        """Keep a run's place no longer."""
        self._look_soon(self._places.release(run_id))

    def run_asked(self, name: str, run_id: str) -> None:
        """Run a job in the place that is kept for it, beside its own times. Returns at once."""
        one = self._looking.by_hand(self._all[name], run_id)
        with self._lock:  # what comes before the end is found in the queue
            over = self._stopping.is_set()
            if not over:
                self._waiting.put(one)
        if over:
            self._cut_off(one)

    def cut_short(self) -> None:
        """Cancel what the runs do in Spark now; such a run has failed."""
        with self._lock:
            sessions = list(self._sessions.values())
        for session in sessions:
            session.cancel()

    def stop(self, timeout_s: float) -> bool:
        """Begin no run, end those that run; returns whether all have ended in time."""
        with self._lock:
            self._stopping.set()
        self._alarms.stop()
        for _ in self._workers:
            self._waiting.put(None)
        deadline_s = self._clock.monotonic_s() + timeout_s
        while any(worker.is_alive() for worker in self._workers):
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0:
                return False
            with self._lock:
                sessions = list(self._sessions.values())
            for session in sessions:
                session.end()  # again and again: a run may be between two of Spark's jobs
            for worker in self._workers:
                worker.join(min(CANCEL_EVERY_S, left_s) / len(self._workers))
        return True

    def _introduce(self) -> None:
        for job in self._schedule.jobs:
            if not self._stopping.is_set():
                try:
                    self._looking.introduce(job)
                except Exception as error:  # the next job is introduced all the same
                    logger.warning("a job is not introduced job=%s error=%s", job.name, error)

    def _work(self) -> None:
        while (wanted := self._waiting.get()) is not None:
            try:
                if isinstance(wanted, JobRun):
                    self._work_on_asked(wanted)
                elif not self._stopping.is_set() and self._places.take(wanted):
                    self._work_on(wanted)
            except Exception:  # a worker that ends would silently end all jobs
                logger.exception("a worker of jobs failed and goes on wanted=%s", wanted)

    def _work_on(self, name: str) -> None:
        again_ms: int | None = None
        try:
            again_ms = self._one(self._jobs[name])
        except Exception as error:  # one job's trouble is no other's, nor the brokers'
            logger.warning("a job could not be looked at job=%s error=%s", name, error)
            again_ms = self._clock.now_ms() + round(TRIES_AGAIN_S * 1000)
        finally:
            with self._lock:
                self._busy.discard(name)
            self._look_soon(self._places.leave(name))
        if again_ms is not None and not self._stopping.is_set():
            self._alarms.ring_at(name, again_ms)

    def _work_on_asked(self, run: JobRun) -> None:
        try:
            if self._stopping.is_set():
                self._cut_off(run)
            else:
                self._run(self._all[run.job], run)
        except Exception as error:  # as above
            logger.warning("a job that was asked for has failed job=%s error=%s", run.job, error)
        finally:
            self.release(run.run_id)

    def _cut_off(self, run: JobRun) -> None:
        """Report of a run that it ended with the application before it began: its sender waits."""
        ended = self._looking.end(run, ENDED_WITH_APPLICATION)
        self._ended(ended)
        self._looking.announce(ended)

    def _look_soon(self, names: Iterable[str]) -> None:
        for name in names:
            self._waiting.put(name)

    def _one(self, job: ScheduledJob) -> int | None:
        """Run a job if it is due; return when to look again, beside its own times."""
        self._looking.write_again()
        run = self._looking.look(job)
        if run is None:
            return self._looking.again_ms(job)
        self._run(job, run)
        return None

    def _run(self, job: ScheduledJob, run: JobRun) -> None:
        ended = self._looking.end(run, self._ending_of(job, run))
        self._ended(ended)
        self._looking.announce(ended)

    def _ending_of(self, job: ScheduledJob, run: JobRun) -> RunEnd:
        self._began(run)
        self._looking.begin(run)
        log = RunLog(self._clock)
        session = self._open_run(run)
        with self._lock:
            self._sessions[run.run_id] = session
        try:
            with going_on(self._looking, run, log), logged_warnings(log):
                arguments = job.words(self._root)
                stopping = self._stopping.is_set
                ending = self._body(job.kind, arguments, session, JobProgress(log), stopping)
                return replace(ending, log=log.text)
        finally:
            with self._lock:
                del self._sessions[run.run_id]
