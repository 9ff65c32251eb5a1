"""The overview: what is wrong, since when, and what to do about it; and what there is.

The page looks at metadata and at the job history, never at each partition's objects. So it costs
the same few requests for any number of topics. A finding's time is that of the job run or, where
the log has none, the first time that this console saw it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

from sparklog.cli.commands.topics import wanted_replicas
from sparklog.client.values import ServingBroker
from sparklog.cluster.metadata.image import Topic
from sparklog.console.bill import KINDS, Bill, requests_cost
from sparklog.console.broker_activity import gauge_chart, growth, newest, rate_chart
from sparklog.console.cluster_view import ClusterView
from sparklog.console.operation_pages import run_document
from sparklog.console.resources import BoundedValues, PageResource
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.counters import RequestCount
from sparklog.core.errors import SparklogError
from sparklog.core.topic_names import LISTED_AS_INTERNAL
from sparklog.core.types import NO_TIMESTAMP_MS
from sparklog.spark.schedule.history import DONE, REPAIRED, RUNNING, JobHistory, JobRun

NAMES_SHOWN: Final = 5
RUNS_SHOWN: Final = 5
BAD: Final = "bad"
WARNING: Final = "warning"
NOTE: Final = "note"


@dataclass(frozen=True, slots=True)
class HealthFinding:
    """One thing that is wrong."""

    finding: str
    """A short name, the same while it lasts."""
    severity: str
    what: str
    do: str
    since_ms: int | None = None
    link: str = ""


@dataclass(slots=True)
class FindingTimes:
    """When this console first saw each finding that lasts. Thread-safe."""

    first: dict[str, int] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def dated(self, place: str, found: Iterable[HealthFinding]) -> list[dict[str, Any]]:
        """Return findings as JSON values with times; forget those that ended."""
        now_ms = SYSTEM_CLOCK.now_ms()
        rows = []
        with self.lock:
            present = {}
            for one in found:
                key = f"{place}\n{one.finding}"
                present[key] = self.first.get(key, now_ms)
                since = present[key] if one.since_ms is None else one.since_ms
                rows.append(
                    {
                        "finding": one.finding,
                        "severity": one.severity,
                        "what": one.what,
                        "since": since,
                        "seenByConsole": one.since_ms is None,
                        "do": one.do,
                        "link": one.link,
                    }
                )
            kept = {k: t for k, t in self.first.items() if not k.startswith(f"{place}\n")}
            self.first = {**kept, **present}
        return rows


TIMES: Final = FindingTimes()


def show_overview(view: ClusterView, values: BoundedValues) -> dict[str, Any]:
    """Return the state of the log. Cost: metadata, and the job history."""
    del values
    topics = view.topics()
    with view.administered() as admin:
        brokers = admin.brokers()
    history, trouble = JobHistory(), None
    try:
        history = view.jobs()
    except SparklogError as error:
        trouble = str(error)
    found = [
        *partition_findings(topics, brokers),
        *job_findings(history),
    ]
    states = [state for topic in topics.values() for state in topic.partition_states]
    own = [name for name in topics if name not in LISTED_AS_INTERNAL]
    retained = _last_retention(history)
    return {
        "kind": view.kind,
        "place": view.place,
        "time": SYSTEM_CLOCK.now_ms(),
        "findings": TIMES.dated(view.place, found),
        "jobsProblem": trouble,
        "topics": len(own),
        "internalTopics": len(topics) - len(own),
        "partitions": len(states),
        "ledPartitions": sum(state.leader >= 0 for state in states),
        "brokers": len(brokers),
        "controller": next((one.broker_id for one in brokers if one.controller), None),
        "jobs": len(history.jobs),
        "runs": [run_document(one) for one in history.newest_first()[:RUNS_SHOWN]],
        "stored": None if retained is None else retained.bytes_after,
        "storedAsOf": None if retained is None else retained.heard_ms,
        "traffic": _traffic(view.bill),
    }


def _last_retention(history: JobHistory) -> JobRun | None:
    """Return the newest run that has looked at the bytes of all topics."""
    return next(
        (
            run
            for run in history.newest_first()
            if run.kind in ("retain", "verify")
            and run.outcome in (DONE, REPAIRED)
            and run.bytes_after is not None
            and (known := history.jobs.get(run.job)) is not None
            and not any(word.startswith("--topic") for word in known.arguments)
        ),
        None,
    )


def _traffic(bill: Bill | None) -> dict[str, Any] | None:
    """Return what the brokers' pages said in the last hour; None if no page is known."""
    if bill is None or bill.activity is None:
        return None
    looks = bill.activity.looks()
    requests = {
        kind: RequestCount(sum(round(grown) for _, _, grown in growth(looks, f"store {kind}")), 0)
        for kind in KINDS
    }
    return {
        "brokers": newest(looks),
        "seconds": round(looks[-1][0] - looks[0][0]) if looks else 0,
        "requests": sum(one.requests for one in requests.values()),
        "cost": requests_cost(bill.prices, requests),
        "currency": bill.prices.currency,
        "records": rate_chart(looks, "records"),
        "bytesIn": rate_chart(looks, "in"),
        "bytesOut": rate_chart(looks, "out"),
        "produce": gauge_chart(looks, "produce"),
        "fetch": gauge_chart(looks, "fetch"),
    }


