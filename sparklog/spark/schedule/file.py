"""The file that says which upkeep jobs run when: TOML, checked whole before anything starts.

[scheduler]                     # all optional
time_zone = "Europe/Berlin"     # default of jobs; UTC
catch_up_hours = 24             # likewise
at_once = 1                     # jobs that one application runs at a time

[jobs.nightly-retention]
kind = "retain"                 # compact, materialize, pipeline, retain or verify
cron = "30 2 * * *"
arguments = ["--orphan-hours", "48"]

enabled = true
time_zone = "UTC"
catch_up_hours = 12             # how late a missed time is made up for; 0: never
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from sparklog.core.errors import InvalidConfig, InvalidRequest
from sparklog.log.layout import JOB_NAME
from sparklog.spark.jobs.metrics_option import METRICS_OPTION
from sparklog.spark.schedule.cron import parse_cron, zone_of
from sparklog.spark.schedule.job_kinds import kind_of
from sparklog.spark.schedule.schedule import Schedule, ScheduledJob

HOUR_MS: Final = 3_600_000
CATCH_UP_HOURS: Final = 24
"""A nightly job that was missed is made up for whenever the application starts."""
AT_ONCE_MAX: Final = 16
EXAMPLE_ROOT: Final = "file:///log"
OWN_OPTIONS: Final = ("--root", "--json", METRICS_OPTION, "--help", "-h")
"""Options that the scheduler sets itself, or replaces in another way."""

_TABLES: Final = ("jobs", "scheduler")
_SCHEDULER_KEYS: Final = ("at_once", "catch_up_hours", "time_zone")
_JOB_KEYS: Final = ("arguments", "catch_up_hours", "cron", "enabled", "kind", "time_zone")
_NAME = re.compile(JOB_NAME)


def read_schedule(path: Path) -> Schedule:
    """Return what a file says.

    Raises:
        InvalidConfig: something in it is wrong; names the table and the key. OSError: no such file.
    """
    return parse_schedule(path.read_bytes(), str(path))


def parse_schedule(data: bytes, source: str) -> Schedule:
    """Return what a file's bytes say; `source` names it in messages.

    Raises:
        InvalidConfig: as `read_schedule`.
    """
    try:
        document = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"a schedule is no TOML: {error}. file={source}") from None
    _JobTable(source, "", document).only(_TABLES)
    common = _JobTable(source, "scheduler", _JobTable(source, "", document).table("scheduler"))
    common.only(_SCHEDULER_KEYS)
    at_once = common.number("at_once", 1)
    if not (isinstance(at_once, int) and 1 <= at_once <= AT_ONCE_MAX):
        raise common.wrong("at_once", f"must be a whole number from 1 to {AT_ONCE_MAX}")
    jobs = _JobTable(source, "", document).table("jobs")
    tables = [
        (name, _JobTable(source, f"jobs.{name}", _JobTable(source, "jobs", jobs).table(name)))
        for name in jobs
    ]
    return Schedule(source, tuple(_job(name, one, common) for name, one in tables), at_once)


class _JobTable:
    """A table of the file, which knows its name."""

    def __init__(self, source: str, name: str, values: Mapping[str, Any]) -> None:
        self._source = source
        self._name = name
        self._values = values

    def wrong(self, key: str, why: str) -> InvalidConfig:
        """Return the error for a key."""
        place = f"table={self._name} " if self._name else ""
        return InvalidConfig(f"a schedule is wrong: {why}. file={self._source} {place}key={key}")

    def only(self, known: Iterable[str]) -> None:
        """Reject keys that have no meaning."""
        for key in self._values:
            if key not in known:
                raise self.wrong(key, f"no such key; choose from {', '.join(known)}")

    def table(self, key: str) -> Mapping[str, Any]:
        """Return a table in this one; an empty one if it is not there."""
        found = self._values.get(key, {})
        if not isinstance(found, dict):
            raise self.wrong(key, "must be a table")
        return found

    def text(self, key: str, default: str | None = None) -> str:
        """Return a text."""
        found = self._values.get(key, default)
        if found is None:
            raise self.wrong(key, "is missing")
        if not isinstance(found, str):
            raise self.wrong(key, "must be a text in quotes")
        return found

    def number(self, key: str, default: float) -> int | float:
        """Return a number of at least zero."""
        found = self._values.get(key, default)
        if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < 1e9:
            raise self.wrong(key, "must be a number of at least 0")
        return found

    def flag(self, key: str, *, default: bool) -> bool:
        """Return true or false."""
        found = self._values.get(key, default)
        if not isinstance(found, bool):
            raise self.wrong(key, "must be true or false")
        return found

    def words(self, key: str) -> tuple[str, ...]:
        """Return a list of texts."""
        found = self._values.get(key, [])
        if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
            raise self.wrong(key, 'must be a list of texts, such as ["--topic", "clicks"]')
        return tuple(found)


def _job(name: str, table: _JobTable, common: _JobTable) -> ScheduledJob:
    table.only(_JOB_KEYS)
    if _NAME.fullmatch(name) is None:
        raise table.wrong("kind", "a job's name has at most 100 letters, digits, '.', '_' and '-'")
    zone = table.text("time_zone", common.text("time_zone", "UTC"))
    hours = table.number("catch_up_hours", common.number("catch_up_hours", CATCH_UP_HOURS))
    key = "kind"
    try:
        kind = kind_of(table.text("kind"))
        key = "time_zone"
        time_zone = zone_of(zone)
        key = "cron"
        cron = parse_cron(table.text("cron"), time_zone)
        key = "arguments"
        job = ScheduledJob(
            name=name,
            kind=kind.name,
            cron=cron,
            time_zone=zone,
            arguments=table.words("arguments"),
            enabled=table.flag("enabled", default=True),
            catch_up_ms=round(hours * HOUR_MS),
        )
        for word in job.arguments:
            if word.partition("=")[0] in OWN_OPTIONS:
                raise InvalidRequest(f"a job on schedule takes no {word}")
        kind.parsed(job.words(EXAMPLE_ROOT))
    except InvalidConfig:
        raise
    except InvalidRequest as error:
        raise table.wrong(key, str(error)) from None
    return job
