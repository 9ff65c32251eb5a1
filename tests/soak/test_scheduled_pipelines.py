"""Pipelines in the schedule of a serving application: one that repeats, one that goes on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.client.admin import Admin
from sparklog.client.producer import Producer
from sparklog.cluster.log import open_log
from sparklog.spark.pipeline.lineage import FlowProgress, flows_of
from sparklog.spark.pipeline.project import PipelineProject, create_project
from tests.bench.common.process_memory import descendants, is_running
from tests.harness.waiting import eventually
from tests.peers.sparklog import SparklogCluster

RECORDS = 100
SQL = "CREATE STREAMING TABLE seen AS SELECT CAST(value AS STRING) AS value FROM STREAM orders;"
SINK = """
from pyspark import pipelines as dp

dp.create_sink({out!r}, "sparklog", {{"path": {root!r}, "topic": {out!r}}})

@dp.append_flow(target={out!r}, name="to_out")
def to_out():
    stream = spark.readStream.format("sparklog").option("path", {root!r})
    stream = stream.option("subscribe", "orders").option("startingOffsets", "earliest")
    return stream.load().select("value")
"""
SCHEDULE = """
[scheduler]
at_once = 2

[jobs.repeating]
kind = "pipeline"
cron = "* * * * *"
arguments = ["{repeating}"]

[jobs.lasting]
kind = "pipeline"
cron = "* * * * *"
arguments = ["{lasting}", "--continuous", "1"]
"""
WITHIN_S = 300.0


def made(tmp_path: Path, name: str) -> PipelineProject:
    """Return a project with a table and a sink, whose topic has the project's name."""
    root = (tmp_path / "log").as_uri()
    project = create_project(tmp_path / "projects" / name, root, ["orders"])
    definitions = project.folder / "transformations"
    (definitions / "tables.sql").write_text(SQL)
    (definitions / "sinks.py").write_text(SINK.format(root=root, out=name))
    return project


def produce(cluster: SparklogCluster, first: int) -> None:
    with Producer(cluster.bootstrap) as producer:
        for number in range(first, first + RECORDS):
            producer.send("orders", b"%d" % number)


def written(tmp_path: Path, topic: str) -> list[int]:
    """Return the numbers that the topic has on storage, in order."""
    with open_log((tmp_path / "log").as_uri()) as log:
        partition = log.partition(topic, 0)
        batches = partition.read(0, partition.probe().end_offset, ("value",))
        values = pa.chunked_array([b.column("value") for b in batches], pa.binary()).to_pylist()
    return sorted(int(value) for value in values)


def wait_written(tmp_path: Path, topic: str, count: int) -> None:
    numbers = list(range(count))
    eventually(lambda: written(tmp_path, topic) == numbers, topic, WITHIN_S, 2.0)


def to_out(project: PipelineProject) -> FlowProgress:
    (found,) = (f for f in flows_of(project.storage, project.sinks()) if f.flow == "to_out")
    return found


def pipelines(cluster: SparklogCluster, project: PipelineProject) -> list[int]:
    """Return the processes that run a project for the schedule."""
    mine = descendants(cluster.process.pid)
    return [pid for pid in mine if is_running(pid, f"pipeline\0run\0{project.folder}")]


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_schedule_runs_pipelines_until_the_application_ends(tmp_path: Path) -> None:
    repeating, lasting = made(tmp_path, "repeating"), made(tmp_path, "lasting")
    schedule = tmp_path / "jobs.toml"
    schedule.write_text(SCHEDULE.format(repeating=repeating.folder, lasting=lasting.folder))
    root = (tmp_path / "log").as_uri()
    words = ("--brokers", "1", "--jobs", str(schedule))
    with SparklogCluster(tmp_path / "first", *words, root=root) as cluster:
        with Admin(cluster.bootstrap) as admin:
            for topic in ("orders", "repeating", "lasting"):
                admin.create_topic(topic, 1)
        made_so_far = 0
        for _ in range(2):
            produce(cluster, made_so_far)
            made_so_far += RECORDS
            for project in (repeating, lasting):
                wait_written(tmp_path, project.name, made_so_far)
        assert cluster.until("job", job="repeating", outcome="done")
        for project in (repeating, lasting):
            flow = complete(project)
            assert flow.sources == ({"orders": {"0": made_so_far}},)
            assert flow.written is not None
            assert [one and one[1] for one in flow.written[project.name].values()] != [None]
        assert not [one for one in cluster.seen if one.get("outcome") == "failed"]
        (process,) = pipelines(cluster, lasting)
        cluster.process.send_signal(signal.SIGTERM)
        assert cluster.rest()[-1]["drained"] == 1
        eventually(lambda: not is_running(process, "pipeline"), "the end of the pipeline", 60.0)
    with SparklogCluster(tmp_path / "second", *words, root=root) as cluster:
        (process,) = eventually(lambda: pipelines(cluster, lasting), "a new run", WITHIN_S, 1.0)
        os.kill(cluster.process.pid, signal.SIGKILL)
        eventually(lambda: not is_running(process, "pipeline"), "the end of the pipeline", 60.0)
    assert written(tmp_path, "lasting") == list(range(made_so_far))


def complete(project: PipelineProject) -> FlowProgress:
    """Wait until the newest batch is complete, and return the flow."""

    def look() -> FlowProgress | None:
        flow = to_out(project)
        return flow if flow.batch == flow.committed and flow.written else None

    return eventually(look, "a complete batch", WITHIN_S, 1.0)
