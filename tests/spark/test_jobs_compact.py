"""jobs/compact.py: partitions compacted in tasks; damage in one stops no other."""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Callable, Mapping

import pytest
from pyspark.sql import SparkSession

from sparklog.cluster.log import Log
from sparklog.spark.jobs.compact import compact, parse_compact
from sparklog.spark.jobs.low_priority import POOL, at_task_priority
from sparklog.spark.jobs.progress import JobProgress
from sparklog.spark.jobs.report import UpkeepReport
from tests.harness.log_records import numbered

MakeLog = Callable[..., Log]


def _run(spark: SparkSession, log_root: str, *words: str) -> UpkeepReport:
    def session(conf: Mapping[str, str]) -> SparkSession:
        return spark

    job = parse_compact(["--root", log_root, *words])
    return compact(job, session, JobProgress(io.StringIO()))


def test_partitions_are_compacted_in_tasks_and_spark_reads_the_rest(
    spark: SparkSession, log_root: str, make_log: MakeLog
) -> None:
    log = make_log(plain=1)
    log.create_topic("keyed", 3, {"cleanup.policy": "compact"})
    for n in range(10):
        log.partition("plain", 0).append([numbered(2 * n, 2)])
        for number in range(3):
            log.partition("keyed", number).append([numbered(5 * n, 5)])
    damaged = log.partition("keyed", 1)
    key = damaged.layout.key(damaged.layout.chain_name(20))
    data = bytearray(log.store.get(key))
    data[data.index(b"key-")] ^= 0xFF
    log.store.put(key, bytes(data))

    done = _run(spark, log_root)
    assert [(a.topic, a.partition) for a in done.failures] == [("keyed", 1)]
    assert "DataCorrupt" in done.failures[0].error
    assert key in done.failures[0].error
    assert done.totals["compacted"]["rows_after"] == 14
    assert done.totals["merged"]["objects_before"] == 10
    whole = json.dumps({"keyed": [0, 2]})
    read = spark.read.format("sparklog").options(path=log_root, assign=whole).load()
    found = sorted((r.partition, r.offset) for r in read.collect())
    assert found == [(p, n) for p in (0, 2) for n in range(43, 50)]
    assert len(damaged.view().entries) == 10


def test_a_large_partition_is_copied_by_several_tasks(
    spark: SparkSession, log_root: str, make_log: MakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparklog.spark.jobs.compact.SHARE_BYTES", 0)
    monkeypatch.setattr("sparklog.spark.jobs.compact.SHARE_BYTES", 1)
    log = make_log()
    log.create_topic("large", 1, {"cleanup.policy": "compact"})
    for n in range(4):
        log.partition("large", 0).append([numbered(5 * n, 5)])
    done = _run(spark, log_root)
    assert done.failures == []
    assert [a.result["shares"] for a in done.answers] == [2]
    assert done.totals["compacted"]["rows_after"] == 7
    read = spark.read.format("sparklog").options(path=log_root, subscribe="large").load()
    assert sorted(r.offset for r in read.collect()) == list(range(13, 20))


def test_a_task_of_the_upkeeps_pool_gives_up_its_priority(spark: SparkSession) -> None:
    context = spark.sparkContext

    def policy() -> int:
        return os.sched_getscheduler(threading.get_native_id())

    def in_a_task() -> list[int]:
        return context.parallelize([0], 1).map(lambda _: at_task_priority(policy)).collect()

    before = in_a_task()
    context.setLocalProperty("spark.scheduler.pool", POOL)
    try:
        assert in_a_task() == [os.SCHED_IDLE]
    finally:
        context.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]
    assert in_a_task() == before, "the worker is as it was"
