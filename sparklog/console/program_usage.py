"""ProgramUsage: the requests of commands and Spark applications, from their usage reports.

The bill shows them. A look lists `usage/`, and gets the reports that no look has read yet. The
first look lists everything; later ones begin at the earliest day that may still change. So a day
without a sum counts as read once it is `SETTLED_DAYS` old and all its reports are read.

Of each day the memory holds sums by topic and by program, not the reports. Source: FORMAT.md 15.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from threading import Lock
from typing import Final

from sparklog.cluster.log import Log
from sparklog.cluster.usage_reports import (
    BYTES_MAX,
    KEPT_DAYS,
    LABELS_MAX,
    OPEN_DAYS,
    READ_AT_ONCE,
    UsageReport,
    read_usage,
    sum_of,
    usage_day,
    usage_listing,
)
from sparklog.console.bill import KINDS, LOOK_EVERY_S
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.counters import (
    RequestCount,
    Snapshot,
    add_to,
    by_kind,
    by_label,
    from_document,
    to_document,
)
from sparklog.core.errors import DataCorrupt, SparklogError
from sparklog.log.layout import usage_of_key
from sparklog.store.base import ObjectInfo

READS_MAX: Final = 5000
"""Objects that one look gets; the next one gets the others."""
LOOK_BYTES_MAX: Final = 32 << 20
"""Of these objects. The sums of half a year of many programs and topics have more."""
BYTES_AT_ONCE: Final = 4 << 20
"""Of objects that are in memory at the same time; as values they take about ten times as much."""
NAMES_MAX: Final = 200_000
"""Names of read reports that the memory holds; it reads no more reports of days without a sum."""
SETTLED_DAYS: Final = OPEN_DAYS + 1
"""Retention has had a day by then to sum a day up, and late reports have come."""
MONTH_DAYS: Final = 30
DAMAGED_SHOWN: Final = 5
"""Damaged objects whose names the page shows."""


@dataclass(frozen=True, slots=True)
class UsageReading:
    """The requests that programs reported."""

    totals: Snapshot = field(default_factory=dict)
    month: Snapshot = field(default_factory=dict)
    """Of the last `MONTH_DAYS` days."""
    programs: Mapping[str, Mapping[str, RequestCount]] = field(default_factory=dict)
    """By program and kind."""
    reports: int = 0
    since: str | None = None
    """The day of the first of them, in UTC."""
    unread: int = 0
    """Objects that the next look reads."""
    ahead: int = 0
    """Reports of days to come, or of none: they do not count."""
    damaged: int = 0
    damaged_names: Sequence[str] = ()
    """Some of the damaged ones."""
    problem: str = ""
    """Why the last look ended early."""


@dataclass(slots=True)
class _UsageDay:
    """The sums of one day."""

    is_sum: bool = False
    topics: dict[tuple[str, str], RequestCount] = field(default_factory=dict)
    """Of all programs, by kind and topic."""
    programs: UsageReport = field(default_factory=lambda: UsageReport({}, 0))
    """By program, with all topics under ''."""
    names: set[str] = field(default_factory=set)
    """Of the reports that were read."""
    damaged: int = 0
    damaged_names: list[str] = field(default_factory=list)

    def add(self, reports: Iterable[UsageReport]) -> None:
        """Add reports to the sums."""
        by_program = [self.programs]
        for report in reports:
            named = {}
            for program, counts in report.programs.items():
                known = {key: count for key, count in counts.items() if key[0] in KINDS}
                add_to(self.topics, known)
                named[program] = {(kind, ""): count for kind, count in by_kind(known).items()}
            by_program.append(UsageReport(named, report.reports))
        self.programs = sum_of(by_program)
        if len(by_label(self.topics)) > LABELS_MAX:
            self.topics = dict(from_document(to_document(self.topics, LABELS_MAX)))

    def add_damaged(self, key: str) -> None:
        """Count a damaged object."""
        self.damaged += 1
        if len(self.damaged_names) < DAMAGED_SHOWN:
            self.damaged_names.append(key)


class ProgramUsage:
    """Adds up the usage reports under a root. Thread-safe."""

    def __init__(
        self, log: Log, clock: Clock = SYSTEM_CLOCK, *, reads_max: int = READS_MAX
    ) -> None:
        """Read nothing yet.

        Args:
            log: of the root.
            clock: for days, and for times between two looks.
            reads_max: objects that one look gets.
        """
        self._log = log
        self._clock = clock
        self._reads_max = reads_max
        self._days: dict[str, _UsageDay] = {}
        self._since = ""
        """The day from which the next look lists; '' before the first one."""
        self._looked_s: float | None = None
        self._unread = self._ahead = 0
        self._problem = ""
        self._lock = Lock()

    def reading(self) -> UsageReading:
        """Return the counts up to now.

        Cost: a listing and a GET for each new report, at most every `LOOK_EVERY_S`.
        """
        with self._lock:
            now_s = self._clock.monotonic_s()
            if self._looked_s is None or now_s - self._looked_s >= LOOK_EVERY_S:
                self._problem = ""
                try:
                    self._look()
                except SparklogError as error:
                    self._problem = str(error)
                self._looked_s = self._clock.monotonic_s()
            return self._sums()

    def _look(self) -> None:
        """Read what is new, newer days first."""
        now_ms = self._clock.now_ms()
        kept, last = usage_day(now_ms, KEPT_DAYS), usage_day(now_ms, -1)
        for day in [day for day in self._days if day < kept]:
            del self._days[day]
        sums: list[ObjectInfo] = []
        reports: dict[str, list[ObjectInfo]] = {}
        self._ahead = 0
        for info in self._log.run_program(usage_listing(max(kept, self._since))):
            day, is_sum = _day_of(info.key)
            known = self._days.get(day)
            if day > last or not _is_day(day):
                self._ahead += 1
            elif is_sum:
                reports.pop(day, None)
                if known is None or not known.is_sum:
                    sums.append(info)
            elif known is None or not (known.is_sum or info.key in known.names):
                reports.setdefault(day, []).append(info)
        # A day's sum is listed after its reports, so none of these days has one.
        new = [one for day in sorted(reports, reverse=True) for one in reports[day]]
        room = max(0, NAMES_MAX - sum(len(day.names) for day in self._days.values()))
        self._unread = len(sums) + len(new)
        # Keys begin with the day.
        wanted = sorted([*sums, *new[:room]], key=lambda one: one.key, reverse=True)
        self._read(_leading(wanted, self._reads_max, LOOK_BYTES_MAX))
        settled = usage_day(now_ms, SETTLED_DAYS)
        unread = [day for day, infos in reports.items() if not self._has_read(day, infos)]
        unread += [day for day, _ in (_day_of(one.key) for one in sums) if not self._has_sum(day)]
        # Names of earlier days are gone, so their reports must not be listed again.
        self._since = max(self._since, min([settled, *unread]))
        for day, known in self._days.items():
            if day < self._since:
                known.names = set()

    def _read(self, infos: Sequence[ObjectInfo]) -> None:
        while infos:
            some = _leading(infos, READ_AT_ONCE, BYTES_AT_ONCE)
            infos = infos[len(some) :]
            found = self._log.run_program(read_usage(one.key for one in some))
            whole: dict[str, list[UsageReport]] = {}
            for key, one in found:
                day, is_sum = _day_of(key)
                known = self._days.setdefault(day, _UsageDay())
                if is_sum:
                    known = self._days[day] = _UsageDay(is_sum=True)
                else:
                    known.names.add(key)
                if isinstance(one, DataCorrupt):
                    known.add_damaged(key)
                else:
                    whole.setdefault(day, []).append(one)
            for day, reports in whole.items():
                self._days[day].add(reports)
            self._unread -= len(some)

    def _has_read(self, day: str, infos: Iterable[ObjectInfo]) -> bool:
        known = self._days.get(day)
        return known is not None and known.names.issuperset(one.key for one in infos)

    def _has_sum(self, day: str) -> bool:
        known = self._days.get(day)
        return known is not None and known.is_sum

    def _sums(self) -> UsageReading:
        month_began = usage_day(self._clock.now_ms(), MONTH_DAYS)
        totals: dict[tuple[str, str], RequestCount] = {}
        month: dict[tuple[str, str], RequestCount] = {}
        for day, one in self._days.items():
            add_to(totals, one.topics)
            if day > month_began:
                add_to(month, one.topics)
        every = sum_of(one.programs for one in self._days.values())
        counted = [day for day, one in self._days.items() if one.programs.reports]
        names = [name for _, one in sorted(self._days.items()) for name in one.damaged_names]
        return UsageReading(
            totals,
            month,
            {name: by_kind(counts) for name, counts in every.programs.items()},
            every.reports,
            min(counted, default=None),
            self._unread,
            self._ahead,
            sum(one.damaged for one in self._days.values()),
            tuple(names[:DAMAGED_SHOWN]),
            self._problem,
        )


def _leading(infos: Sequence[ObjectInfo], objects_max: int, bytes_max: int) -> Sequence[ObjectInfo]:
    """Return the first objects within both bounds, and at least one if there is one."""
    size_bytes = 0
    for number, info in enumerate(infos[:objects_max]):
        size_bytes += min(info.size_bytes, BYTES_MAX + 1)
        if number and size_bytes > bytes_max:
            return infos[:number]
    return infos[:objects_max]


def _day_of(key: str) -> tuple[str, bool]:
    """Return the day of a report, and if it is the day's sum."""
    return usage_of_key(key) or ("", False)


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True
