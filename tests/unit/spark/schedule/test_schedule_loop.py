"""Applications that run a schedule on one log: who runs what, how often, and what remains of it."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event, Lock
from typing import Any

import pytest

from sparklog.cluster.log import Log, open_log
from sparklog.core.clock import ManualClock
from sparklog.log.effects import run
from sparklog.spark.jobs.job import MENDED
from sparklog.spark.jobs.progress import JobProgress
from sparklog.spark.jobs.report import UpkeepReport
from sparklog.spark.schedule.claims import RunClaim, ScheduleClaims, newest, take
from sparklog.spark.schedule.cron import parse_cron
from sparklog.spark.schedule.history import (
    DONE,
    FAILED,
    LOST,
    REPAIRED,
    RUNNING,
    TERMINATED,
    TIME_MAX_MS,
    JobRun,
    read_history,
    write_history,
)
from sparklog.spark.schedule.run import (
    ENDED_WITH_APPLICATION,
    LOG_BYTES_MAX,
    PoolSession,
    RunEnd,
    RunLog,
    ending_of,
    run_body,
)
from sparklog.spark.schedule.runner import CronTimer, ScheduledJobs
from sparklog.spark.schedule.schedule import (
    AGAIN,
    BY_HAND,
    CATCH_UP,
    FIRST_ATTEMPT,
    SEEN,
    SILENT_MS,
    Schedule,
    ScheduledJob,
)
from tests.harness.waiting import eventually

HOUR_MS = 3_600_000
NOON_MS = 1_795_262_400_000
NOON = "2026-11-21 12:00:00"
DAY_MS = 24 * HOUR_MS


def nightly(name: str = "nightly", kind: str = "retain") -> ScheduledJob:
    return ScheduledJob(name, kind, parse_cron("0 6 * * *"), catch_up_ms=DAY_MS)


class NoSession(PoolSession):
    """A stand-in for a job's session, which remembers that it was cancelled."""

    def __init__(self) -> None:
        self.cancelled = Event()

    def __call__(self, conf: Mapping[str, str]) -> Any:
        raise AssertionError("these jobs need no Spark")

    def cancel(self) -> None:
        self.cancelled.set()


Work = Callable[[str, NoSession], RunEnd]


class Application:
    """One application with a schedule; its jobs do what the test says."""

    def __init__(self, log: Log, clock: ManualClock, name: str = "host:1") -> None:
        self.log = log
        self.clock = clock
        self.events: list[Mapping[str, Any]] = []
        self.looking = ScheduleClaims(log, name, self.events.append, clock=clock)
        self.sessions: list[NoSession] = []
        self.began: list[JobRun] = []
        self.jobs: ScheduledJobs | None = None
        self.ended: list[JobRun] = []
        self._lock = Lock()

    def serve(self, *jobs: ScheduledJob, work: Work) -> ScheduledJobs:
        """Begin to run jobs."""
        made = self.scheduled(*jobs, work=work)
        made.start()
        return made

    def scheduled(self, *jobs: ScheduledJob, work: Work, at_once: int = 1) -> ScheduledJobs:
        """Return what runs jobs, before it begins."""

        def open_run(one: JobRun) -> NoSession:
            self.sessions.append(NoSession())
            return self.sessions[-1]

        def body(
            kind: str, words: Sequence[str], session: Any, progress: JobProgress, _: object
        ) -> RunEnd:
            assert words[:2] == ["--root", "file:///log"]
            progress.say(f"begins {kind}")
            logging.getLogger("sparklog.test").warning("an object is missing. key=%s", "a")
            return work(kind, session)

        self.jobs = ScheduledJobs(
            Schedule("test", jobs, at_once), "file:///log", self.looking, open_run,
            began=self.began.append, ended=self.ended.append, body=body,
        )  # fmt: skip
        return self.jobs


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """An empty log."""
    with open_log(str(tmp_path / "log")) as opened:
        yield opened


@pytest.fixture
def clock() -> ManualClock:
    """Noon, until a test lets time pass."""
    return ManualClock(NOON_MS)


@pytest.fixture
def start(log: Log, clock: ManualClock) -> Iterator[Callable[[str], Application]]:
    """Make applications on the log; they end with the test."""
    made: list[Application] = []

    def make(name: str) -> Application:
        made.append(Application(log, clock, name))
        return made[-1]

    yield make
    for one in made:
        if one.jobs is not None:
            assert one.jobs.stop(10)


Start = Callable[[str], Application]


def known_since(log: Log, at_ms: int, *jobs: str) -> None:
    """Let jobs be known since a time."""
    for job in jobs:
        assert run(take(RunClaim(job, at_ms, SEEN, claimed_ms=at_ms)), log.store)


