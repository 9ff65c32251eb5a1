"""`sparklog jobs`: lists upkeep jobs and their runs, and runs one now.

Applications that run jobs store schedules and runs in the log, where this command reads them;
`--file` shows a schedule from a file. For a manual run it asks an idle application that serves the
log. Without one the job runs here, in a local Spark or at `--master`. The run is recorded like the
others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sparklog.cli.arguments import (
    Arguments,
    CommandParser,
    UsageError,
    check_options,
    counting_number,
    set_action,
)
from sparklog.cli.output import Output, say
from sparklog.cli.target import (
    add_log_options,
    bootstrap_of,
    client_settings_of,
    connected,
    opened_log,
    root_of,
)
from sparklog.cluster.log import Log
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.entropy import SYSTEM_ENTROPY, new_nonce
from sparklog.core.errors import InvalidRequest, SparklogError
from sparklog.core.shipped_files import JOB_NAMES, job_file
from sparklog.spark.schedule.cron import parse_cron, zone_of
from sparklog.spark.schedule.file import read_schedule
from sparklog.spark.schedule.history import (
    HISTORY_TOPIC,
    JobHistory,
    JobRequest,
    JobRun,
    KnownJob,
    consume_history,
    read_history,
)
from sparklog.spark.schedule.requests import JobRequests, application_name
from sparklog.spark.schedule.schedule import ScheduledJob

Row = tuple[str, ...]

FAILED = 1
RUNS_SHOWN = 20
_ACTIONS_OF_OPTION = {
    "job": ("history",),
    "max": ("history",),
    "file": ("list", "run"),
    "here": ("run",),
    "master": ("run",),
}
JOB_HEAD: Row = ("JOB", "KIND", "CRON", "ZONE", "NEXT", "LAST", "OUTCOME")
RUN_HEAD: Row = ("STARTED", "JOB", "TRIGGER", "OUTCOME", "CODE", "TOOK", "MESSAGE")


def configure(parser: CommandParser) -> None:
    """Declare the command's options."""
    add_log_options(parser)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--list", action="store_true", help="list the jobs, their last and next runs")
    what.add_argument("--history", action="store_true", help="list runs, the newest first")
    what.add_argument("--run", metavar="JOB", help="run a job now")
    what.add_argument(
        "--path", metavar="NAME", choices=JOB_NAMES,
        help="print the file of a job for spark-submit; `sparklog run` runs it without",
    )  # fmt: skip
    parser.add_argument("--job", metavar="JOB", help="with --history: only this job's runs")
    parser.add_argument(
        "--max", type=counting_number, metavar="N",
        help=f"with --history: how many runs (default {RUNS_SHOWN})",
    )  # fmt: skip
    parser.add_argument(
        "--file", type=Path, metavar="FILE",
        help="with --list and --run: the schedule, such as conf/jobs.toml (default: what "
        "applications said in the log)",
    )  # fmt: skip
    parser.add_argument(
        "--here", action="store_true",
        help="with --run: ask no application that serves the log, as with --file and --master",
    )  # fmt: skip
    parser.add_argument(
        "--master", metavar="URL", help="with --run: where Spark runs (default local[*])"
    )


def run(args: Arguments, output: Output) -> int:
    """Run the requested action, and return the exit code."""
    set_action(args, ("list", "history", "run", "path"))
    check_options(args, _ACTIONS_OF_OPTION)
    if args.action == "path":
        output.line(str(job_file(args.path)))
        return 0
    if args.action == "run":
        return _run_now(args, output)
    history = _history(args)
    if args.action == "history":
        runs = history.newest_first(args.job)[: args.max or RUNS_SHOWN]
        if not runs:
            say("note: no run is known here; `sparklog jobs --list` shows the jobs")
        _show(runs, output)
        return 0
    jobs = _jobs(args.file, history)
    if not jobs:
        say(
            "note: no jobs here; `sparklog serve --jobs conf/jobs.toml` runs some, and "
            "--file shows a schedule"
        )
    _list(jobs.values(), history, output)
    return 0


