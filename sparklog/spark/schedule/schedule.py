"""Schedule: pure decisions when an upkeep job is due, from claims and the history of runs.

A job has times, by its cron expression. An application that runs it at a time claims that time in
the log first (`claims`). So the last claim shows what is still to be done:

  SCHEDULE-1: at most one run per time and attempt, however many applications look
  SCHEDULE-2: one run makes up for times that passed while no application looked, at the newest of
      them, if that is not older than `catch_up_ms`
  SCHEDULE-3: times that pass while the job itself runs are skipped
  SCHEDULE-4: a run that fell silent (its application was killed) is tried once more, and only once

Times are milliseconds since the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sparklog.spark.schedule.cron import Cron

ON_TIME_MS: Final = 60_000
"""A run that begins this late is on time; later it is said to be made up for."""
SILENT_MS: Final = 5 * 60_000
"""A run records once a minute in its history that it goes on; one that has not for so long is
dead.
"""
FIRST_ATTEMPT: Final = 1
LAST_ATTEMPT: Final = 2
SEEN: Final = 0
"""The attempt of a claim that no run belongs to: since then the job is known."""

ON_SCHEDULE: Final = "schedule"
CATCH_UP: Final = "catch-up"
AGAIN: Final = "again"
BY_HAND: Final = "by hand"


@dataclass(frozen=True, slots=True)
class ScheduledJob:
    """One job of a schedule."""

    name: str
    kind: str
    """One of `jobs_table.KINDS`."""
    cron: Cron
    time_zone: str = "UTC"
    arguments: tuple[str, ...] = ()
    """As on the job's command line, without what says which log."""
    enabled: bool = True
    catch_up_ms: int = 0

    def words(self, root: str) -> list[str]:
        """Return the job's command line for a log."""
        return ["--root", root, *self.arguments]


@dataclass(frozen=True, slots=True)
class Schedule:
    """All jobs of one file."""

    source: str
    jobs: tuple[ScheduledJob, ...]
    at_once: int = 1
    """Number of jobs that one application runs at a time."""

    def has(self, kind: str) -> bool:
        """Return whether a job of a kind is to run."""
        return any(job.enabled and job.kind == kind for job in self.jobs)


@dataclass(frozen=True, slots=True)
class DueRun:
    """A time at which a job is to run."""

    scheduled_ms: int
    attempt: int = FIRST_ATTEMPT
    trigger: str = ON_SCHEDULE


@dataclass(frozen=True, slots=True)
class LastRun:
    """State of the time that was claimed last."""

    scheduled_ms: int
    attempt: int
    heard_ms: int
    """When it was claimed, or when its run last said that it goes on."""
    ended: bool


def turn_of(job: ScheduledJob, last: LastRun, now_ms: int) -> DueRun | None:
    """Return when the job is to run now, or None when nothing is due."""
    oldest_ms = now_ms - max(job.catch_up_ms, ON_TIME_MS)
    due_ms = job.cron.newest_ms(max(last.scheduled_ms, oldest_ms), now_ms)
    if due_ms is not None:
        late = now_ms - due_ms > ON_TIME_MS
        return DueRun(due_ms, FIRST_ATTEMPT, CATCH_UP if late else ON_SCHEDULE)
    again = FIRST_ATTEMPT <= last.attempt < LAST_ATTEMPT and last.scheduled_ms > oldest_ms
    if again and is_silent(last, now_ms):
        return DueRun(last.scheduled_ms, last.attempt + 1, AGAIN)
    return None


def is_silent(last: LastRun, now_ms: int) -> bool:
    """Return True if the application that ran the job at that time is gone."""
    return last.attempt != SEEN and not last.ended and not is_recent(last.heard_ms, now_ms)


def is_recent(heard_ms: int, now_ms: int) -> bool:
    """Return True if a run whose last record is of then still goes on.

    A time far ahead of the clock does not count: otherwise one such record would end a job's runs
    until then. Clocks of machines differ by less than `SILENT_MS`.
    """
    return abs(now_ms - heard_ms) < SILENT_MS