def logged(*lines: str) -> RunLog:
    log = RunLog(ManualClock(NOON_MS))
    for line in lines:
        log.write(f"{line}\n")
    return log


def good(kind: str, session: NoSession) -> RunEnd:
    return RunEnd(DONE, 0, f"{kind} has run", {"rows": 3, "size_bytes": 30})


def test_a_job_that_was_never_seen_has_missed_nothing(log: Log, start: Start) -> None:
    application = start("host:1")
    application.serve(nightly(), work=good)
    claim = eventually(lambda: run(newest("nightly"), log.store), "the job is known")
    assert (claim.attempt, claim.scheduled_ms) == (SEEN, NOON_MS)
    assert application.began == []
    known = eventually(lambda: read_history(log).jobs, "the job is introduced")
    assert known["nightly"].cron == "0 6 * * *"


def test_missed_run_is_made_up_for_once_by_one_of_two_applications(
    log: Log, clock: ManualClock, start: Start
) -> None:
    known_since(log, NOON_MS - 3 * DAY_MS, "nightly")
    both = [start("host:1"), start("host:2")]
    for application in both:
        application.serve(nightly(), work=good)
    eventually(lambda: both[0].ended + both[1].ended, "one of them has run it")
    for application in both:
        assert application.jobs is not None
        application.jobs.ring("nightly")
    for application in both:
        assert application.jobs is not None
        assert application.jobs.stop(10)
    (one,) = both[0].ended + both[1].ended
    assert (one.trigger, one.outcome, one.exit_code) == (CATCH_UP, DONE, 0)
    assert one.scheduled_ms == NOON_MS - 6 * HOUR_MS
    assert (one.records_before, one.bytes_after, one.message) == (3, 30, "retain has run")
    assert [line[len(NOON) + 1 :] for line in one.log.splitlines()] == [
        "begins retain", "warning: an object is missing. key=a"
    ]  # fmt: skip
    assert read_history(log).newest_first() == [one]
    # Started again it has nothing to make up for, until the next morning.
    later = start("host:3")
    assert later.looking.look(nightly()) is None
    clock.sleep_s(18 * 3600)
    found = later.looking.look(nightly())
    assert found is not None
    assert found.scheduled_ms == NOON_MS + 18 * HOUR_MS


def test_log_of_a_run_keeps_the_last_lines_within_its_bounds() -> None:
    log = logged("first", *(f"line {number}" for number in range(1000)), "x" * 100_000)
    lines = log.text.splitlines()
    assert (lines[0], lines[-1]) == (f"{NOON} line 895", f"{NOON} {'x' * 1024}")
    assert len(log.text.encode()) <= LOG_BYTES_MAX
    assert log.line == "x" * 100_000
    assert logged("\r \n", "a\rb").text.splitlines() == [f"{NOON} a", f"{NOON} b"]


def test_a_job_that_fails_harms_no_other(log: Log, start: Start) -> None:
    known_since(log, NOON_MS - DAY_MS, "bad", "worse", "good")

    def work(kind: str, session: NoSession) -> RunEnd:
        if kind == "compact":
            return RunEnd(FAILED, 1, "no")
        if kind == "verify":
            raise RuntimeError("a defect of the loop itself")
        return good(kind, session)

    application = start("host:1")
    application.serve(
        nightly("bad", "compact"), nightly("worse", "verify"), nightly("good"), work=work
    )
    eventually(lambda: len(application.ended) == 2, "both have ended")
    runs = {one.job: one for one in read_history(log).newest_first()}
    assert (runs["bad"].outcome, runs["bad"].exit_code) == (FAILED, 1)
    assert runs["good"].outcome == DONE


def test_a_job_runs_once_at_a_time_and_one_after_the_other(log: Log, start: Start) -> None:
    known_since(log, NOON_MS - DAY_MS, "a", "b")
    go_on, under_way, most = Event(), [], []

    def work(kind: str, session: NoSession) -> RunEnd:
        under_way.append(kind)
        most.append(len(under_way))
        assert go_on.wait(30)
        under_way.remove(kind)
        return good(kind, session)

    application = start("host:1")
    jobs = application.serve(nightly("a"), nightly("b", "verify"), work=work)
    eventually(lambda: under_way, "one runs")
    jobs.ring("a")
    jobs.ring("b")
    go_on.set()
    eventually(lambda: len(application.ended) == 2, "both have run")
    assert most == [1, 1]


