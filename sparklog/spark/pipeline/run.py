"""Runs a pipeline's project: one update after the other in one Spark application.

Spark Declarative Pipelines take definitions through Spark Connect only. So this process starts a
classic session with the Connect service inside it, and speaks to that over loopback with a token.

  PIPELINE-1: a flow's checkpoint decides where it goes on. A run that is killed anywhere repeats
      its last batch, which tables and topics take once
  PIPELINE-2: one run at a time has a project's folder
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any, Final

from pyspark.sql import SparkSession

from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.entropy import SYSTEM_ENTROPY, new_nonce
from sparklog.core.errors import InvalidConfig
from sparklog.spark.jobs.jars import DELTA_CATALOG, delta_conf
from sparklog.spark.jobs.job import OpenSession
from sparklog.spark.jobs.progress import JobProgress
from sparklog.spark.jobs.streaming import StopRequest
from sparklog.spark.pipeline.project import EXTRA, PipelineProject, read_project

LIBRARIES: Final = ("grpc", "grpc_status", "google.rpc", "zstandard", "yaml")
TOKEN_VARIABLE: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105 - a name, no token
MODE_VARIABLE: Final = "SPARK_CONNECT_MODE_ENABLED"
POLL_S: Final = 0.2
PARENT_VARIABLE: Final = "SPARKLOG_PIPELINE_PARENT"
"""Id of the process with which the run ends; unset: it ends by itself."""
ORPHANED: Final = 86

_COMPLETED: Final = " has COMPLETED."


@dataclass(frozen=True, slots=True)
class PipelineJob:
    """A project, and how to run it."""

    folder: Path
    dry_run: bool = False
    """Check the definitions, and run nothing."""
    interval_s: float | None = None
    """Seconds between updates until the process is asked to end; None: one update."""
    full_refresh: tuple[str, ...] = ()
    full_refresh_all: bool = False
    refresh: tuple[str, ...] = ()
    master: str | None = None
    json: bool = False


@dataclass(frozen=True, slots=True)
class PipelineReport:
    """The results of a run."""

    name: str
    updates: int
    flows: int
    """Flows that completed, in all updates."""
    seconds: float
    ended_by: int | None = None
    printed: bool = False

    def to_text(self) -> str:
        """Return one line."""
        return (
            f"{self.name}: {self.updates} updates, {self.flows} flows completed "
            f"in {self.seconds:.1f} s"
        )

    def to_json(self) -> str:
        """Return one JSON object."""
        document = {"pipeline": self.name, "updates": self.updates, "flows": self.flows,
                    "seconds": round(self.seconds, 3)}  # fmt: skip
        return json.dumps(document, separators=(",", ":"))


def run_pipeline(
    job: PipelineJob, open_session: OpenSession, progress: JobProgress
) -> PipelineReport:
    """Run updates in this process, until there is nothing left to do or the process is to end.

    Raises:
        InvalidConfig: packages are missing. InvalidRequest: no project.
        Unavailable: another process runs it. PySparkException: a definition, or a flow.
    """
    check_libraries()
    _end_with_parent()
    project = read_project(job.folder)
    updates = flows = 0
    with project.locked(), _token():
        spark = open_session(application_settings(project, job.master))
        progress.start()
        with connect_session(spark, project) as session, StopRequest() as request:
            while request.exit_code is None:
                started_s = SYSTEM_CLOCK.monotonic_s()
                flows += update(session, project, job, progress.say)
                updates += 1
                if job.interval_s is None:
                    break
                _wait(started_s + job.interval_s, request)
            return PipelineReport(
                project.name, updates, flows, progress.elapsed_s(), request.exit_code
            )


def check_libraries() -> None:
    """Check that Spark Connect's packages are here. Raises InvalidConfig."""
    for name in LIBRARIES:
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise InvalidConfig(f"pipelines need more packages: {EXTRA} missing={name}")


