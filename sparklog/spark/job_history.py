"""What is known of the runs of upkeep jobs: the records of the topic `__sparklog_jobs`.

Three kinds of record, by their keys. `run/<run id>` is a run: written when it begins, once a minute
while it goes on, and when it has ended; the last one counts. `job/<name>` says when a job runs.
`ask/<run id>` asks for a run, and says who takes that (`job_requests`). Values are JSON objects, so
that any Kafka client can read them. Times are milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, get_origin, get_type_hints

from sparklog.core.names import JOBS_TOPIC
from sparklog.spark.schedule import ScheduledJob

HISTORY_TOPIC: Final = JOBS_TOPIC
DAY_MS: Final = 86_400_000
HISTORY_CONFIGS: Final[Mapping[str, str]] = {
    # Of a run only its newest record matters, and of a job its newest schedule: compaction. A run's
    # key does not come again, so without a limit of age all of them would stay: deletion.
    "cleanup.policy": "compact,delete",
    "retention.ms": str(180 * DAY_MS),
    # So that the storage alone tells of a run a second after it has ended.
    "flush.ms": "1000",
}
REPORT_BYTES_MAX: Final = 32 * 1024
"""Of a longer report the partitions are left out: half a year of hourly runs is read at once."""
TIME_MAX_MS: Final = 253_402_300_799_999
"""The year 9999 ends: a later time cannot be shown."""

RUNNING: Final = "running"
DONE: Final = "done"
REPAIRED: Final = "repaired"
"""Done, and what had been damaged is not any more."""
FAILED: Final = "failed"
TERMINATED: Final = "terminated"
LOST: Final = "lost"

_RUN: Final = "run/"
_JOB: Final = "job/"
_ASK: Final = "ask/"


@dataclass(frozen=True, slots=True)
class JobRun:
    """One run of a job."""

    run_id: str
    job: str
    kind: str
    trigger: str
    scheduled_ms: int
    started_ms: int
    heard_ms: int
    """When it last said that it goes on, or ended."""
    application: str = ""
    outcome: str = RUNNING
    exit_code: int | None = None
    duration_ms: int | None = None
    records_before: int | None = None
    records_after: int | None = None
    bytes_before: int | None = None
    bytes_after: int | None = None
    message: str = ""
    """What it said first at its end, or how far it is."""
    report: Mapping[str, Any] = field(default_factory=dict)
    """What it says with --json."""

    @property
    def ended(self) -> bool:
        """Return whether it goes on no more."""
        return self.outcome != RUNNING


@dataclass(frozen=True, slots=True)
class KnownJob:
    """How a job is scheduled, as an application said when it began to look after it."""

    job: str
    kind: str
    cron: str
    time_zone: str
    arguments: tuple[str, ...]
    enabled: bool
    said_ms: int = 0
    application: str = ""

    @classmethod
    def of(cls, job: ScheduledJob, said_ms: int, application: str) -> KnownJob:
        """Return what is to be known of a job."""
        return cls(
            job.name, job.kind, job.cron.expression, job.time_zone, job.arguments, job.enabled,
            said_ms, application,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class JobRequest:
    """Somebody wants a job to run now, or says that it runs it."""

    request_id: str
    """The id that the run will have."""
    job: str
    asker: str
    asked_ms: int
    taker: str = ""
    """Who runs it: the first that says so; the asker if it has given up to find somebody."""


@dataclass(slots=True)
class History:
    """The topic's records, folded: of each run and each job the newest."""

    runs: dict[str, JobRun] = field(default_factory=dict)
    jobs: dict[str, KnownJob] = field(default_factory=dict)

    def take(self, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Take records in, by key and value; what is none of ours is left out."""
        for key, value in records:
            found = decode(key, value)
            if isinstance(found, JobRun):
                self.runs[found.run_id] = found
            elif isinstance(found, KnownJob):
                self.jobs[found.job] = found

    def newest_first(self, job: str | None = None) -> list[JobRun]:
        """Return the runs, of one job or of all."""
        chosen = [run for run in self.runs.values() if job in (None, run.job)]
        return sorted(chosen, key=lambda run: (run.started_ms, run.run_id), reverse=True)

    def last_run(self, job: str) -> JobRun | None:
        """Return the run of a job that began last."""
        return next(iter(self.newest_first(job)), None)


def run_key(run_id: str) -> bytes:
    """Return the key of a run's records."""
    return (_RUN + run_id).encode()


def key_of(record: JobRun | KnownJob | JobRequest) -> bytes:
    """Return a record's key."""
    if isinstance(record, JobRun):
        return run_key(record.run_id)
    if isinstance(record, KnownJob):
        return (_JOB + record.job).encode()
    return (_ASK + record.request_id).encode()


def encode(record: JobRun | KnownJob | JobRequest) -> bytes:
    """Return a record's value."""
    data = _encoded(record)
    if isinstance(record, JobRun) and len(data) > REPORT_BYTES_MAX:
        short = {key: value for key, value in record.report.items() if key != "partitions"}
        data = _encoded(replace(record, report=short))
    return data


def decode(key: bytes | None, value: bytes | None) -> JobRun | KnownJob | JobRequest | None:
    """Return a record, or None for one that is none of ours: anybody may write the topic."""
    kind = next((k for prefix, k in _KINDS.items() if (key or b"").startswith(prefix)), None)
    if kind is None or value is None:
        return None
    try:
        document = json.loads(value)
        json.dumps(document, ensure_ascii=False).encode()  # half a character cannot be shown
        types = _TYPES[kind]
        known = {name: v for name, v in document.items() if name in types}
        if not all(_fits(name, v, types[name]) for name, v in known.items()):
            return None
        if "arguments" in known:
            known["arguments"] = tuple(known["arguments"])
        found: JobRun | KnownJob | JobRequest = kind(**known)
        return found if key == key_of(found) else None
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None


def _fits(name: str, value: object, wanted: Any) -> bool:
    """Return whether a field is what its class says, so that it can be a key, sorted and shown."""
    if get_origin(wanted) is tuple:
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    if not isinstance(value, dict if get_origin(wanted) is Mapping else wanted):
        return False
    return not (name.endswith("_ms") and isinstance(value, int)) or 0 <= value <= TIME_MAX_MS


def _encoded(record: JobRun | KnownJob | JobRequest) -> bytes:
    text = json.dumps(asdict(record), ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="replace")  # a message may name a file whose name is no text


_KINDS: Final[Mapping[bytes, type[JobRun] | type[KnownJob] | type[JobRequest]]] = {
    _RUN.encode(): JobRun, _JOB.encode(): KnownJob, _ASK.encode(): JobRequest
}  # fmt: skip
_TYPES: Final = {kind: get_type_hints(kind) for kind in _KINDS.values()}