def test_shutdown_ends_a_run_early_and_reports_it(log: Log, start: Start) -> None:
    known_since(log, NOON_MS - DAY_MS, "nightly")

    def work(kind: str, session: NoSession) -> RunEnd:
        assert session.cancelled.wait(30)
        return RunEnd(TERMINATED, 143, "ended with the application")

    application = start("host:1")
    jobs = application.serve(nightly(), work=work)
    eventually(lambda: application.began, "it runs")
    assert jobs.stop(10)
    (one,) = read_history(log).newest_first()
    assert (one.outcome, one.exit_code) == (TERMINATED, 143)
    # It was asked to end: it is not tried again.
    assert start("host:2").looking.look(nightly()) is None


def test_slot_is_reserved_for_a_requested_run(log: Log, start: Start) -> None:
    known_since(log, NOON_MS - DAY_MS, "nightly")
    disabled = replace(nightly("off", "verify"), enabled=False)
    under_way, go_on = [], Event()

    def work(kind: str, session: NoSession) -> RunEnd:
        under_way.append(kind)
        assert go_on.wait(30)
        under_way.remove(kind)
        return good(kind, session)

    application = start("host:1")
    jobs = application.scheduled(nightly(), disabled, work=work)
    assert not jobs.reserve("none", "r0"), "no such job"
    assert jobs.reserve("off", "r1"), "a disabled job runs when it is asked for"
    assert not jobs.reserve("off", "r2"), "two would be one too many"
    jobs.release("r1")
    assert jobs.reserve("off", "r3")
    jobs.start()  # the other job is due, and waits for the place
    jobs.run_asked("off", "r3")
    eventually(lambda: under_way, "what was asked for runs")
    assert not jobs.reserve("off", "r4")
    assert under_way == ["verify"]
    go_on.set()
    eventually(lambda: len(application.ended) == 2, "both have run, one after the other")
    assert [(one.job, one.trigger) for one in application.ended] == [
        ("off", BY_HAND), ("nightly", CATCH_UP),
    ]  # fmt: skip
    assert application.ended[0].run_id == "r3"
    assert eventually(lambda: jobs.reserve("off", "r5"), "the place is free again")


def test_job_due_during_a_reservation_runs_after_its_release(log: Log, start: Start) -> None:
    known_since(log, NOON_MS - DAY_MS, "nightly")
    application = start("host:1")
    jobs = application.scheduled(nightly(), work=good)
    assert jobs.reserve("nightly", "r1")
    jobs.start()
    assert not application.began
    jobs.release("r1")
    eventually(lambda: application.ended, "it runs")


def test_run_accepted_during_shutdown_is_reported_as_ended(log: Log, start: Start) -> None:
    def work(kind: str, session: NoSession) -> RunEnd:
        assert session.cancelled.wait(30)
        jobs.run_asked("nightly", "r2")  # as the listener does, for which the word comes back now
        return ENDED_WITH_APPLICATION

    application = start("host:1")
    jobs = application.scheduled(nightly(), work=work, at_once=2)
    assert jobs.reserve("nightly", "r1")
    assert jobs.reserve("nightly", "r2")
    jobs.run_asked("nightly", "r1")
    jobs.start()
    eventually(lambda: application.began, "one runs")
    assert jobs.stop(10)
    jobs.release("r1")
    assert not jobs.reserve("nightly", "r3"), "nothing is taken any more"
    runs = {one.run_id: one for one in read_history(log).newest_first()}
    assert sorted(runs) == ["r1", "r2"]
    for one in runs.values():
        assert (one.outcome, one.exit_code) == (TERMINATED, 143)
        assert one.message == "ended with the application"
    assert [one.run_id for one in application.began] == ["r1"]
    assert {one.run_id for one in application.ended} == {"r1", "r2"}


def test_queued_run_at_shutdown_is_reported_as_ended(log: Log, start: Start) -> None:
    application = start("host:1")
    jobs = application.scheduled(nightly(), work=good)
    assert jobs.reserve("nightly", "r1")
    jobs.run_asked("nightly", "r1")
    jobs.stop(0)  # before a thread has looked
    jobs.start()
    one = eventually(lambda: read_history(log).runs.get("r1"), "its end is written")
    assert (one.outcome, one.exit_code) == (TERMINATED, 143)
    assert application.began == []


