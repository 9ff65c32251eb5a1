"""A pipeline whose application is killed again and again: every record once in table and topic."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.cluster.log import Log, open_log
from sparklog.spark.pipeline.lineage import flows_of
from sparklog.spark.pipeline.project import PipelineProject, create_project

KILLS = 6
BEGINS_WITHIN_S = 400.0
KILLED_WITHIN_S = 12.0
"""After a process begins a batch of a flow: in the midst of that batch, or of one that follows."""
RECORDS = 50
SQL = """
CREATE STREAMING TABLE copies AS SELECT CAST(value AS STRING) AS value FROM STREAM orders;
"""
SINK = """
from pyspark import pipelines as dp

dp.create_sink("out", "sparklog", {{"path": {root!r}, "topic": "out"}})

@dp.append_flow(target="out", name="to_out")
def to_out():
    return spark.readStream.table("copies").selectExpr("CAST(value AS BINARY) AS value")
"""
READ = """
import sys
from sparklog.spark.pipeline.project import read_project
from sparklog.spark.pipeline.run import application_settings
from sparklog.spark.jobs.job import job_session
project = read_project(__import__("pathlib").Path(sys.argv[1]))
spark = job_session("read", application_settings(project, "local[2]"))
rows = spark.sql("SELECT value FROM copies").collect()
print("ROWS " + ",".join(sorted((row[0] for row in rows), key=int)))
"""


def produce(log: Log, first: int) -> None:
    values = [str(n).encode() for n in range(first, first + RECORDS)]
    rows = pa.record_batch({"value": pa.array(values, pa.binary())})
    log.partition("orders", first // RECORDS % 2).append([rows])


def written(log: Log) -> list[int]:
    """Return the committed values of the topic `out`, in order of their numbers."""
    partition = log.partition("out", 0)
    found = partition.read(0, partition.probe().end_offset, ("value",))
    return sorted(int(value) for batch in found for value in batch.column("value").to_pylist())


def batches(project: PipelineProject) -> dict[str, tuple[int | None, int | None]]:
    """Return for each flow the newest batch that it has begun, and the newest complete one."""
    return {one.flow: (one.batch, one.committed) for one in flows_of(project.storage)}


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_a_killed_pipeline_repeats_and_loses_nothing(tmp_path: Path) -> None:
    root = (tmp_path / "log").as_uri()
    log = open_log(root)
    log.create_topic("orders", 2)
    log.create_topic("out", 1)
    project = create_project(tmp_path / "p", root, ["orders"])
    (project.folder / "transformations" / "tables.sql").write_text(SQL)
    (project.folder / "transformations" / "sinks.py").write_text(SINK.format(root=root))
    command = [sys.executable, "-m", "sparklog.cli", "pipeline", "run", str(project.folder)]
    chance = random.Random(7)
    made = 0
    for kill in range(KILLS):
        flow = ("copies", "to_out")[kill % 2]  # the topic's flow begins when the table's is done
        run = subprocess.Popen(
            [*command, "--continuous", "--interval", "0", "--master", "local[2]"],
            start_new_session=True, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        before = batches(project).get(flow)
        began_s, ends_s = time.monotonic(), None
        while ends_s is None or time.monotonic() < ends_s:
            produce(log, made)
            made += RECORDS
            time.sleep(0.5)  # records go on arriving while it runs
            assert run.poll() is None, "it ended before it was killed"
            if ends_s is None and batches(project).get(flow) != before:
                ends_s = time.monotonic() + chance.uniform(0, KILLED_WITHIN_S)
            assert time.monotonic() < began_s + BEGINS_WITHIN_S, "it began no batch"
        os.killpg(run.pid, signal.SIGKILL)
        run.wait(30)
        print("killed at", batches(project), flush=True)
    subprocess.run([*command, "--master", "local[2]"], check=True)
    assert written(log) == list(range(made))
    read = subprocess.run(
        [sys.executable, "-c", READ, str(project.folder)],
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = [one for one in read.stdout.splitlines() if one.startswith("ROWS ")]
    assert list(map(int, line.removeprefix("ROWS ").split(","))) == list(range(made))
    status = subprocess.run(
        [sys.executable, "-m", "sparklog.cli", "pipeline", "status", str(project.folder), "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    last = [json.loads(one) for one in status.stdout.splitlines()]
    assert [one["batch"] == one["committed"] for one in last] == [True, True]
    (offsets,) = [one["written"]["out"]["0"] for one in last if one["flow"] == "to_out"]
    assert offsets[1] == made