def application_settings(project: PipelineProject, master: str | None) -> dict[str, str]:
    """Return the settings of a pipeline's Spark application; those of the spec go before ours."""
    folder = project.folder
    return {
        **delta_conf(),
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        "spark.hadoop.javax.jdo.option.ConnectionURL": (
            f"jdbc:derby:;databaseName={folder / 'metastore'};create=true"
        ),
        "spark.driver.defaultJavaOptions": f'"-Dderby.stream.error.file={folder / "derby.log"}"',
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        **project.configuration,
        **({"spark.master": master} if master is not None else {}),
    }


@contextmanager
def connect_session(spark: SparkSession, project: PipelineProject) -> Iterator[Any]:
    """Yield a session of Spark Connect to the application of `spark`."""
    from pyspark.sql.connect.session import SparkSession as ConnectSession  # noqa: PLC0415

    jvm: Any = spark._jvm  # noqa: SLF001 - Python has no other way
    service = getattr(jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    service = getattr(service, "MODULE$")
    if not service.started():
        service.start(spark.sparkContext._jsc.sc())  # noqa: SLF001
    url = f"sc://localhost:{service.localPort()}"
    with _variable(MODE_VARIABLE, "1"):
        session = ConnectSession.builder.remote(url).create()
        try:
            tables = {**DELTA_CATALOG, "spark.sql.sources.default": "delta"}
            for name, value in {**tables, **project.configuration}.items():
                if session.conf.isModifiable(name):
                    session.conf.set(name, value)
            yield session
        finally:
            session.client.close()


def update(
    session: Any, project: PipelineProject, job: PipelineJob, say: Callable[[str], None]
) -> int:
    """Run one update, or only check the definitions; return how many flows completed.

    Raises:
        PySparkException: a definition is wrong, or a flow failed.
    """
    from pyspark.pipelines import cli, spark_connect_pipeline  # noqa: PLC0415 - of Connect

    from sparklog.spark.pipeline.sinks import SinkNotes, keep_sinks  # noqa: PLC0415

    spec = cli.load_pipeline_spec(project.spec)
    graph = spark_connect_pipeline.create_dataflow_graph(
        session, spec.catalog, spec.database, dict(spec.configuration)
    )
    elements = SinkNotes(session, graph)
    with contextlib.redirect_stdout(sys.stderr):  # where the definitions print, too
        cli.register_definitions(project.spec, elements, spec, session, graph)
    if not job.dry_run:
        keep_sinks(project.folder, elements.roots)
    events = spark_connect_pipeline.start_run(
        session,
        graph,
        full_refresh=list(job.full_refresh),
        full_refresh_all=job.full_refresh_all,
        refresh=list(job.refresh),
        dry=job.dry_run,
        storage=spec.storage,
    )
    completed = 0
    for result in events:
        event = result.get("pipeline_event_result")
        if event is not None:
            message = str(event.event.message)
            say(message)
            completed += message.endswith(_COMPLETED)
    return completed


def _wait(until_s: float, request: StopRequest) -> None:
    while request.exit_code is None:
        left_s = until_s - SYSTEM_CLOCK.monotonic_s()
        if left_s <= 0:
            return
        SYSTEM_CLOCK.sleep_s(min(left_s, POLL_S))


def _end_with_parent() -> None:
    """Have this process end when the one that started it for a schedule is gone."""
    given = os.environ.get(PARENT_VARIABLE)  # noqa: TID251 - this is the edge
    if given is None:
        return

    def watch() -> None:
        while str(os.getppid()) == given:
            SYSTEM_CLOCK.sleep_s(POLL_S)
        os._exit(ORPHANED)  # its JVM follows, and its last batch is repeated (PIPELINE-1)

    Thread(target=watch, name="sparklog-parent", daemon=True).start()


def _token() -> contextlib.AbstractContextManager[None]:
    """Give the JVM and this process a token in their environment, which other users do not see."""
    given = os.environ.get(TOKEN_VARIABLE)  # noqa: TID251 - this is the edge
    return _variable(TOKEN_VARIABLE, given or new_nonce(SYSTEM_ENTROPY))


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    """Set a variable of the environment meanwhile."""
    environment = os.environ  # noqa: TID251 - this is the edge
    before = environment.get(name)
    environment[name] = value
    try:
        yield
    finally:
        if before is None:
            environment.pop(name, None)
        else:
            environment[name] = before
