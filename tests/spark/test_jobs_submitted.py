"""The jobs as processes: submitted to Spark or run by Python, interrupted, called wrongly."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyspark

from sparklog.cluster.log import Log, open_log
from sparklog.spark.demo.consumers import read_delta
from tests.harness.waiting import eventually
from tests.peers.sparklog import spark_environment

JOBS = Path(__file__).parents[2] / "jobs"
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
CONF = (
    # Processes of the suite run side by side, over a few rows each.
    *("--master", "local[2]", "--conf", "spark.ui.enabled=false"),
    *("--conf", "spark.sql.shuffle.partitions=2"),
    # Short work on few cores: start fast rather than run fast.
    *("--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1"),
    *("--conf", "spark.databricks.delta.snapshotPartitions=1"),
)
DEADLINE_S = 600

MakeLog = Callable[..., Log]


def _environment(log_root: str) -> Mapping[str, str]:
    return {
        **spark_environment(),
        "SPARKLOG_ROOT": log_root,
        # For those that run without spark-submit.
        "PYSPARK_SUBMIT_ARGS": " ".join([*CONF, "pyspark-shell"]),
    }


def _run(words: list[str], tmp_path: Path, log_root: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        env=_environment(log_root),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def test_a_submitted_producer_and_a_delta_consumer_run_by_themselves(
    tmp_path: Path, log_root: str
) -> None:
    (tmp_path / "people.csv").write_text("id,name\n1,ann\n2,bob\n")
    produced = _run(
        [str(SUBMIT), *CONF, str(JOBS / "produce.py"), "--topic", "people", "--create",
         "--partitions", "2", "--input", "people.csv", "--key", "id", "--json"],
        tmp_path, log_root,
    )  # fmt: skip
    assert produced.returncode == 0, produced.stderr
    (report,) = [json.loads(line) for line in produced.stdout.splitlines() if line[:1] == "{"]
    assert (report["topic"], report["rows"], report["created"]) == ("people", 2, True)
    with open_log(log_root) as log:
        ends = [log.partition("people", n).view().end_offset for n in range(2)]
    assert sum(ends) == 2

    table = tmp_path / "table"
    consumed = _run(
        [sys.executable, str(JOBS / "consume.py"), "--topic", "people", "--to", "delta",
         "--output", str(table), "--from-offset", "earliest", "--available-now",
         "--checkpoint", str(tmp_path / "checkpoint"),
         "--value-as", "json", "--value-schema", "id INT, name STRING", "--select", "value.*"],
        tmp_path, log_root,
    )  # fmt: skip
    assert consumed.returncode == 0, consumed.stderr
    assert "consumed 2 records of people" in consumed.stderr
    names = sorted(read_delta(table).column("name").to_pylist())
    assert names == ["ann", "bob"]


def test_a_wrong_call_is_2_and_a_failure_1_without_a_trace(tmp_path: Path, log_root: str) -> None:
    wrong = _run([sys.executable, str(JOBS / "produce.py"), "--input", "x.csv"], tmp_path, log_root)
    assert wrong.returncode == 2
    assert "--topic" in wrong.stderr
    words = [sys.executable, str(JOBS / "consume.py"), "--topic", "nosuch"]
    failed = _run(words, tmp_path, log_root)
    assert failed.returncode == 1
    assert failed.stderr.startswith("error: ")
    assert "topic=nosuch" in failed.stderr
    assert failed.stderr.count("\n") == 1


def test_interrupted_stream_reports_its_work_and_ends_with_130(
    tmp_path: Path, log_root: str, make_log: MakeLog
) -> None:
    make_log(t=1).partition("t", 0).append([pa.record_batch({"value": [b"x", b"y"]})])
    words = [sys.executable, str(JOBS / "consume.py"), "--topic", "t", "--stream",
             "--from-offset", "earliest", "--select", "value",
             "--checkpoint", str(tmp_path / "checkpoint")]  # fmt: skip
    with subprocess.Popen(
        words,
        env=_environment(log_root),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        printed = [process.stdout.readline() for _ in range(2)]
        committed = tmp_path / "checkpoint" / "commits" / "0"
        eventually(committed.exists, "the batch is committed", DEADLINE_S)
        process.send_signal(signal.SIGINT)
        rest, said = process.communicate(timeout=DEADLINE_S)
    assert printed == ['{"value":"x"}\n', '{"value":"y"}\n']
    assert not rest
    assert process.returncode == 130, said
    assert "consumed 2 records of t" in said
    assert "Traceback" not in said


def test_submitted_stream_stops_cleanly_on_a_signal_to_its_jvm(
    tmp_path: Path, log_root: str, make_log: MakeLog
) -> None:
    make_log(t=1).partition("t", 0).append([pa.record_batch({"value": [b"x", b"y"]})])
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    words = [str(SUBMIT), *CONF, str(JOBS / "consume.py"), "--topic", "t", "--stream",
             "--from-offset", "earliest", "--to", "parquet", "--output", str(table),
             "--checkpoint", str(checkpoint)]  # fmt: skip
    with subprocess.Popen(
        words,
        env=_environment(log_root),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        eventually((checkpoint / "commits" / "0").exists, "the batch is committed", DEADLINE_S)
        process.send_signal(signal.SIGTERM)  # spark-submit's JVM: it replaced the shell
        said, _ = process.communicate(timeout=DEADLINE_S)
    assert "consumed 2 records of t" in said, said
    assert "Traceback" not in said
    assert process.returncode == 143