def test_silent_run_is_lost_and_repeated_once(log: Log, clock: ManualClock, start: Start) -> None:
    known_since(log, NOON_MS - DAY_MS, "nightly")
    dead, heir, third = start("host:1"), start("host:2"), start("host:3")
    first = dead.looking.look(nightly())
    assert first is not None
    dead.looking.begin(first)
    assert heir.looking.look(nightly()) is None
    # It says when to look again: once the other has been silent for long enough.
    assert heir.looking.again_ms(nightly()) == NOON_MS + SILENT_MS + 1000
    clock.sleep_s(200)
    dead.looking.go_on(first, logged("3 records"))
    clock.sleep_s(200)
    assert heir.looking.look(nightly()) is None
    clock.sleep_s(200)
    second = heir.looking.look(nightly())
    assert second is not None
    assert (second.trigger, second.scheduled_ms) == (AGAIN, first.scheduled_ms)
    heir.looking.begin(second)
    assert third.looking.look(nightly()) is None
    clock.sleep_s(1000)
    assert third.looking.look(nightly()) is None
    outcomes = {one.run_id: one.outcome for one in read_history(log).newest_first()}
    assert outcomes == {first.run_id: LOST, second.run_id: LOST}


def test_a_heartbeat_ahead_of_the_clock_does_not_count(
    log: Log, clock: ManualClock, start: Start
) -> None:
    known_since(log, NOON_MS - DAY_MS, "nightly")
    dead, heir = start("host:1"), start("host:2")
    first = dead.looking.look(nightly())
    assert first is not None
    year_9999 = replace(first, heard_ms=TIME_MAX_MS)
    write_history(log, year_9999, patience_s=0)
    assert heir.looking.look(nightly()) is None, "its claim is fresh"
    assert heir.looking.again_ms(nightly()) == NOON_MS + SILENT_MS + 1000
    clock.sleep_s(SILENT_MS / 1000)
    second = heir.looking.look(nightly())
    assert second is not None
    assert second.trigger == AGAIN


def test_a_claim_ahead_of_the_clock_does_not_count(
    log: Log, clock: ManualClock, start: Start
) -> None:
    ahead = RunClaim("nightly", NOON_MS - DAY_MS, FIRST_ATTEMPT, "r1", NOON_MS + DAY_MS, "host:1")
    assert run(take(ahead), log.store)
    found = start("host:2").looking.look(nightly())
    assert found is not None


def test_worker_continues_after_an_unexpected_error(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    application = start("host:1")
    jobs = application.scheduled(nightly("odd"), nightly(), work=good)
    looked: list[str] = []

    def look(job: ScheduledJob) -> JobRun | None:
        looked.append(job.name)
        raise RuntimeError("the store is odd")

    def ring_at(alarms: CronTimer, name: str, at_ms: int) -> None:
        raise OverflowError("a time that no calendar has")

    monkeypatch.setattr(CronTimer, "ring_at", ring_at)
    application.looking.look = look  # type: ignore[method-assign]
    jobs.start()
    said = "a worker of jobs failed and goes on wanted="
    eventually(lambda: f"{said}odd" in caplog.text, "it says so")
    eventually(lambda: f"{said}nightly" in caplog.text, "it works on")
    assert looked[:2] == ["odd", "nightly"]


def test_due_time_is_dropped_while_another_application_runs_the_job(
    clock: ManualClock, log: Log, start: Start
) -> None:
    known_since(log, NOON_MS - DAY_MS, "hourly")
    hourly = ScheduledJob("hourly", "retain", parse_cron("0 * * * *"), catch_up_ms=DAY_MS)
    one, other = start("host:1"), start("host:2")
    first = one.looking.look(hourly)
    assert first is not None
    one.looking.begin(first)
    clock.sleep_s(3600 - 60)
    one.looking.go_on(first, logged("nearly done"))
    clock.sleep_s(60)
    assert other.looking.look(hourly) is None
    one.looking.end(first, good("retain", NoSession()))
    found = other.looking.look(hourly)
    assert found is not None
    assert found.scheduled_ms == NOON_MS + HOUR_MS


def test_error_of_a_job_body_is_its_outcome() -> None:
    said = io.StringIO()
    progress = JobProgress(said)
    words = ["--root", "file:///nowhere/at/all", "--topic", "none"]
    failed = run_body("retain", words, NoSession(), progress)
    assert (failed.outcome, failed.exit_code) == (FAILED, 1)
    assert "no log under this root" in failed.message
    assert "Traceback" in said.getvalue()
    ended = run_body("retain", words, NoSession(), progress, lambda: True)
    assert (ended.outcome, ended.exit_code) == (TERMINATED, 143)
    assert RUNNING not in (failed.outcome, ended.outcome)


def test_run_that_repaired_damage_has_not_failed() -> None:
    ending = ending_of(UpkeepReport("verified", 1.0, (), {}, done_code=MENDED))
    assert (ending.outcome, ending.exit_code) == (REPAIRED, MENDED)
