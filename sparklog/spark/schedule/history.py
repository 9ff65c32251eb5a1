"""History: the runs of upkeep jobs as records of the topic `__sparklog_jobs`.

Three kinds of record, by their keys. `run/<run id>` is a run: written when it begins, once a minute
while it goes on, and when it has ended; the last one counts. `job/<name>` says when a job runs.
`ask/<run id>` asks for a run, and says who takes that (`job_requests`). Values are JSON objects, so
that any Kafka client can read them. Times are milliseconds.

The module writes and reads the history with brokers and without.

A record is appended to the log directly, or through the leader where brokers lead the topic. The
leader accepts no record of the history from a client, only a reference to an object in the
storage. So every record of the history comes from a writer with access to the storage. Source:
decision 49. Writing a record twice is harmless, since the last one of a key counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, get_origin, get_type_hints

import pyarrow as pa

from sparklog.client.admin import Admin
from sparklog.client.consumer import Consumer
from sparklog.client.security import process_security
from sparklog.client.values import EARLIEST, LATEST
from sparklog.cluster.log import Log
from sparklog.cluster.metadata.image import MetadataImage, Topic
from sparklog.cluster.publication import StagedPartition
from sparklog.core.bounded_json import parse_json
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.errors import (
    NotServing,
    OutcomeUnknown,
    SparklogError,
    TopicAlreadyExists,
    Unavailable,
    UnknownTopicOrPartition,
)
from sparklog.core.topic_names import JOBS_TOPIC
from sparklog.core.types import TopicPartition
from sparklog.spark.access.leaders import registered
from sparklog.spark.schedule.schedule import ScheduledJob
from sparklog.spark.sink.leader_sink import LeaderAppends

HISTORY_TOPIC: Final = JOBS_TOPIC
DAY_MS: Final = 86_400_000
HISTORY_CONFIGS: Final[Mapping[str, str]] = {
    # Of a run only its newest record matters, and of a job its newest schedule: compaction. A run's
    # key does not come again, so without a limit of age all of them would stay: deletion.
    "cleanup.policy": "compact,delete",
    "retention.ms": str(180 * DAY_MS),
    # So that the storage alone shows a run a second after it has ended.
    "flush.ms": "1000",
}
REPORT_BYTES_MAX: Final = 32 * 1024
"""Of a longer report the partitions are left out: half a year of hourly runs is read at once."""
TIME_MAX_MS: Final = 253_402_300_799_999
"""The year 9999 ends: a later time cannot be shown."""

RUNNING: Final = "running"
DONE: Final = "done"
REPAIRED: Final = "repaired"
"""Done, and the damage is repaired."""
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
    """The first line of its report at its end, or its progress."""
    report: Mapping[str, Any] = field(default_factory=dict)
    """Its report with --json."""
    log: str = ""
    """Its last lines of progress, warnings, and the trace of a failure; empty if run by hand."""
    requests: Mapping[str, Any] = field(default_factory=dict)
    """Its requests to the store: see `counters.to_document`."""

    @property
    def ended(self) -> bool:
        """Return whether it goes on no more."""
        return self.outcome != RUNNING


@dataclass(frozen=True, slots=True)
class KnownJob:
    """A job's schedule, as an application recorded it when it began to run the job."""

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
    """A request to run a job now, or an application's answer that it runs it."""

    request_id: str
    """The id that the run will have."""
    job: str
    asker: str
    asked_ms: int
    taker: str = ""
    """The application that runs it: the first that says so, or the asker if it has given up
    waiting.
    """


@dataclass(slots=True)
class JobHistory:
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
        document = parse_json(value, "record of a job")
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


PARTITION: Final = TopicPartition(HISTORY_TOPIC, 0)
AGAIN_S: Final = 0.5
READ_TIMEOUT_S: Final = 10.0
CLOCKS_DIFFER_MS: Final = 3_600_000

MAY_PASS: Final = (NotServing, OutcomeUnknown, Unavailable, UnknownTopicOrPartition)
"""Errors that are raised while leaders change."""


