"""When a cron expression is due: the scheduler library's trigger, read as crontab(5) says.

The library (APScheduler 3) numbers weekdays from Monday and wants day and weekday both to match;
cron numbers them from Sunday, and one of the two is enough where both are restricted. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo

from apscheduler.triggers.combining import OrTrigger
from apscheduler.triggers.cron import CronTrigger

from sparklog.core.errors import InvalidRequest

NICKNAMES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_WEEKDAYS = re.compile(r"(\*|[a-z]{3}|\d)(?:-([a-z]{3}|\d))?(?:/(\d+))?", re.IGNORECASE)
_PLAIN = re.compile(r"[\d*,/a-z-]+", re.IGNORECASE)
_FIRST_LOOK: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression in a time zone."""

    expression: str
    trigger: Any

    def next_ms(self, after_ms: int) -> int | None:
        """Return the first time after `after_ms`; None for an expression that never comes."""
        found = self.trigger.get_next_fire_time(None, _moment(after_ms + 1))
        return None if found is None else round(found.timestamp() * 1000)

    def newest_ms(self, after_ms: int, until_ms: int) -> int | None:
        """Return the last time in (`after_ms`, `until_ms`], or None.

        Looks back further and further, so that a long absence costs no more than a short one.
        """
        window_ms = round(_FIRST_LOOK.total_seconds() * 1000)
        while after_ms < until_ms:
            begin_ms = max(after_ms, until_ms - window_ms)
            found = None
            for at_ms in self._between(begin_ms, until_ms):
                found = at_ms
            if found is not None or begin_ms == after_ms:
                return found
            window_ms *= 4
        return None

    def _between(self, after_ms: int, until_ms: int) -> Iterator[int]:
        at_ms = self.next_ms(after_ms)
        while at_ms is not None and at_ms <= until_ms:
            yield at_ms
            at_ms = self.next_ms(at_ms)


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
    for word in (minute, hour, day, month):
        if _PLAIN.fullmatch(word) is None:
            raise InvalidRequest(f"not a field of a cron expression: {word!r} in {expression!r}")
    days = _weekdays(weekday, expression)
    try:
        cron = Cron(expression, _trigger(minute, hour, day, month, days, time_zone))
    except ValueError as error:
        raise InvalidRequest(f"{error}, in {expression!r}") from None
    if cron.next_ms(0) is None:
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


def _trigger(
    minute: str, hour: str, day: str, month: str, days: str, time_zone: tzinfo
) -> CronTrigger | OrTrigger:
    def every(day: str, weekday: str) -> CronTrigger:
        return CronTrigger(
            minute=minute, hour=hour, day=day, month=month, day_of_week=weekday, timezone=time_zone
        )

    if day.startswith("*") or days == "*":
        return every(day, days)
    return OrTrigger([every(day, "*"), every("*", days)])


def _weekdays(field: str, expression: str) -> str:
    """Return a field of weekdays by their names, which the library and cron agree upon."""
    if field == "*":
        return field
    chosen: set[int] = set()
    for word in field.split(","):
        match = _WEEKDAYS.fullmatch(word)
        if match is None:
            raise InvalidRequest(f"not a weekday (0-7, sun-sat): {word!r} in {expression!r}")
        first, last, step = match.groups()
        low = 0 if first == "*" else _weekday(first, expression)
        high = 6 if first == "*" or (last is None and step is not None) else low
        if last is not None:
            high = _weekday(last, expression)
            high = 7 if high == 0 and low > 0 else high  # fri-sun
        if (first == "*" and last is not None) or high < low or step == "0":
            raise InvalidRequest(f"not a range of weekdays: {word!r} in {expression!r}")
        chosen |= {number % 7 for number in range(low, high + 1, int(step or 1))}
    return ",".join(_DAYS[number] for number in sorted(chosen))


def _weekday(word: str, expression: str) -> int:
    number = int(word) if word.isdigit() else -1
    if word.lower() in _DAYS:
        number = _DAYS.index(word.lower())
    if not 0 <= number <= 7:
        raise InvalidRequest(f"not a weekday (0-7, sun-sat): {word!r} in {expression!r}")
    return number


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
