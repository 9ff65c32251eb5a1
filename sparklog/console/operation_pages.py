"""Pages of operations: brokers, jobs with their runs, snapshots, and transactions."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from threading import Lock
from typing import Any, Final

from sparklog.client.values import ConfigResource, TransactionDescription
from sparklog.cluster.named_snapshots import read_snapshot, snapshot_records
from sparklog.console.bill import KINDS
from sparklog.console.broker_activity import newest
from sparklog.console.cluster_view import ClusterView
from sparklog.console.resources import PAGE, BoundedValues, FieldSpec, PageResource, RowPage
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.counters import from_document
from sparklog.core.errors import InvalidRequest, ResourceNotFound, SparklogError, Unavailable
from sparklog.log.effects import run as run_protocol
from sparklog.spark.schedule.cron import parse_cron, zone_of
from sparklog.spark.schedule.dry_run import DRY_RUN_KINDS, dry_run
from sparklog.spark.schedule.history import JobRun, KnownJob

RUN_ROWS: Final = 50
TRANSACTION_ROWS: Final = 50
SNAPSHOT_PARTITIONS: Final = 500
HANGING_MS: Final = 15 * 60_000
"""Kafka's `transaction.max.timeout.ms`: beyond it no producer can still hold one open."""


DRY_RUN_PARTITIONS_MAX: Final = 100
_DRY_RUN: Final = Lock()
"""Held while one dry run reads: a second one would only slow both."""
OPEN_STATES: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})


def list_brokers(view: ClusterView, values: BoundedValues) -> dict[str, Any]:
    """Return the live brokers with the partitions that each leads and holds."""
    del values
    with view.administered() as admin:
        brokers = admin.brokers()
    leads: dict[int, int] = {}
    holds: dict[int, int] = {}
    behind: dict[int, int] = {}
    for topic in view.topics().values():
        for state in topic.partition_states:
            leads[state.leader] = leads.get(state.leader, 0) + 1
            for replica in state.replicas:
                holds[replica] = holds.get(replica, 0) + 1
                if replica not in state.isr:
                    behind[replica] = behind.get(replica, 0) + 1
    activity = None if view.bill is None else view.bill.activity
    return {
        "storage": view.kind == "root",
        "pages": None if activity is None else newest(activity.looks()),
        "brokers": [
            {
                "broker": one.broker_id,
                "address": f"{one.host}:{one.port}",
                "rack": one.rack,
                "controller": one.controller,
                "leads": leads.get(one.broker_id, 0),
                "replicas": holds.get(one.broker_id, 0),
                "outOfSync": behind.get(one.broker_id, 0),
            }
            for one in brokers
        ],
    }


def show_broker(view: ClusterView, values: BoundedValues) -> dict[str, Any]:
    """Return a broker's settings and log directories."""
    broker_id = values.whole("broker")
    with view.brokers_admin() as admin:
        found = next((b for b in admin.brokers() if b.broker_id == broker_id), None)
        if found is None:
            raise InvalidRequest(f"no live broker has this id. broker={broker_id}")
        settings = admin.configs(ConfigResource.BROKER, [str(broker_id)])[str(broker_id)]
        folders = admin.log_dirs(found)
    return {
        "broker": broker_id,
        "address": f"{found.host}:{found.port}",
        "controller": found.controller,
        "rack": found.rack,
        "logDirs": [
            {
                "path": folder.path,
                "replicas": len(folder.replicas),
                "bytes": sum(one.size_bytes for one in folder.replicas.values()),
                "problem": None if folder.error is None else str(folder.error),
            }
            for folder in folders
        ],
        "settings": [
            {
                "name": one.name,
                "value": "[hidden]" if one.sensitive else one.value,
                "source": one.source,
                "own": one.source not in {"DEFAULT_CONFIG"},
            }
            for one in settings
        ],
    }


JOBS_PARAMETERS: Final = (FieldSpec("job", "only the runs of this job", length_max=249), PAGE)


def list_jobs(view: ClusterView, values: BoundedValues) -> dict[str, Any]:
    """Return the schedule, and one page of runs, the newest first."""
    history = view.jobs()
    runs = history.newest_first(values.text("job") or None)
    page = RowPage.of(len(runs), values.whole("page"), RUN_ROWS)
    now_ms = SYSTEM_CLOCK.now_ms()
    return {
        **page.document(),
        "job": values.text("job"),
        "storage": view.kind == "root",
        "jobs": [
            {**_job(known, now_ms), "last": _run_or_none(history.last_run(name))}
            for name, known in sorted(history.jobs.items())
        ],
        "runs": [run_document(one) for one in runs[page.first : page.first + RUN_ROWS]],
    }


