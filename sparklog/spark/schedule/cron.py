"""When a cron expression is due: crontab(5)'s fields, and the clock changes of cron(8). Pure.

  CRON-1: a job at fixed times whose minute a change of the clock skips is due right after the
      change
  CRON-2: a job at fixed times whose minute a change of the clock repeats is due the first time
      only
  CRON-3: a job whose minute or hour begins with `*` follows the clock. It is due whenever the
      clock shows its minute, so never in a skipped hour, and twice in a repeated one
  CRON-4: a change of more than three hours corrects the clock: every job follows it

CRON-1 to CRON-4 are those of Vixie's cron, which Debian and most other systems run. Times are
milliseconds since the epoch; a job is due at the beginning of a minute.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from sparklog.core.errors import InvalidRequest
from sparklog.spark.schedule.clock import clock_times

NICKNAMES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
DAYS_MAX: Final = 50 * 366
"""Range of the search for a job's next time: 29 February on a given weekday comes every 40
years.
"""
_DAY: Final = timedelta(days=1)
_PART = re.compile(r"(\*|[a-z]{3}|\d{1,4})(?:-([a-z]{3}|\d{1,4}))?(?:/(\d{1,4}))?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _CronField:
    """One of the five fields of an expression: its name, its least and greatest number."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    """Names of the numbers from `low` on."""

    def numbers(self, text: str) -> frozenset[int]:
        """Return the numbers that a field's text chooses.

        Raises:
            InvalidRequest: it is not a list of numbers, names, ranges and steps.
        """
        chosen: set[int] = set()
        for part in text.split(","):
            match = _PART.fullmatch(part)
            if match is None:
                raise self._wrong(part)
            first, last, step = match.groups()
            if first == "*":
                low, high = self.low, self.high
            else:
                low = self._number(first, part)
                high = self.high if step is not None else low
            if last is not None:
                high = self._number(last, part)
                if self.low == high < low and self.names[:1] == ("sun",):
                    high = 7  # fri-sun
            if (first == "*" and last is not None) or high < low or (step and int(step) == 0):
                raise self._wrong(part)
            chosen.update(range(low, high + 1, int(step or 1)))
        return frozenset(chosen)

    def _number(self, word: str, part: str) -> int:
        found = int(word) if word.isascii() and word.isdigit() else -1
        if word.lower() in self.names:
            found = self.names.index(word.lower()) + self.low
        if not self.low <= found <= self.high + (self.names[:1] == ("sun",)):
            raise self._wrong(part)
        return found

    def _wrong(self, part: str) -> InvalidRequest:
        return InvalidRequest(
            f"not a {self.name} of a cron expression ({self.low} to {self.high}): {part!r}"
        )


_MINUTE: Final = _CronField("minute", 0, 59)
_HOUR: Final = _CronField("hour", 0, 23)
_DAY_OF_MONTH: Final = _CronField("day", 1, 31)
_MONTH: Final = _CronField(
    "month", 1, 12,
    ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
)  # fmt: skip
_WEEKDAY: Final = _CronField("weekday", 0, 6, ("sun", "mon", "tue", "wed", "thu", "fri", "sat"))


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression in a time zone."""

    expression: str
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """From Sunday, 0, to Saturday, 6."""
    either_day: bool
    """True if a day suffices that one of the two fields of days has."""
    follows_clock: bool
    """True if a change of the clock is nothing special (CRON-3)."""
    zone: tzinfo = UTC

    def next_ms(self, after_ms: int) -> int | None:
        """Return the first time after `after_ms`; None if none comes within 50 years."""
        day = self._day_of(after_ms) - _DAY
        found: int | None = None
        for _ in range(DAYS_MAX):
            times = _times_of(self, day) if self._is_on(day) else ()
            place = bisect_right(times, after_ms)
            if found is not None:
                # A change of the clock around midnight lets two days overlap.
                return min([found, *times[place : place + 1]])
            found = times[place] if place < len(times) else None
            day += _DAY
        return found

    def newest_ms(self, after_ms: int, until_ms: int) -> int | None:
        """Return the last time in (`after_ms`, `until_ms`], or None."""
        if after_ms >= until_ms:
            return None
        day = self._day_of(until_ms) + _DAY
        oldest = self._day_of(after_ms) - _DAY
        found: int | None = None
        while day >= oldest and found is None:
            found = self._newest_on(day, after_ms, until_ms)
            day -= _DAY
        before = self._newest_on(day, after_ms, until_ms)  # as above
        return found if found is None or before is None else max(found, before)

    def _newest_on(self, day: date, after_ms: int, until_ms: int) -> int | None:
        times = _times_of(self, day) if self._is_on(day) else ()
        place = bisect_right(times, until_ms)
        return times[place - 1] if place and times[place - 1] > after_ms else None

    def _is_on(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        by_month = day.day in self.days
        by_week = day.isoweekday() % 7 in self.weekdays
        return (by_month or by_week) if self.either_day else (by_month and by_week)

    def _day_of(self, at_ms: int) -> date:
        return datetime.fromtimestamp(at_ms / 1000, UTC).astimezone(self.zone).date()


@lru_cache(maxsize=64)
def _times_of(cron: Cron, day: date) -> tuple[int, ...]:
    """Return all times of one local date that a job is due on, in order."""
    found: set[int] = set()
    for hour in cron.hours:
        at = datetime.combine(day, time(hour))
        found.update(clock_times(at, cron.minutes, cron.zone, follows_clock=cron.follows_clock))
    return tuple(sorted(found))


def parse_cron(expression: str, time_zone: tzinfo = UTC) -> Cron:
    """Return what a cron expression says: five fields, or a nickname such as `@daily`.

    Raises:
        InvalidRequest: it is none, or it never comes.
    """
    words = NICKNAMES.get(expression.strip().lower(), expression).split()
    if len(words) != 5:
        raise InvalidRequest(
            "a cron expression has five fields (minute hour day month weekday) or is one of "
            f"{', '.join(NICKNAMES)}: {expression!r}"
        )
    minute, hour, day, month, weekday = words
    try:
        cron = Cron(
            expression,
            minutes=_MINUTE.numbers(minute),
            hours=_HOUR.numbers(hour),
            days=_DAY_OF_MONTH.numbers(day),
            months=_MONTH.numbers(month),
            weekdays=frozenset(number % 7 for number in _WEEKDAY.numbers(weekday)),
            either_day=not (day.startswith("*") or weekday.startswith("*")),
            follows_clock=minute.startswith("*") or hour.startswith("*"),
            zone=time_zone,
        )
    except InvalidRequest as error:
        raise InvalidRequest(f"{error}, in {expression!r}") from None
    # A zone skips a day at most once; UTC shows whether the calendar has such a day at all.
    if replace(cron, zone=UTC).next_ms(0) is None:
        raise InvalidRequest(f"a cron expression that never comes: {expression!r}")
    return cron


def zone_of(name: str) -> tzinfo:
    """Return a time zone by its IANA name.

    Raises:
        InvalidRequest: this machine knows none of that name.
    """
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        raise InvalidRequest(f"no such time zone: {name!r}; write UTC or Europe/Berlin") from None
