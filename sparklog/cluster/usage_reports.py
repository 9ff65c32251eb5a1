"""Usage reports: what programs requested of the store, as objects beside the log.

A broker shows its requests on its page for Prometheus. A command or a Spark application has no
page, and ends. So it leaves reports, and the console's bill adds them up.

USAGE-REPORTS-1: A report has the requests since the program's last report, and a name of its own. A
    put that is repeated has the same name and bytes. So each request counts once.
USAGE-REPORTS-2: The sum of a day replaces the reports of that day. Retention creates it two days
    later, and deletes reports only then. So a reader that finds a sum counts nothing else of that
    day.

Nothing but the bill depends on usage reports. Source: FORMAT.md 15.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from sparklog.core.counters import (
    COUNT_MAX,
    RequestCount,
    Snapshot,
    add_to,
    from_document,
    to_document,
)
from sparklog.core.errors import DataCorrupt, OutcomeUnknown
from sparklog.log.checked_json import decode_checked, encode_checked
from sparklog.log.effects import Program, Range, get, get_many, list_after, put
from sparklog.log.layout import USAGE_PREFIX, usage_day_prefix, usage_of_key, usage_sum_key
from sparklog.store.base import ObjectInfo, PutOutcome

BYTES_MAX: Final = 1 << 20
"""Of one report or sum."""
LABELS_MAX: Final = 500
"""A report names this many topics of a program, and counts the requests to the others together."""
PROGRAMS_MAX: Final = 50
"""A sum names this many programs."""
PROGRAM_NAME_MAX: Final = 100
OTHER_PROGRAMS: Final = "other programs"
OPEN_DAYS: Final = 2
"""A day is summed up this long after it has begun, so that late reports still count."""
KEPT_DAYS: Final = 180
"""Sums of earlier days are deleted, as the history of jobs is."""
READ_AT_ONCE: Final = 64
PUT_TRIES_MAX: Final = 3
KINDS: Final = frozenset({"get", "put", "list", "delete", "head"})
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{0,249}")


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Requests to the store by program."""

    programs: Mapping[str, Snapshot]
    reports: int = 1
    """Number of reports in a sum."""


def encode_usage(report: UsageReport) -> bytes:
    """Return the object of a report; it names fewer topics if it would be too large."""
    labels_max = LABELS_MAX
    while True:
        named = {n: to_document(one, labels_max) for n, one in sorted(report.programs.items())}
        data = encode_checked({"reports": report.reports, "programs": named})
        if len(data) <= BYTES_MAX or labels_max == 0:
            return data
        labels_max //= 2


def decode_usage(data: bytes, key: str) -> UsageReport:
    """Return the report in an object.

    Raises:
        DataCorrupt: too large, damaged, or written by a newer sparklog.
    """
    what = f"usage report. object={key}"
    if len(data) > BYTES_MAX:
        raise DataCorrupt(f"{what} is too large. bytes={len(data)} bytes_max={BYTES_MAX}")
    body = decode_checked(data, what)
    reports, programs = (body.get(n) for n in ("reports", "programs")) if _is(body) else (0, 0)
    if type(reports) is not int or not 0 <= reports < 1 << 62 or not isinstance(programs, dict):
        raise DataCorrupt(f"{what} is not as the format says")
    found = {program_name(n): _known(from_document(one)) for n, one in programs.items() if _is(one)}
    return sum_of([UsageReport(found, reports)])


def _known(counts: Snapshot) -> Snapshot:
    """Return the counts of kinds that exist; those of what no topic can be called count as ''."""
    found: dict[tuple[str, str], RequestCount] = {}
    for (kind, label), count in counts.items():
        if kind in KINDS:
            add_to(found, {(kind, label if _TOPIC.fullmatch(label) else ""): count})
    return found


def _is(value: object) -> bool:
    return isinstance(value, dict)


def program_name(name: str) -> str:
    """Return a program's name as reports have it: printable ASCII of bounded length."""
    return "".join(one for one in name if " " <= one <= "~")[:PROGRAM_NAME_MAX].strip() or "unnamed"


def sum_of(reports: Iterable[UsageReport]) -> UsageReport:
    """Return the sum of reports. It names the programs with the most requests."""
    totals: dict[str, dict[tuple[str, str], RequestCount]] = {}
    count = 0
    for report in reports:
        count = min(count + report.reports, COUNT_MAX - 1)
        for name, counts in report.programs.items():
            add_to(totals.setdefault(name, {}), counts)
    if len(totals) > PROGRAMS_MAX:
        others = totals.setdefault(OTHER_PROGRAMS, {})
        named = sorted(totals.keys() - {OTHER_PROGRAMS}, key=lambda n: (-_requests(totals[n]), n))
        for name in named[PROGRAMS_MAX - 1 :]:
            add_to(others, totals.pop(name))
    return UsageReport(totals, count)