def _job(known: KnownJob, now_ms: int) -> dict[str, Any]:
    problem = next_ms = None
    try:
        cron = parse_cron(known.cron, zone_of(known.time_zone))
        next_ms = cron.next_ms(now_ms) if known.enabled else None
    except InvalidRequest as error:
        problem = str(error)
    return {
        "job": known.job,
        "kind": known.kind,
        "cron": known.cron,
        "timeZone": known.time_zone,
        "arguments": list(known.arguments),
        "enabled": known.enabled,
        "hasDryRun": known.kind in DRY_RUN_KINDS,
        "application": known.application,
        "next": next_ms,
        "problem": problem,
    }


def show_run(view: ClusterView, values: BoundedValues) -> dict[str, Any]:
    """Return one run with its report, its job's arguments, and the command of a dry run.

    Raises:
        ResourceNotFound: no such run.
    """
    history = view.jobs()
    found = history.runs.get(values.text("run"))
    if found is None:
        raise ResourceNotFound(f"no such run. run={values.text('run')}")
    known = history.jobs.get(found.job)
    requests = from_document(found.requests)
    counts = [one.requests for (kind, _), one in requests.items() if kind in KINDS]
    arguments = () if known is None else known.arguments
    return {
        **run_document(found),
        "scheduled": found.scheduled_ms,
        "heard": found.heard_ms,
        "arguments": list(arguments),
        "log": found.log,
        "requests": sum(counts) if counts else None,
        "report": json.dumps(found.report, indent=2, ensure_ascii=False) if found.report else "",
        "hasDryRun": view.kind == "root" and known is not None and found.kind in DRY_RUN_KINDS,
        "dryRun": dry_run_command(view, found.kind, arguments),
    }


def dry_run_command(view: ClusterView, kind: str, arguments: Sequence[str]) -> str | None:
    """Return the command that shows what a job would do; None if its kind has no dry run."""
    if kind not in DRY_RUN_KINDS or view.kind != "root":
        return None
    given = [one for one in arguments if one != "--dry-run"]
    return shlex.join(["sparklog", "run", kind, "--root", view.place, *given, "--dry-run"])


def show_dry_run(view: ClusterView, values: BoundedValues) -> dict[str, Any]:
    """Return what a job would do now in the first partitions of its topics.

    Raises:
        ResourceNotFound: no such job. Unavailable: another dry run is under way. Others as
            `dry_run`.
    """
    log, name = view.storage(), values.text("job")
    history = view.jobs()
    known = history.jobs.get(name)
    if known is None:
        raise ResourceNotFound(f"no application runs a job of this name. job={name}")
    if not _DRY_RUN.acquire(blocking=False):
        raise Unavailable("another dry run is under way; try again in a moment")
    try:
        runs = history.newest_first(name)
        found = dry_run(log, known.kind, known.arguments, DRY_RUN_PARTITIONS_MAX, runs)
    finally:
        _DRY_RUN.release()
    return {
        "job": name,
        "kind": known.kind,
        "lookedAt": found.looked_at,
        "partitions": found.partitions,
        "text": found.report.to_text(),
        "report": found.report.to_json(),
        "dryRun": dry_run_command(view, known.kind, known.arguments),
    }


def _run_or_none(one: JobRun | None) -> dict[str, Any] | None:
    return None if one is None else run_document(one)


def run_document(one: JobRun) -> dict[str, Any]:
    """Return a run as JSON values."""
    saved = None
    if one.bytes_before is not None and one.bytes_after is not None:
        saved = one.bytes_before - one.bytes_after
    return {
        "run": one.run_id,
        "job": one.job,
        "kind": one.kind,
        "trigger": one.trigger,
        "started": one.started_ms,
        "outcome": one.outcome,
        "exitCode": one.exit_code,
        "milliseconds": one.duration_ms,
        "recordsBefore": one.records_before,
        "recordsAfter": one.records_after,
        "bytesSaved": saved,
        "message": one.message,
        "application": one.application,
    }


