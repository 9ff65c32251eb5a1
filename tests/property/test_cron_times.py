"""Cron expressions across changes of the clock, in every zone, against cron's own loop.

The oracle is the main loop of Vixie's cron, minute by minute. It knows no times that a clock shows
twice or never. It knows only how far the clock is from the minutes it has worked off.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.spark.schedule.cron import Cron, parse_cron

MINUTE_MS = 60_000
DAY_MIN = 24 * 60
FIRST, LAST = datetime(2000, 1, 1, tzinfo=UTC), datetime(2041, 1, 1, tzinfo=UTC)
STEP = timedelta(days=5)
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - what clocks show has no zone
AROUND = timedelta(hours=27)


class Change(NamedTuple):
    """A change of a zone's clock: the minute in UTC, and the zone's offsets around it."""

    zone: str
    at_min: int
    before_min: int
    after_min: int

    @property
    def kind(self) -> tuple[int, int, int]:
        """Return the properties that matter to jobs that run every day."""
        return (self.at_min + self.before_min) % DAY_MIN, self.before_min, self.after_min


def offset_min(at: datetime, zone: ZoneInfo) -> int:
    offset = at.astimezone(zone).utcoffset()
    assert offset is not None
    return round(offset.total_seconds() / 60)


def changes_of(name: str) -> Iterator[Change]:
    """Yield the changes of a zone's clock from 2000 to 2040."""
    zone, at = ZoneInfo(name), FIRST
    before = offset_min(at, zone)
    while at < LAST:
        after = offset_min(at + STEP, zone)
        if after != before:
            low, high = at, at + STEP
            while high - low > timedelta(minutes=1):
                middle = low + (high - low) // timedelta(minutes=2) * timedelta(minutes=1)
                changed = offset_min(middle, zone) != before
                low, high = (low, middle) if changed else (middle, high)
            yield Change(name, round(high.timestamp()) // 60, before, offset_min(high, zone))
            after = offset_min(high, zone)
            at, before = high, after
        else:
            at += STEP


@cache
def all_changes() -> tuple[Change, ...]:
    """Return every change of every zone of this machine, one of each that zones share."""
    found = {
        change[1:]: change for name in sorted(available_timezones()) for change in changes_of(name)
    }
    return tuple(found.values())


def cron_loop(cron: Cron, zone: ZoneInfo, first_min: int, last_min: int) -> list[int]:
    """Return the minutes in UTC, (first, last], at which cron runs a job. Source: cron.c."""
    starred = cron.expression.startswith("*") or cron.expression.split()[1].startswith("*")

    def shown(minute: int) -> int:
        return minute + offset_min(datetime.fromtimestamp(minute * 60, UTC), zone)

    def wants(local: int) -> bool:
        at = EPOCH + timedelta(minutes=local)
        return at.minute in cron.minutes and at.hour in cron.hours and on_day(cron, at)

    virtual = shown(first_min)
    ran = []
    for minute in range(first_min + 1, last_min + 1):
        running = shown(minute)
        ahead = running - virtual
        if ahead == 1 or abs(ahead) > 180:
            virtual, due = running, wants(running)
        elif 0 < ahead <= 5:
            due = any(wants(local) for local in range(virtual + 1, running + 1))
            virtual = running
        elif ahead > 5:
            passed = range(virtual + 1, running + 1)
            due = wants(running) if starred else any(wants(local) for local in passed)
            virtual = running
        else:
            due = starred and wants(running)
        if due:
            ran.append(minute)
    return ran


def on_day(cron: Cron, at: datetime) -> bool:
    _, _, month_days, _, week_days = cron.expression.split()
    in_month, in_week = at.day in cron.days, at.isoweekday() % 7 in cron.weekdays
    both = month_days.startswith("*") or week_days.startswith("*")
    return at.month in cron.months and ((in_month and in_week) if both else (in_month or in_week))


def chain(cron: Cron, first_min: int, last_min: int) -> list[int]:
    """Return the same minutes by asking for the next time again and again."""
    found = []
    at_ms = cron.next_ms(first_min * MINUTE_MS)
    while at_ms is not None and at_ms <= last_min * MINUTE_MS:
        assert at_ms % MINUTE_MS == 0
        found.append(at_ms // MINUTE_MS)
        at_ms = cron.next_ms(at_ms)
    return found


def window(change: Change) -> tuple[int, int]:
    around = round(AROUND.total_seconds()) // 60
    return change.at_min - around, change.at_min + around


@pytest.mark.parametrize(
    "expression",
    ["0 0 * * *", "30 0 * * *", "30 2 * * *", "15,45 1,2,23 * * *", "0 * * * *", "*/10 0-3 * * *"],
)
def test_jobs_run_as_under_cron_around_clock_changes(
    expression: str,
) -> None:
    kinds = {change.kind: change for change in all_changes()}
    assert len(kinds) > 50
    for change in kinds.values():
        zone = ZoneInfo(change.zone)
        cron = parse_cron(expression, zone)
        assert chain(cron, *window(change)) == cron_loop(cron, zone, *window(change)), change


def field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    some = st.lists(number, min_size=1, max_size=3, unique=True).map(
        lambda chosen: ",".join(map(str, chosen))
    )
    return some | st.just("*") | st.sampled_from(["*/2", "*/5"])


@settings(max_examples=150)
@given(
    data=st.data(),
    minute=field(0, 59),
    hour=field(0, 23),
    week_days=field(0, 6),
    start_min=st.integers(-200, 200),
)
def test_any_job_runs_as_under_cron_around_any_change(
    data: st.DataObject, minute: str, hour: str, week_days: str, start_min: int
) -> None:
    change = data.draw(st.sampled_from(all_changes()))
    days = data.draw(st.sampled_from(["*", "*/2"]) | field(1, 31))
    zone = ZoneInfo(change.zone)
    cron = parse_cron(f"{minute} {hour} {days} * {week_days}", zone)
    first, last = window(change)
    expected = cron_loop(cron, zone, first, last)
    assert chain(cron, first, last) == expected
    # From any moment on, and back from it.
    start = change.at_min + start_min
    later = [at for at in expected if at > start]
    following = cron.next_ms(start * MINUTE_MS)
    if later:
        assert following == later[0] * MINUTE_MS
    else:
        assert following is None or following > last * MINUTE_MS
    earlier = [at for at in expected if at <= start]
    newest = cron.newest_ms(first * MINUTE_MS, start * MINUTE_MS)
    assert newest == (earlier[-1] * MINUTE_MS if earlier else None)


def test_a_daily_job_runs_once_on_each_day_that_its_zone_has() -> None:
    for name in ("Africa/Cairo", "America/Santiago", "Asia/Beirut", "America/Moncton"):
        zone = ZoneInfo(name)
        cron = parse_cron("30 0 * * *", zone)
        at_ms, until_ms = FIRST.timestamp() * 1000, LAST.timestamp() * 1000
        days = []
        while (following := cron.next_ms(round(at_ms))) is not None and following < until_ms:
            at_ms = following
            days.append(datetime.fromtimestamp(at_ms / 1000, zone).date())
        assert days == [days[0] + timedelta(days=n) for n in range(len(days))], name
        assert len(days) > 14_950
