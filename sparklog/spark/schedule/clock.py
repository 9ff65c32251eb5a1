"""When a zone's clock shows a minute: once, never where it is set forward, twice where back. Pure.

Times are milliseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

LARGE_FORWARD: Final = timedelta(hours=3)
LARGE_BACK: Final = timedelta(hours=3, minutes=2)
"""Changes from these sizes on correct the clock. Source: cron.c of Vixie's cron.

It compares the minutes that it has done with the minute that the clock shows. It takes a
difference of more than 180 either way for a correction. One minute passes meanwhile.
"""
_NO_TIME: Final = timedelta(0)
_LAST_SECOND: Final = timedelta(minutes=59, seconds=59)
_MS: Final = timedelta(milliseconds=1)
_SECOND: Final = timedelta(seconds=1)
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - what clocks show has no zone


def clock_times(
    hour: datetime, minutes: Iterable[int], zone: tzinfo, *, follows_clock: bool
) -> Iterator[int]:
    """Yield when a job is due at minutes of a local hour, in no order.

    Args:
        `hour`: a full hour as the zone's clock shows it, without a zone.
        `minutes`: from 0 to 59.
        `zone`: where the clock is.
        `follows_clock`: due whenever the clock shows the minute; otherwise once for each minute,
            as cron(8) does it for jobs at fixed times.
    """
    offset, later = offsets_at(hour, zone)
    if (offset, later) == (offset, offset) == offsets_at(hour + _LAST_SECOND, zone):
        begin_ms = _ms(hour - offset)
        yield from (begin_ms + 60_000 * minute for minute in minutes)
        return
    for minute in minutes:
        shown = hour + timedelta(minutes=minute)
        yield from _times_of_minute(shown, zone, follows_clock=follows_clock)


def offsets_at(shown: datetime, zone: tzinfo) -> tuple[timedelta, timedelta]:
    """Return the offsets from UTC before and after a change that skips or repeats a local time.

    The two are equal for a time that the clock shows once. Source: PEP 495.
    """
    before = shown.replace(tzinfo=zone, fold=0).utcoffset()
    after = shown.replace(tzinfo=zone, fold=1).utcoffset()
    return before or _NO_TIME, after or _NO_TIME


def _times_of_minute(shown: datetime, zone: tzinfo, *, follows_clock: bool) -> Iterator[int]:
    before, after = offsets_at(shown, zone)
    if after <= before:
        yield _ms(shown - before)
        if follows_clock or before - after >= LARGE_BACK:
            yield _ms(shown - after)
    elif not follows_clock and after - before < LARGE_FORWARD:
        yield _ms(_change_of(shown - after, shown - before, after, zone))


def _change_of(before: datetime, after: datetime, offset: timedelta, zone: tzinfo) -> datetime:
    """Return the moment in (`before`, `after`], in UTC, from which on the zone has an offset."""
    low, high = 0, (after - before) // _SECOND
    while high - low > 1:
        middle = (low + high) // 2
        there = (before + middle * _SECOND).replace(tzinfo=UTC).astimezone(zone).utcoffset()
        low, high = (low, middle) if there == offset else (middle, high)
    return before + high * _SECOND


def _ms(at: datetime) -> int:
    return (at - _EPOCH) // _MS
