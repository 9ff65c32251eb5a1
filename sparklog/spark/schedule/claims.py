"""Claims: which application runs a job at a time. Source: FORMAT.md 13.

A claim is an object that is created under a name made of job, time and attempt, so only one of many
applications gets it. Clocks play no part: applications whose clocks differ claim the same times.

The module also checks whether a job is due, and keeps the history of its runs.

The shell around `schedule` (decisions), `schedule_claims` and `job_history_log`. Used by threads,
one per run: one thread at a time checks a job, and a requested run of it may go on beside that.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Event, Lock, Thread
from typing import Any, Final

from sparklog.cluster.log import Log
from sparklog.core.bounded_json import parse_json
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.entropy import SYSTEM_ENTROPY, Entropy, new_nonce
from sparklog.core.errors import OutcomeUnknown, SparklogError
from sparklog.log.effects import Program, delete, get, list_after, put, run
from sparklog.log.layout import run_key, run_of_key, runs_prefix
from sparklog.spark.schedule.history import (
    LOST,
    JobHistory,
    JobRun,
    KnownJob,
    read_history,
    write_history,
)
from sparklog.spark.schedule.run import RunEnd, RunLog, amounts_of
from sparklog.spark.schedule.schedule import (
    BY_HAND,
    FIRST_ATTEMPT,
    LAST_ATTEMPT,
    ON_SCHEDULE,
    SEEN,
    SILENT_MS,
    DueRun,
    LastRun,
    ScheduledJob,
    is_recent,
    is_silent,
    turn_of,
)
from sparklog.store.base import PutOutcome

FORMAT_VERSION: Final = 1
TRIES_MAX: Final = 8
"""Number of puts of a claim whose outcome stays unknown."""
KEPT: Final = 20
"""Claims of a job that stay; an application that makes a new one deletes older ones."""


@dataclass(frozen=True, slots=True)
class RunClaim:
    """One run of a job by some application, now or in the past."""

    job: str
    scheduled_ms: int
    attempt: int
    run_id: str = ""
    claimed_ms: int = 0
    application: str = ""
    """Host and process of the application."""

    @property
    def key(self) -> str:
        """Return the object's name."""
        return run_key(self.job, self.scheduled_ms, self.attempt)


def take(claim: RunClaim) -> Program[bool]:
    """Claim a run; returns whether it is ours. One put and one listing.

    Raises:
        OutcomeUnknown: the store does not answer; no application may run it then.
    """
    if not (yield from _created(claim)):
        return False
    # A name is free again once it was deleted; then there are newer ones.
    newer = yield from list_after(runs_prefix(claim.job), claim.key)
    if any(run_of_key(info.key) for info in newer):
        return False
    yield from _drop_old(claim.job)
    return True


def newest(job: str) -> Program[RunClaim | None]:
    """Return the newest claim of a job, or None if it was never seen. A listing and a GET."""
    listed = yield from list_after(runs_prefix(job), "")
    found = [info.key for info in listed if run_of_key(info.key) is not None]
    for key in reversed(found):
        stored = yield from get(key)
        named = run_of_key(key)
        if stored is not None and named is not None:
            return _decoded(stored, *named)
    return None


def _created(claim: RunClaim) -> Program[bool]:
    data = _encoded(claim)
    for _ in range(TRIES_MAX):
        outcome = yield from put(claim.key, data)
        if outcome is PutOutcome.CREATED:
            return True
        stored = yield from get(claim.key)
        if stored is not None:
            # A put that was repeated on the way meets its own object.
            return stored == data
    raise OutcomeUnknown(f"the store does not tell whether a run is claimed. object={claim.key}")


def _drop_old(job: str) -> Program[None]:
    listed = yield from list_after(runs_prefix(job), "")
    found = [info.key for info in listed if run_of_key(info.key) is not None]
    for key in found[:-KEPT]:
        yield from delete(key)


def _encoded(claim: RunClaim) -> bytes:
    document = {
        "format": FORMAT_VERSION,
        "run_id": claim.run_id,
        "claimed": claim.claimed_ms,
        "application": claim.application,
    }
    return json.dumps(document, separators=(",", ":")).encode()