def _history(args: Arguments) -> JobHistory:
    bootstrap = bootstrap_of(args)
    if bootstrap is not None:
        with connected(args) as admin:
            known = HISTORY_TOPIC in admin.topic_names()
        return consume_history(bootstrap, client_settings_of(args)) if known else JobHistory()
    with opened_log(args) as log:
        return read_history(log)


def _jobs(path: Path | None, history: JobHistory) -> Mapping[str, ScheduledJob]:
    """Return the jobs of a file, or those in the log."""
    if path is not None:
        return {job.name: job for job in read_schedule(path).jobs}
    found = {}
    for name, known in sorted(history.jobs.items()):
        try:
            found[name] = _scheduled(known)
        except InvalidRequest as error:
            say(f"warning: a job's schedule is not understood: {error} job={name}")
    return found


def _scheduled(known: KnownJob) -> ScheduledJob:
    return ScheduledJob(
        name=known.job,
        kind=known.kind,
        cron=parse_cron(known.cron, zone_of(known.time_zone)),
        time_zone=known.time_zone,
        arguments=known.arguments,
        enabled=known.enabled,
    )


def _list(jobs: Iterable[ScheduledJob], history: JobHistory, output: Output) -> None:
    now_ms = SYSTEM_CLOCK.now_ms()
    rows = [JOB_HEAD]
    for job in jobs:
        last = history.last_run(job.name)
        next_ms = job.cron.next_ms(now_ms) if job.enabled else None
        following = _time(next_ms) if job.enabled else "disabled"
        ran = ("never", "-") if last is None else (_time(last.started_ms), last.outcome)
        expression = job.cron.expression
        rows.append((job.name, job.kind, expression, job.time_zone, following, *ran))
        output.document(
            {
                "type": "job",
                "job": job.name,
                "kind": job.kind,
                "cron": expression,
                "time_zone": job.time_zone,
                "arguments": list(job.arguments),
                "enabled": job.enabled,
                "next_ms": next_ms,
                "last_run": None if last is None else _fields(last),
            }
        )
    if len(rows) > 1:
        _print(rows, output)


def _show(runs: Iterable[JobRun], output: Output) -> None:
    rows = [RUN_HEAD]
    for one in runs:
        took = "-" if one.duration_ms is None else f"{one.duration_ms / 1000:.1f} s"
        code = "-" if one.exit_code is None else str(one.exit_code)
        rows.append(
            (_time(one.started_ms), one.job, one.trigger, one.outcome, code, took, one.message)
        )
        output.document({"type": "run", **_fields(one)})
    if len(rows) > 1:
        _print(rows, output)


def _print(rows: Sequence[Sequence[str]], output: Output) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        output.line("  ".join(cells).rstrip())


def _fields(one: JobRun) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__slots__}


def _time(ms: int | None) -> str:
    if ms is None:
        return "never"
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _run_now(args: Arguments, output: Output) -> int:
    if bootstrap_of(args) is not None:
        raise UsageError("a job works on the storage: give --root, not --bootstrap-server")
    root = root_of(args)
    if root is None:
        raise UsageError("which log? give --root URL")
    with opened_log(args) as log:
        jobs = _jobs(args.file, JobHistory() if args.file is not None else read_history(log))
        if args.run not in jobs:
            raise SparklogError(f"no such job: {args.run!r}; see `sparklog jobs --list`")
        if not (args.here or args.master or args.file):
            ended = _run_elsewhere(log, args.run)
            if ended is not None:
                say(f"job {ended.job}: {ended.outcome}: {ended.message}")
                output.document(ended.report)
                return FAILED if ended.exit_code is None else ended.exit_code
    from sparklog.spark.schedule.run_now import run_by_hand  # noqa: PLC0415 - brings Spark

    return run_by_hand(jobs[args.run], root, master=args.master, as_json=args.json)


def _run_elsewhere(log: Log, job: str) -> JobRun | None:
    """Ask an application to run a job, and return the run; None if it must run here."""
    now_ms = SYSTEM_CLOCK.now_ms()
    request = JobRequest(new_nonce(SYSTEM_ENTROPY), job, application_name(), now_ms)
    ended = JobRequests(log, request, say).run()
    if ended is None:
        say("note: no application that serves this log is free to run it; it runs here")
    return ended