def partition_findings(
    topics: Mapping[str, Topic], brokers: Iterable[ServingBroker]
) -> list[HealthFinding]:
    """Return what is wrong with leaders and replicas."""
    live = {one.broker_id for one in brokers}
    lost: list[str] = []
    behind: list[str] = []
    short: list[str] = []
    for topic in topics.values():
        minimum = int(topic.settings.get("min.insync.replicas") or 1)
        for number, state in enumerate(topic.partition_states):
            name = f"{topic.name}-{number}"
            if state.replicas and state.leader not in live:
                lost.append(name)
            elif state.leader >= 0 and len(state.isr) < minimum:
                short.append(name)
            elif len(state.isr) < len(wanted_replicas(state)):
                behind.append(name)
    found = []
    if lost and not live:
        found.append(
            HealthFinding(
                "no-brokers", WARNING,
                f"No broker serves the log, and brokers led {len(lost):,} partitions.",
                "Start brokers with `sparklog serve`; until then records can be read here, "
                "and appends to these partitions wait.", link="/brokers",
            )
        )  # fmt: skip
    elif lost:
        found.append(
            HealthFinding(
                "no-leader", BAD, f"{_some(lost)} have no live leader.",
                "Look at the brokers' logs; a new leader takes over within seconds. If none does, "
                "run `sparklog doctor`.", link="/brokers",
            )
        )  # fmt: skip
    if short:
        found.append(
            HealthFinding(
                "under-min-isr", BAD,
                f"{_some(short)} have fewer replicas in sync than min.insync.replicas: producers "
                "with acks=all are rejected.",
                "Start the missing brokers, or lower min.insync.replicas.", link="/brokers",
            )
        )  # fmt: skip
    if behind:
        found.append(
            HealthFinding(
                "under-replicated", WARNING, f"{_some(behind)} have replicas out of sync.",
                "The storage has every acknowledged record. If it lasts, look at the slow broker.",
                link="/brokers",
            )
        )  # fmt: skip
    return found


def job_findings(history: JobHistory) -> list[HealthFinding]:
    """Return the jobs whose last run failed, and an empty schedule."""
    found = []
    for name in sorted({run.job for run in history.runs.values()}):
        last = history.last_run(name)
        if last is None or last.outcome in {DONE, REPAIRED, RUNNING}:
            continue
        found.append(
            HealthFinding(
                f"job-{name}", BAD, f"The last run of job {name} ended as {last.outcome}: "
                f"{last.message or 'it left no message'}",
                "Read its history, correct the cause, and run the job again.",
                max(last.started_ms, NO_TIMESTAMP_MS), f"/jobs?job={name}",
            )
        )  # fmt: skip
    if not history.jobs and not history.runs:
        found.append(
            HealthFinding(
                "no-jobs", NOTE, "No upkeep job runs here: nothing deletes old records.",
                "Serve with a schedule (`sparklog serve --jobs conf/jobs.toml`), or run "
                "`sparklog run retain` from cron.", link="/jobs",
            )
        )  # fmt: skip
    return found


def _some(names: list[str]) -> str:
    listed = ", ".join(sorted(names)[:NAMES_SHOWN])
    more = f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
    return f"{len(names):,} partitions ({listed}{more})"


PAGES: Final = (
    PageResource("/", "overview", "Show the state of the log.", "overview.html", show_overview),
)
