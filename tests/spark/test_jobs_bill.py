"""The bill with jobs: their requests are in the history, and agree with those of an S3 server."""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sparklog.cluster.log import Log, open_log
from sparklog.console.bill import LOOK_EVERY_S, Bill, PriceList, jobs_reading
from sparklog.console.root_view import RootView
from sparklog.core.clock import ManualClock
from sparklog.core.counters import add_to, by_kind
from sparklog.log.layout import METADATA_TOPIC
from sparklog.spark.jobs.progress import JobProgress
from sparklog.spark.schedule.claims import ScheduleClaims
from sparklog.spark.schedule.cron import parse_cron, zone_of
from sparklog.spark.schedule.history import DONE, JobRun
from sparklog.spark.schedule.run import run_body
from sparklog.spark.schedule.schedule import ScheduledJob
from tests.harness.console_browser import Browser, browser_of
from tests.harness.fault_proxy import counted_store
from tests.harness.waiting import eventually

ROOT = "s3://billed/log"


def run_job(spark: SparkSession, log: Log, kind: str) -> JobRun:
    """Run a job as an application does, and keep the run in the history."""

    def session(conf: Mapping[str, str]) -> SparkSession:
        return spark

    claims = ScheduleClaims(log, "host:1", lambda event: None)
    job = ScheduledJob(kind, kind, parse_cron("@yearly", zone_of("UTC")))
    run = claims.by_hand(job)
    claims.begin(run)
    return claims.end(run, run_body(kind, job.words(ROOT), session, JobProgress(io.StringIO())))


def test_bill_with_jobs_agrees_with_the_requests_to_an_s3_server(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()

    def set_variable(name: str, value: str) -> None:
        monkeypatch.setenv(name, value)
        monkeypatch.setitem(spark.sparkContext.environment, name, value)

    with ExitStack() as stack:
        proxy = stack.enter_context(counted_store(tmp_path / "s3", set_variable))
        log = stack.enter_context(open_log(ROOT))
        log.create_topic("status", 2, {"cleanup.policy": "compact"})
        log.create_topic("old", 2, {"retention.bytes": "0", "file.delete.delay.ms": "0"})
        rows = pa.record_batch({"key": [b"a", b"b"] * 500, "value": [b"1" * 500] * 1000})
        for number in range(12):
            for topic in ("status", "old"):
                log.partition(topic, number % 2).append([rows])
        runs = [run_job(spark, log, kind) for kind in ("compact", "retain", "verify")]
        assert [one.outcome for one in runs] == [DONE] * 3, runs
        assert {"status", "old", METADATA_TOPIC} <= runs[0].requests.keys()
        view = RootView(ROOT)
        stack.callback(view.close)
        counters = {"console": view.storage().requests, "application": log.requests}
        view.bill = bill = Bill(PriceList(), counters, clock)
        history = view.jobs().runs.values()

        def at_rest() -> dict[str, tuple[int, int]] | None:
            """Return the bill at a moment without requests, once it agrees with the proxy."""
            served = proxy.billed()
            clock.sleep_s(LOOK_EVERY_S)
            counts = dict(bill.reading().totals)
            add_to(counts, jobs_reading(history, 0).totals)
            found = {k: (one.requests, one.bytes) for k, one in sorted(by_kind(counts).items())}
            print(f"bill with jobs: served={served} billed={found}")
            agreed = all(found[kind] == pytest.approx(served[kind], rel=0.01) for kind in served)
            return found if agreed and found.keys() == served.keys() else None

        found = eventually(at_rest, "the bill is that of the server", 60)
        with browser_of(view) as client:
            page = Browser(client).get("/bill")
        assert page["requests"] == {"head": 0, **{kind: n for kind, (n, _) in found.items()}}
        assert sum(row["written"] for row in page["topics"]) == found["put"][1]
        shares = {row["topic"]: row["jobPercent"] for row in page["topics"]}
        assert shares["status"] > 20
        assert shares["old"] > 20
