"""jobs/retain.py: partitions spread over tasks, beside damage in one of them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping

from pyspark.sql import SparkSession

from sparklog.cluster.log import Log
from sparklog.cluster.usage_reports import UsageReport, encode_usage, usage_day
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.counters import RequestCount
from sparklog.log.layout import usage_key, usage_sum_key
from sparklog.spark.jobs.progress import JobProgress
from sparklog.spark.jobs.report import UpkeepReport
from sparklog.spark.jobs.retain import parse_retain, retain
from tests.harness.log_records import numbered

MakeLog = Callable[..., Log]


def _run(spark: SparkSession, log_root: str, *words: str) -> UpkeepReport:
    def session(conf: Mapping[str, str]) -> SparkSession:
        return spark

    job = parse_retain(["--root", log_root, *words])
    return retain(job, session, JobProgress(io.StringIO()))


def test_retention_runs_in_tasks_and_damage_stops_one_partition_only(
    spark: SparkSession, log_root: str, make_log: MakeLog
) -> None:
    log = make_log(keep=2, drop=3)
    log.alter_configs("keep", {"retention.ms": "-1"})
    log.alter_configs("drop", {"retention.bytes": "0", "file.delete.delay.ms": "0"})
    for topic, number in (("keep", 0), ("drop", 0), ("drop", 1), ("drop", 2)):
        log.partition(topic, number).append([numbered(0, 4)])
    damaged = log.partition("drop", 1).layout
    log.store.delete(damaged.key(damaged.chain_name(0)))
    log.store.put(damaged.key(damaged.chain_name(0)), b"damaged")

    planned = _run(spark, log_root, "--dry-run", "--topic", "drop")
    assert planned.totals["expired_offsets"] == 8
    assert log.partition("drop", 0).view().log_start_offset == 0
    done = _run(spark, log_root)
    assert [(a.topic, a.partition) for a in done.failures] == [("drop", 1)]
    assert "DataCorrupt" in done.failures[0].error
    assert done.ended_by == 1
    assert done.totals["expired_offsets"] == 8
    starts = {n: log.partition("drop", n).view().log_start_offset for n in (0, 2)}
    assert starts == {0: 4, 2: 4}
    assert log.partition("keep", 0).view().log_start_offset == 0

    later = _run(spark, log_root, "--topic", "drop")
    assert later.totals["deleted_objects"] == 2
    idle = json.loads(_run(spark, log_root, "--topic", "keep").to_json())
    assert idle["failed"] == 0
    # Two partitions: a listing of the folder and a look each.
    assert sum(idle["requests"].values()) <= 2 * 6


def test_retention_of_all_topics_sums_up_usage_reports(
    spark: SparkSession, log_root: str, make_log: MakeLog
) -> None:
    log = make_log(t=1)
    log.partition("t", 0).append([numbered(0, 4)])
    day = usage_day(SYSTEM_CLOCK.now_ms(), 4)
    keys = [usage_key(day, "ab" * 16, number) for number in range(3)]
    report = encode_usage(UsageReport({"sparklog get": {("get", "t"): RequestCount(1, 9)}}))
    for key in keys:
        log.store.put(key, report)

    def of_day() -> list[str]:
        return [info.key for info in log.store.list(f"usage/{day}/")]

    of_topic = _run(spark, log_root, "--topic", "t")
    assert (of_topic.totals["summed_usage_days"], of_day()) == (0, keys)
    planned = _run(spark, log_root, "--dry-run")
    assert (planned.totals["summed_usage_days"], of_day()) == (1, keys)
    done = json.loads(_run(spark, log_root).to_json())
    assert (done["summed_usage_days"], done["deleted_objects"], done["problems"]) == (1, 3, [])
    assert of_day() == [usage_sum_key(day)]
