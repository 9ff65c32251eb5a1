"""When a job is due: once per time, once for all that was missed, once more after a silence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparklog.spark.schedule.cron import parse_cron
from sparklog.spark.schedule.schedule import (
    AGAIN,
    CATCH_UP,
    ON_SCHEDULE,
    ON_TIME_MS,
    SEEN,
    SILENT_MS,
    DueRun,
    LastRun,
    ScheduledJob,
    turn_of,
)

HOUR_MS = 3_600_000
NOON_MS = 1_795_262_400_000
JOB = ScheduledJob("nightly", "retain", parse_cron("0 * * * *"), catch_up_ms=5 * HOUR_MS)


def last(hours_ago: float, **more: int | bool) -> LastRun:
    at_ms = NOON_MS - round(hours_ago * HOUR_MS)
    return replace(LastRun(at_ms, attempt=1, heard_ms=at_ms, ended=True), **more)  # type: ignore[arg-type]


def test_a_time_that_comes_is_due_and_is_not_when_it_was_claimed() -> None:
    assert turn_of(JOB, last(1), NOON_MS - 1) is None
    assert turn_of(JOB, last(1), NOON_MS) == DueRun(NOON_MS, 1, ON_SCHEDULE)
    assert turn_of(JOB, last(1), NOON_MS + ON_TIME_MS) == DueRun(NOON_MS, 1, ON_SCHEDULE)
    assert turn_of(JOB, last(0), NOON_MS) is None


def test_missed_times_are_made_up_for_by_one_run() -> None:
    now_ms = NOON_MS + HOUR_MS // 2
    assert turn_of(JOB, last(100), now_ms) == DueRun(NOON_MS, 1, CATCH_UP)
    assert turn_of(JOB, last(0), now_ms) is None


@pytest.mark.parametrize("attempt", [SEEN, 1, 2])
def test_run_missed_too_long_ago_is_dropped(attempt: int) -> None:
    yearly = replace(JOB, cron=parse_cron("0 6 * * *"))
    assert turn_of(yearly, last(30, attempt=attempt), NOON_MS) is None
    early = turn_of(yearly, last(30, attempt=attempt), NOON_MS - 2 * HOUR_MS)
    assert early == DueRun(NOON_MS - 6 * HOUR_MS, 1, CATCH_UP)


def test_job_without_catch_up_runs_only_on_time() -> None:
    never = replace(JOB, catch_up_ms=0)
    assert turn_of(never, last(5), NOON_MS + 30_000) == DueRun(NOON_MS, 1, ON_SCHEDULE)
    assert turn_of(never, last(5), NOON_MS + ON_TIME_MS + 1) is None


def test_a_run_that_fell_silent_is_repeated_once() -> None:
    now_ms = NOON_MS + SILENT_MS
    running = last(0, ended=False)
    assert turn_of(JOB, running, now_ms - 1) is None
    assert turn_of(JOB, running, now_ms) == DueRun(NOON_MS, 2, AGAIN)
    assert turn_of(JOB, last(0, ended=False, heard_ms=now_ms - 1), now_ms) is None
    assert turn_of(JOB, last(0, ended=False, attempt=2), now_ms + HOUR_MS // 2) is None
    assert turn_of(JOB, last(0, ended=True), now_ms) is None
    assert turn_of(JOB, last(0, ended=False, attempt=SEEN), now_ms) is None


def test_newer_time_precedes_the_repetition_of_an_old_one() -> None:
    assert turn_of(JOB, last(1, ended=False), NOON_MS) == DueRun(NOON_MS, 1, ON_SCHEDULE)
