"""Usage reports of commands, jobs and applications agree with the requests to an S3 server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pyspark
import pytest

from sparklog.cluster.log import Log, open_log
from sparklog.cluster.usage_reports import UsageReport, read_usage, sum_of, usage_listing
from sparklog.console.root_view import RootView
from sparklog.core.counters import RequestCount, add_to, by_kind
from sparklog.log.effects import run
from tests.harness.console_browser import Browser, browser_of
from tests.harness.fault_proxy import counted_store
from tests.peers.sparklog import spark_environment

ROOT = "s3://billed/log"
JOBS = Path(__file__).parents[2] / "jobs"
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
COMMAND = str(Path(sys.executable).with_name("sparklog"))
CONF = (
    # Executors are processes of their own, as in a cluster; the suite runs others beside them.
    *("--master", "local-cluster[2,1,1024]", "--conf", "spark.ui.enabled=false"),
    *("--conf", "spark.sql.shuffle.partitions=2"),
)
DEADLINE_S = 600
APPLICATION = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("copies").getOrCreate()
rows = spark.read.format("sparklog").option("path", "{root}").option("subscribe", "flights").load()
assert rows.count() == 3000, rows.count()
stream = (
    spark.readStream.format("sparklog").option("path", "{root}").option("subscribe", "flights")
    .option("startingOffsets", "earliest").load()
    .selectExpr("'copies' AS topic", "value")
    .writeStream.format("sparklog").option("path", "{root}")
    .option("checkpointLocation", "{checkpoint}").trigger(availableNow=True).start()
)
stream.awaitTermination()
spark.stop()
"""


def ran(words: list[str], tmp_path: Path, given: str = "") -> str:
    """Run a program to its end, and return its output."""
    done = subprocess.run(
        words, env=spark_environment(), cwd=tmp_path, input=given, capture_output=True, text=True,
        timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def reported(log: Log) -> UsageReport:
    """Return the sum of all usage reports."""
    keys = [info.key for info in run(usage_listing(""), log.store)]
    found = run(read_usage(keys), log.store)
    return sum_of(one for _, one in found if isinstance(one, UsageReport))


def kinds_of(report: UsageReport) -> Mapping[str, RequestCount]:
    total: dict[tuple[str, str], RequestCount] = {}
    for counts in report.programs.values():
        add_to(total, counts)
    return by_kind(total)


def test_programs_on_a_root_leave_reports_of_their_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "\n".join(f"carrier {n}" for n in range(3000))
    application = tmp_path / "copies.py"
    application.write_text(APPLICATION.format(root=ROOT, checkpoint=tmp_path / "checkpoint"))
    with counted_store(tmp_path / "s3", monkeypatch.setenv) as proxy:
        root = ["--root", ROOT]
        for topic in ("flights", "copies"):
            ran(
                [COMMAND, "topics", *root, "--create", "--topic", topic, "--partitions", "2"],
                tmp_path,
            )
        ran([COMMAND, "produce", *root, "--topic", "flights"], tmp_path, lines)
        seen = ran(
            [
                COMMAND,
                "consume",
                *root,
                "--topic",
                "flights",
                "--from-beginning",
                "--max-messages",
                "9",
            ],
            tmp_path,
        )
        assert seen.count("carrier") == 9
        ran([COMMAND, "run", "compact", *root], tmp_path)
        ran([str(SUBMIT), *CONF, str(JOBS / "retain.py"), *root], tmp_path)
        ran([str(SUBMIT), *CONF, str(application)], tmp_path)
        served = proxy.billed()
        with open_log(ROOT) as log:
            report = reported(log)
            copied = [log.partition("copies", n).view().end_offset for n in range(2)]
        with closing(RootView(ROOT)) as view, browser_of(view) as client:
            page = Browser(client).get("/bill")
    assert page["reports"]["count"] == report.reports
    assert {one["program"] for one in page["programs"]} == report.programs.keys()
    (flights,) = [one for one in page["topics"] if one["topic"] == "flights"]
    assert flights["programPercent"] > 50
    assert sum(copied) == 3000
    found = {kind: (one.requests, one.bytes) for kind, one in sorted(kinds_of(report).items())}
    print(f"programs: served={served} reported={found} reports={report.reports}")
    assert {
        "Spark query", "sparklog compact", "sparklog consume", "sparklog produce",
        "sparklog retain", "sparklog topics",
    } == report.programs.keys()  # fmt: skip
    assert found.keys() == served.keys()
    for kind, (requests, size_bytes) in served.items():
        assert found[kind][0] == pytest.approx(requests, rel=0.01), kind
        assert found[kind][1] == pytest.approx(size_bytes, rel=0.01), kind