def _requests(counts: Snapshot) -> int:
    return sum(count.requests for count in counts.values())


def usage_day(now_ms: int, days_ago: int = 0) -> str:
    """Return the day of a time in UTC, or one before it, such as `2026-11-29`."""
    return (datetime.fromtimestamp(now_ms / 1000, UTC) - timedelta(days_ago)).date().isoformat()


def put_report(key: str, data: bytes) -> Program[None]:
    """Create a report. An object under its name is this report, from an earlier put.

    So a process needs no right to read reports.

    Raises:
        OutcomeUnknown: the store may have the report or not. The same call may be made again.
    """
    for _ in range(PUT_TRIES_MAX):
        if (yield from put(key, data)) is not PutOutcome.UNKNOWN:
            return
    raise OutcomeUnknown(f"the store does not tell whether it has the report. object={key}")


def read_usage(keys: Iterable[str]) -> Program[list[tuple[str, UsageReport | DataCorrupt]]]:
    """Return the reports of some objects, without those that are gone by now.

    Cost: a GET for each.
    """
    wanted = list(keys)
    found: list[tuple[str, UsageReport | DataCorrupt]] = []
    for first in range(0, len(wanted), READ_AT_ONCE):
        some = wanted[first : first + READ_AT_ONCE]
        # One byte more than the bound shows that an object is too large.
        answers = yield from get_many(tuple(Range(key, 0, BYTES_MAX + 1) for key in some))
        for key, data in zip(some, answers, strict=True):
            if data is not None:
                found.append((key, _decoded(data, key)))
    return found


def _decoded(data: bytes, key: str) -> UsageReport | DataCorrupt:
    try:
        return decode_usage(data, key)
    except DataCorrupt as error:
        return error


@dataclass(frozen=True, slots=True)
class UsageUpkeep:
    """The result of upkeep of usage reports."""

    summed: tuple[str, ...] = ()
    """Days that have their sum now."""
    doomed: tuple[ObjectInfo, ...] = ()
    """Reports that a sum replaces, and sums of long ago."""
    damaged: tuple[str, ...] = ()
    """Keys of reports that no sum counts."""


def sum_up(now_ms: int, *, dry_run: bool = False) -> Program[UsageUpkeep]:
    """Create the sums of past days, and return what may be deleted then.

    Cost: a listing, and a GET for each report of a day without a sum.

    Args:
        now_ms: the time.
        dry_run: create nothing.
    """
    days: dict[str, list[ObjectInfo]] = {}
    summed: set[str] = set()
    old: list[ObjectInfo] = []
    closed, kept = usage_day(now_ms, OPEN_DAYS), usage_day(now_ms, KEPT_DAYS)
    for info in (yield from list_after(USAGE_PREFIX, "")):
        named = usage_of_key(info.key)
        if named is None or named[0] > closed:
            continue
        day, is_sum = named
        if day < kept:
            old.append(info)
        elif is_sum:
            summed.add(day)
        else:
            days.setdefault(day, []).append(info)
    done, doomed, damaged = [], old, []
    for day, infos in sorted(days.items()):
        if day not in summed:
            keys = [info.key for info in infos]
            bad = [] if dry_run else (yield from _create_sum(day, keys))
            if bad is None:
                continue
            damaged += bad
            done.append(day)
        doomed = [*doomed, *infos]
    return UsageUpkeep(tuple(done), tuple(doomed), tuple(damaged))


def _create_sum(day: str, keys: list[str]) -> Program[list[str] | None]:
    """Return the damaged reports of a day that has its sum now; None if it may have none."""
    sum_key = usage_sum_key(day)
    total, damaged = UsageReport({}, 0), []
    for first in range(0, len(keys), READ_AT_ONCE):
        found = yield from read_usage(keys[first : first + READ_AT_ONCE])
        whole = [one for _, one in found if isinstance(one, UsageReport)]
        # Bounded, so that memory holds one sum and a group of reports.
        total = decode_usage(encode_usage(sum_of([total, *whole])), sum_key)
        damaged += [key for key, one in found if isinstance(one, DataCorrupt)]
    outcome = yield from put(sum_key, encode_usage(total))
    if outcome is not PutOutcome.CREATED and (yield from get(sum_key)) is None:
        return None
    return damaged


def usage_listing(since_day: str) -> Program[list[ObjectInfo]]:
    """Return the usage reports and sums from a day on, '' for all of them. One listing."""
    after = usage_day_prefix(since_day) if since_day else ""
    found = yield from list_after(USAGE_PREFIX, after)
    return [info for info in found if usage_of_key(info.key) is not None]