def list_snapshots(view: ClusterView, values: BoundedValues) -> dict[str, Any]:
    """Return all named snapshots. Cost: a listing, and a request for each."""
    del values
    records = run_protocol(snapshot_records(), view.storage().store)
    return {
        "damaged": list(records.damaged),
        "snapshots": [
            {
                "name": one.name,
                "timestamp": one.timestamp_ms,
                "topics": one.topics,
                "partitions": len(one.partitions),
                "records": sum(p.rows for p in one.partitions),
                "bytes": sum(p.size_bytes for p in one.partitions),
            }
            for one in records.snapshots
        ],
    }


def show_snapshot(view: ClusterView, values: BoundedValues) -> dict[str, Any]:
    """Return the partitions of one snapshot."""
    found = read_snapshot(view.storage().store, values.text("snapshot"))
    return {
        "name": found.name,
        "timestamp": found.timestamp_ms,
        "topics": found.topics,
        "partitionCount": len(found.partitions),
        "partitions": [
            {
                "topic": one.topic,
                "partition": one.partition,
                "logStartOffset": one.log_start_offset,
                "endOffset": one.end_offset,
                "records": one.rows,
                "objects": one.objects,
                "bytes": one.size_bytes,
            }
            for one in found.partitions[:SNAPSHOT_PARTITIONS]
        ],
    }


TRANSACTIONS_PARAMETERS: Final = (
    FieldSpec("filter", "part of the transactional id"),
    FieldSpec("state", "only those in this state", length_max=40),
    PAGE,
)


def list_transactions(view: ClusterView, values: BoundedValues) -> dict[str, Any]:
    """Return one page of transactional ids, the shown ones with their times and partitions."""
    with view.brokers_admin() as admin:
        listed = admin.transactions.list()
        part, state = values.text("filter").lower(), values.text("state")
        chosen = sorted(
            one for one in listed
            if part in one.transactional_id.lower() and state in ("", one.state)
        )  # fmt: skip
        page = RowPage.of(len(chosen), values.whole("page"), TRANSACTION_ROWS)
        shown = chosen[page.first : page.first + TRANSACTION_ROWS]
        names = [one.transactional_id for one in shown]
        described = admin.transactions.describe(names) if names else {}
    now_ms = SYSTEM_CLOCK.now_ms()
    return {
        **page.document(),
        "filter": values.text("filter"),
        "state": state,
        "states": sorted({one.state for one in listed}),
        "transactions": [
            {
                "transactionalId": one.transactional_id,
                "state": one.state,
                "coordinator": one.coordinator_id,
                "producerId": one.producer_id,
                **_transaction(described[one.transactional_id], now_ms),
            }
            for one in shown
        ],
    }


def _transaction(found: TransactionDescription | SparklogError, now_ms: int) -> dict[str, Any]:
    if isinstance(found, SparklogError):
        return {"started": None, "hanging": False, "partitions": [], "timeout": None,
                "problem": str(found)}  # fmt: skip
    started = found.start_time_ms if found.state in OPEN_STATES else None
    limit_ms = max(found.timeout_ms, HANGING_MS)
    return {
        "started": started,
        "hanging": started is not None and now_ms - started > limit_ms,
        "partitions": [str(tp) for tp in found.partitions],
        "timeout": found.timeout_ms,
        "problem": None,
    }


PAGES: Final = (
    PageResource("/brokers", "brokers", "List live brokers.", "brokers.html", list_brokers),
    PageResource(
        "/brokers/{broker}", "broker", "Show a broker's settings and log directories.",
        "broker.html", show_broker, brokers_only=True,
    ),
    PageResource(
        "/jobs", "jobs", "List upkeep jobs and their runs.", "jobs.html", list_jobs,
        JOBS_PARAMETERS,
    ),
    PageResource(
        "/jobs/runs/{run}", "run", "Show a run of a job with its report.", "run.html", show_run,
    ),
    PageResource(
        "/jobs/{job}/dry-run", "dryRun", "Show what a job would do now.", "dry_run.html",
        show_dry_run, root_only=True,
    ),
    PageResource(
        "/snapshots", "snapshots", "List named snapshots.", "snapshots.html", list_snapshots,
        root_only=True,
    ),
    PageResource(
        "/snapshots/{snapshot}", "snapshot", "Show the partitions of a snapshot.",
        "snapshot.html", show_snapshot, root_only=True,
    ),
    PageResource(
        "/transactions", "transactions", "List transactions.", "transactions.html",
        list_transactions, TRANSACTIONS_PARAMETERS, brokers_only=True,
    ),
)  # fmt: skip