def _decoded(data: bytes, job: str, scheduled_ms: int, attempt: int) -> RunClaim:
    """Return a stored claim; of a damaged one what its name says, which is what matters."""
    try:
        document = parse_json(data, "claim of a run")
        run_id, claimed = str(document["run_id"]), int(document["claimed"])
        application = str(document["application"])
    except (ValueError, KeyError, TypeError):
        return RunClaim(job, scheduled_ms, attempt, claimed_ms=scheduled_ms)
    return RunClaim(job, scheduled_ms, attempt, run_id, claimed, application)


logger = logging.getLogger(__name__)

WRITE_PATIENCE_S: Final = 20.0
"""Longest time of tries to write a history record; leaders move in seconds."""
UNWRITTEN_MAX: Final = 100
HEARTBEAT_S: Final = 60.0

Tell = Callable[[Mapping[str, Any]], None]
"""Takes an event: a JSON object with `event` and `text`. Called from any thread."""


class ScheduleClaims:
    """One application's knowledge of the jobs of its log, and its actions on them."""

    def __init__(
        self,
        log: Log,
        application: str,
        tell: Tell,
        *,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
    ) -> None:
        """Look after jobs of `log` as `application`; events go to `tell`."""
        self._log = log
        self._application = application
        self._tell = tell
        self._clock = clock
        self._entropy = entropy
        self._lock = Lock()
        self._own: dict[str, JobRun] = {}
        """Runs of this application, by id."""
        self._unwritten: dict[str, JobRun] = {}

    def introduce(self, job: ScheduledJob) -> None:
        """Record in the log how a job is scheduled."""
        known = KnownJob.of(job, self._clock.now_ms(), self._application)
        write_history(self._log, known, patience_s=WRITE_PATIENCE_S, clock=self._clock)

    def look(self, job: ScheduledJob) -> JobRun | None:
        """Claim the run that is due, and return it; None when nothing is, or another has it.

        Raises:
            SparklogError: the store does not answer; look again later.
        """
        claim = run(newest(job.name), self._log.store)
        now_ms = self._clock.now_ms()
        if claim is None:
            run(take(RunClaim(job.name, now_ms, SEEN, claimed_ms=now_ms)), self._log.store)
            return None
        turn = turn_of(job, _as_ended(claim), now_ms)
        if turn is None and self._may_be_silent(claim, now_ms):
            turn = self._repeated(job, claim, now_ms)
        if turn is None or self._runs_elsewhere(claim, now_ms):
            return None
        return self._claimed(job, turn, now_ms)

    def again_ms(self, job: ScheduledJob) -> int | None:
        """Return when to look whether a run of another application has fallen silent."""
        claim = run(newest(job.name), self._log.store)
        if claim is None or claim.attempt == SEEN or claim.run_id in self._own:
            return None
        now_ms = self._clock.now_ms()
        last = self._last_known(claim, self._since(claim), now_ms)
        return None if last.ended else max(last.heard_ms + SILENT_MS, now_ms) + 1000

    def by_hand(self, job: ScheduledJob, run_id: str = "") -> JobRun:
        """Return a requested run of a job; nothing is claimed for it."""
        now_ms = self._clock.now_ms()
        run_id = run_id or new_nonce(self._entropy)
        claim = RunClaim(job.name, now_ms, SEEN, run_id, now_ms, self._application)
        return _run_of(claim, job, BY_HAND)

    def begin(self, one: JobRun) -> None:
        """Write that a run begins."""
        self._say(one, f"{one.kind} begins ({one.trigger})")
        self._keep(one)

    def go_on(self, one: JobRun, log: RunLog) -> None:
        """Write that a run goes on, and how far it is."""
        heard_ms = self._clock.now_ms()
        self._keep(replace(one, heard_ms=heard_ms, message=log.line, log=log.text))

    def end(self, one: JobRun, ending: RunEnd) -> JobRun:
        """Write how a run ended, and return that."""
        now_ms = self._clock.now_ms()
        amounts = amounts_of(ending.report)
        ended = replace(
            one,
            heard_ms=now_ms,
            outcome=ending.outcome,
            exit_code=ending.exit_code,
            duration_ms=max(0, now_ms - one.started_ms),
            message=ending.message,
            report=ending.report,
            log=ending.log,
            requests=ending.requests,
            records_before=amounts.records_before,
            records_after=amounts.records_after,
            bytes_before=amounts.bytes_before,
            bytes_after=amounts.bytes_after,
        )
        self._keep(ended)
        return ended

    def announce(self, ended: JobRun) -> None:
        """Report how a run ended."""
        self._say(ended, f"{ended.outcome}: {ended.message}")

    def write_again(self) -> None:
        """Write what could not be written before."""
        with self._lock:
            unwritten = list(self._unwritten.values())
        for one in unwritten:
            self._keep(one)

    def _may_be_silent(self, claim: RunClaim, now_ms: int) -> bool:
        own = claim.run_id in self._own or claim.attempt == SEEN
        return not own and not is_recent(claim.claimed_ms, now_ms)

    def _runs_elsewhere(self, claim: RunClaim, now_ms: int) -> bool:
        """Return whether another application still runs the job since a time before."""
        if claim.run_id in self._own or claim.attempt == SEEN:
            return False
        last = self._last_known(claim, self._since(claim), now_ms)
        return not last.ended and not is_silent(last, now_ms)

    def _repeated(self, job: ScheduledJob, claim: RunClaim, now_ms: int) -> DueRun | None:
        history = self._since(claim)
        last = self._last_known(claim, history, now_ms)
        if not is_silent(last, now_ms):
            return None
        lost = history.runs.get(claim.run_id) or _run_of(claim, job, ON_SCHEDULE)
        if claim.attempt >= FIRST_ATTEMPT:
            self._keep(
                replace(lost, outcome=LOST, message="its application was not heard of again")
            )
        return turn_of(job, last, now_ms) if claim.attempt < LAST_ATTEMPT else None

    def _since(self, claim: RunClaim) -> JobHistory:
        return read_history(self._log, claim.claimed_ms)

    def _last_known(self, claim: RunClaim, history: JobHistory, now_ms: int) -> LastRun:
        known = history.runs.get(claim.run_id)
        times_ms = (claim.claimed_ms, known.heard_ms if known is not None else 0)
        heard_ms = max((t for t in times_ms if t < now_ms + SILENT_MS), default=0)
        ended = known is not None and known.ended
        return LastRun(claim.scheduled_ms, claim.attempt, heard_ms, ended)

    def _claimed(self, job: ScheduledJob, turn: DueRun, now_ms: int) -> JobRun | None:
        claim = RunClaim(
            job.name, turn.scheduled_ms, turn.attempt, new_nonce(self._entropy), now_ms,
            self._application,
        )  # fmt: skip
        if not run(take(claim), self._log.store):
            return None
        one = _run_of(claim, job, turn.trigger)
        with self._lock:
            self._own[one.run_id] = one
        return one

    def _keep(self, one: JobRun) -> None:
        """Write a record of a run, or remember to: the history is no reason to fail a run."""
        try:
            write_history(self._log, one, patience_s=WRITE_PATIENCE_S, clock=self._clock)
        except SparklogError as error:
            logger.warning("a run's history is not written yet run=%s error=%s", one.run_id, error)
            with self._lock:
                self._unwritten[one.run_id] = one
                while len(self._unwritten) > UNWRITTEN_MAX:
                    del self._unwritten[next(iter(self._unwritten))]
        else:
            with self._lock:
                self._unwritten.pop(one.run_id, None)

    def _say(self, one: JobRun, text: str) -> None:
        self._tell(
            {
                "event": "job",
                "job": one.job,
                "run_id": one.run_id,
                "outcome": one.outcome,
                "trigger": one.trigger,
                "exit_code": one.exit_code,
                "duration_ms": one.duration_ms,
                "text": f"job {one.job}: {text}",
            }
        )


@contextmanager
def going_on(looking: ScheduleClaims, one: JobRun, log: RunLog) -> Iterator[None]:
    """Write once a minute that a run goes on, and its log so far, while the block runs."""
    over = Event()

    def beat() -> None:
        while not over.wait(HEARTBEAT_S):
            try:
                looking.go_on(one, log)
            except Exception:  # one missed heartbeat is no reason to seem dead
                logger.exception("a job's heartbeat failed run=%s", one.run_id)

    thread = Thread(target=beat, name="sparklog-jobs-heart", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()  # what it writes must not come after the end


def _as_ended(claim: RunClaim) -> LastRun:
    return LastRun(claim.scheduled_ms, claim.attempt, claim.claimed_ms, ended=True)


def _run_of(claim: RunClaim, job: ScheduledJob, trigger: str) -> JobRun:
    return JobRun(
        run_id=claim.run_id,
        job=job.name,
        kind=job.kind,
        trigger=trigger,
        scheduled_ms=claim.scheduled_ms,
        started_ms=claim.claimed_ms,
        heard_ms=claim.claimed_ms,
        application=claim.application,
    )
