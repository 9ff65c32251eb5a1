"""`sparklog pipeline`: lasting queries over topics, as projects of Spark Declarative Pipelines."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from sparklog.cli.arguments import Arguments, CommandParser, UsageError
from sparklog.cli.output import Output
from sparklog.cli.target import ROOT_VARIABLE, root_of
from sparklog.spark.pipeline.lineage import FlowProgress, flows_of
from sparklog.spark.pipeline.project import create_project, read_project

ACTIONS: Final = ("init", "run", "dry-run", "status")
INTERVAL_S: Final = 5.0
_EPILOG = """
examples:
  sparklog pipeline init orders-pipeline --root s3://bucket/log --topic orders
  sparklog pipeline dry-run orders-pipeline
  sparklog pipeline run orders-pipeline --continuous
  sparklog pipeline status orders-pipeline
"""


def configure(parser: CommandParser) -> None:
    """Declare the options."""
    parser.epilog = _EPILOG
    parser.add_argument("action", choices=ACTIONS, help="what to do")
    parser.add_argument("folder", type=Path, metavar="DIR", help="the project's folder")
    parser.add_argument(
        "--root", metavar="URL", help=f"with init: where the log is (default ${ROOT_VARIABLE})"
    )
    parser.add_argument(
        "--topic", action="append", default=[], metavar="NAME",
        help="with init: a topic to read; may be given more than once",
    )  # fmt: skip
    parser.add_argument(
        "--continuous", action="store_true", help="with run: update again until stopped"
    )
    parser.add_argument(
        "--interval", type=float, metavar="SECONDS",
        help=f"with --continuous: from one update to the next (default {INTERVAL_S:g})",
    )  # fmt: skip
    parser.add_argument("--master", metavar="URL", help="where Spark runs (default local[*])")
    parser.add_argument("--refresh", metavar="TABLE,…", help="with run: update only these tables")
    parser.add_argument(
        "--full-refresh", metavar="TABLE,…",
        help="with run: empty these tables, and compute them from all records",
    )  # fmt: skip
    parser.add_argument(
        "--full-refresh-all", action="store_true", help="with run: the same for all tables"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: Arguments, output: Output) -> int:
    """Run the action, and return the exit code."""
    if args.action == "init":
        made = create_project(args.folder, root_of(args), args.topic)
        output.put(f"created {made.spec}", {"pipeline": made.name, "spec": str(made.spec)})
        return 0
    if args.action == "status":
        project = read_project(args.folder)
        for flow in flows_of(project.storage, project.sinks()):
            output.put(_line(flow), flow.document())
        return 0
    return _run(args)


def _run(args: Arguments) -> int:
    from sparklog.spark.jobs.job import run_job  # noqa: PLC0415 - loads pyspark
    from sparklog.spark.pipeline.run import PipelineJob, run_pipeline  # noqa: PLC0415

    job = PipelineJob(
        args.folder,
        dry_run=args.action == "dry-run",
        interval_s=_interval_of(args),
        full_refresh=_names(args.full_refresh),
        full_refresh_all=args.full_refresh_all,
        refresh=_names(args.refresh),
        master=args.master,
        json=args.json,
    )
    if job.full_refresh_all and (job.full_refresh or job.refresh):
        raise UsageError("--full-refresh-all goes with no other refresh")
    return run_job("sparklog pipeline", lambda _: job, run_pipeline, ())


def _interval_of(args: Arguments) -> float | None:
    if not args.continuous:
        if args.interval is not None:
            raise UsageError("--interval is for --continuous")
        return None
    if args.action == "dry-run":
        raise UsageError("--continuous is for run")
    interval_s = INTERVAL_S if args.interval is None else float(args.interval)
    if not (math.isfinite(interval_s) and interval_s >= 0):
        raise UsageError("--interval takes seconds from 0")
    return interval_s


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def _line(flow: FlowProgress) -> str:
    done = "-" if flow.committed is None else flow.committed
    begun = "-" if flow.batch is None else flow.batch
    return (
        f"Target: {flow.target}\tFlow: {flow.flow}\tBatch: {begun}\tCommitted: {done}\t"
        f"From: {_offsets(flow.before)}\tUntil: {_offsets(flow.sources)}\t"
        f"Written: {_offsets([flow.written] if flow.written else [])}"
    )


def _offsets(sources: Sequence[Any]) -> str:
    texts = (json.dumps(one, separators=(",", ":")) for one in sources)
    return " ".join(texts) or "-"