def write_history(
    log: Log,
    record: JobRun | KnownJob | JobRequest,
    *,
    patience_s: float,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Append a record; create the topic if it does not exist.

    Raises:
        Unavailable, NotServing, OutcomeUnknown: not within `patience_s`, or unknown.
        SparklogError: the topic does not take it.
    """
    deadline_s = clock.monotonic_s() + patience_s
    writing = HistoryAppend(log, _row(record), clock)
    while True:
        try:
            writing.append()
            return
        except MAY_PASS:
            if clock.monotonic_s() >= deadline_s:
                raise
            clock.sleep_s(AGAIN_S)


def read_history(log: Log, since_ms: int | None = None) -> JobHistory:
    """Return what the log has of it, the leader's part included if a leader answers.

    `since_ms`: leave out what was written before, or for clocks that differ an hour earlier.

    Raises:
        Unavailable: the store does not answer. DataCorrupt: the topic is damaged.
    """
    history = JobHistory()
    image = log.refresh()
    topic = image.topics.get(HISTORY_TOPIC)
    if topic is None:
        return history
    partition = log.partition(HISTORY_TOPIC, 0)
    view = partition.view()
    start = view.log_start_offset
    if since_ms is not None:
        found = partition.offset_for_time(since_ms - CLOCKS_DIFFER_MS, view=view)
        start = view.end_offset if found is None else found.offset
    for batch in partition.read(start, view.end_offset, ("key", "value"), view=view):
        history.take(zip(*(batch.column(n).to_pylist() for n in ("key", "value")), strict=True))
    if addresses := leading(image):
        try:
            history.take(_consumed(addresses, view.end_offset, process_security().given))
        except MAY_PASS:
            pass  # the leader is going, and what it has comes with the next look
    return history


def consume_history(bootstrap: str, settings: Mapping[str, str]) -> JobHistory:
    """Return what brokers have of it. `settings` are those of TLS and SASL.

    Raises:
        Unavailable: no broker answers, or no broker has the topic.
    """
    history = JobHistory()
    history.take(_consumed(bootstrap, EARLIEST, settings))
    return history


def leading(image: MetadataImage) -> str:
    """Return the brokers to ask for the history, as bootstrap servers; '' if none leads it."""
    topic = image.topics.get(HISTORY_TOPIC)
    return registered(image) if topic is not None and is_led(topic) else ""


def history_end(bootstrap: str) -> int:
    """Return the offset behind the last record that brokers have.

    Raises:
        SparklogError: the leader does not say.
    """
    with Admin(bootstrap, settings=process_security().given) as admin:
        found = admin.offsets({PARTITION: LATEST})[PARTITION]
    if isinstance(found, SparklogError):
        raise found
    return found.offset


def is_led(topic: Topic) -> bool:
    """Return whether a broker leads the topic."""
    return any(state.leader >= 0 for state in topic.partition_states)


def _ensure(log: Log) -> None:
    if HISTORY_TOPIC in log.refresh().topics:
        return
    try:
        log.create_topic(HISTORY_TOPIC, 1, HISTORY_CONFIGS, by_cluster=True)
    except TopicAlreadyExists:
        pass  # another application did


def _row(record: JobRun | KnownJob | JobRequest) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([key_of(record)], pa.binary()),
            "value": pa.array([encode(record)], pa.binary()),
        }
    )


class HistoryAppend:
    """One record while it is appended; however often that is tried, it is staged once."""

    def __init__(self, log: Log, row: pa.RecordBatch, clock: Clock = SYSTEM_CLOCK) -> None:
        """Append `row`, with columns `key` and `value`; nothing happens before `append`."""
        self._log = log
        self._row = row
        self._append_led = LeaderAppends(log, None, clock)
        self._staged: StagedPartition | None = None

    def append(self) -> None:
        """Append directly, or through the leader. Raises as `write_history`."""
        _ensure(self._log)
        partition = self._log.partition(HISTORY_TOPIC, 0)
        try:
            partition.append([self._row])
            return
        except NotServing:
            if not registered(self._log.refresh()):
                raise
        if self._staged is None:
            reference = partition.stage([self._row])
            topic_id = partition.layout.topic_id
            self._staged = StagedPartition(HISTORY_TOPIC, topic_id, 0, (reference,))
        outcome = self._append_led([self._staged], None)[PARTITION]
        if isinstance(outcome, SparklogError):
            raise outcome


def _consumed(
    bootstrap: str, start: int, settings: Mapping[str, str]
) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Yield keys and values from an offset to the end.

    Raises:
        Unavailable: the end does not come.
    """
    deadline_s = SYSTEM_CLOCK.monotonic_s() + READ_TIMEOUT_S
    with Consumer(bootstrap, settings=settings) as consumer:
        consumer.assign({PARTITION: start})
        while PARTITION not in consumer.ends_reached:
            if SYSTEM_CLOCK.monotonic_s() > deadline_s:
                raise Unavailable(f"the leader of a topic does not answer. topic={HISTORY_TOPIC}")
            for record in consumer.poll(timeout_s=0.2):
                yield record.key, record.value
