"""Compaction's work on a partition, and its report; tests/spark runs it in tasks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from pyspark import cloudpickle

from sparklog.cluster.log import Log
from sparklog.cluster.metadata.records import EVERY_BROKER
from sparklog.core.clock import ManualClock
from sparklog.core.config.topic_defaults import cleaner_bytes_per_s
from sparklog.core.counters import by_kind, diff
from sparklog.core.errors import InvalidRecord
from sparklog.log.partition.partition_log import PartitionLog
from sparklog.spark.jobs.compact import (
    CompactJob,
    compact_report,
    compacted_by,
    parse_compact,
    published,
    share_works,
)
from sparklog.spark.jobs.low_priority import at_low_priority, packed
from sparklog.spark.jobs.partition_tasks import PartitionAnswer, work_on
from sparklog.store.memory import MemoryStore
from sparklog.store.metered import MeteredStore
from tests.harness.log_records import batch, numbered

JOB = CompactJob("memory://compact")


@pytest.fixture
def log(clock: ManualClock) -> Log:
    opened = Log(MemoryStore("compact", clock), clock=clock)
    opened.create_topic("t", 1, {"cleanup.policy": "compact"})
    return opened


def compacted(log: Log, clock: ManualClock, job: CompactJob = JOB) -> Mapping[str, Any]:
    (work,) = work_on(log.topics().values())
    return compacted_by(job, clock)(log, work)


def rows(partition: PartitionLog) -> list[tuple[int, bytes, bytes]]:
    end = partition.view().end_offset
    return [
        row
        for one in partition.read(0, end, ("offset", "key", "value"))
        for row in zip(*(one.column(n).to_pylist() for n in range(3)), strict=True)
    ]


def test_the_newest_of_each_key_stays_where_it_is(log: Log, clock: ManualClock) -> None:
    partition = log.partition("t", 0)
    for n in range(10):
        partition.append([numbered(5 * n, 5)])
    planned = compacted(log, clock, replace(JOB, dry_run=True))["compacted"]
    assert (planned["rows_before"], planned["rows_after"], planned["dirty_ratio"]) == (50, 7, 1.0)
    assert len(rows(partition)) == 50
    done = compacted(log, clock)["compacted"]
    assert (done["rows_before"], done["rows_after"]) == (50, 7)
    assert (done["objects_before"], done["objects_after"]) == (10, 1)
    assert done["bytes_after"] < done["bytes_before"]
    assert rows(partition) == [(n, b"key-%d" % (n % 7), b"value-%d" % n) for n in range(43, 50)]
    again = compacted(log, clock, replace(JOB, force=True))
    assert (again["compacted"], again["merged"]) == (None, None)


def test_a_run_with_nothing_to_do_looks_once_for_both_of_its_works(clock: ManualClock) -> None:
    counting = MeteredStore(MemoryStore("idle", clock), lambda key: "")
    log = Log(counting, clock=clock)
    log.create_topic("t", 1, {"cleanup.policy": "compact"})
    log.partition("t", 0).append([numbered(0, 5)])
    compacted(log, clock)
    (work,) = work_on(log.refresh().topics.values())
    before = counting.counters.snapshot()
    assert compacted_by(JOB, clock)(log, work)["compacted"] is None
    found = by_kind(diff(before, counting.counters.snapshot()))
    assert {kind: count.requests for kind, count in found.items()} == {"list": 2, "get": 1}


def test_a_limit_of_bytes_per_second_makes_compaction_take_its_time(
    log: Log, clock: ManualClock
) -> None:
    for n in range(10):
        log.partition("t", 0).append([numbered(5 * n, 5)])
    (work,) = work_on(log.topics().values())
    started_s = clock.monotonic_s()
    done = compacted_by(JOB, clock, bytes_per_s=100.0)(log, work)["compacted"]
    assert clock.monotonic_s() - started_s >= (done["bytes_before"] + done["bytes_after"]) / 100
    log.alter_topic_defaults({"log.cleaner.io.max.bytes.per.second": "2.5e6"})
    assert cleaner_bytes_per_s(log.refresh().broker_configs[EVERY_BROKER]) == 2_500_000
    assert log.topics()["t"].settings == {"cleanup.policy": "compact"}, "no topic's setting"


def test_upkeep_gives_up_the_priority_of_its_own_thread_only() -> None:
    def policy() -> int:
        return os.sched_getscheduler(threading.get_native_id())

    before = policy()
    assert at_low_priority(policy) == os.SCHED_IDLE
    assert policy() == before
    with pytest.raises(InvalidRecord):
        at_low_priority(_fail)


def _fail() -> None:
    raise InvalidRecord("no")


def test_task_unpacks_its_work_at_low_priority_before_imports() -> None:
    pickler: Any = cloudpickle
    data = pickler.dumps(packed(_total))
    program = (
        "import sys\n"
        "from pyspark import cloudpickle\n"
        "work = cloudpickle.loads(sys.stdin.buffer.read())\n"
        "assert not [name for name in sys.modules if name.startswith('sparklog')]\n"
        "print(work(iter([1, 2])))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=data, capture_output=True, check=True, timeout=300
    )
    assert done.stdout == b"3\n"


def _total(numbers: list[int]) -> int:
    return sum(numbers)


def test_a_broker_starts_in_no_process_with_threads_of_upkeep() -> None:
    program = (
        "from threading import Event, Thread\n"
        "from sparklog.spark.serve.broker_task import run_broker\n"
        "from sparklog.spark.jobs.low_priority import at_low_priority\n"
        "at_low_priority(Thread(target=Event().wait, daemon=True).start)\n"
        "run_broker(None)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=300)
    assert done.returncode == -signal.SIGKILL, "Spark starts the task in another process"


def test_a_little_dirt_is_left_unless_it_is_forced_or_old(log: Log, clock: ManualClock) -> None:
    partition = log.partition("t", 0)
    partition.append([batch([b"v" * 1000], keys=[b"a"])])
    compacted(log, clock)
    partition.append([batch([b"w"], keys=[b"a"], timestamps_ms=[clock.now_ms()])])
    log.alter_configs("t", {"min.cleanable.dirty.ratio": "0.9"})
    assert compacted(log, clock)["compacted"] is None
    log.alter_configs("t", {"max.compaction.lag.ms": "60000"})
    assert compacted(log, clock)["compacted"] is None
    clock.sleep_s(61)
    assert compacted(log, clock)["compacted"]["rows_after"] == 1
    partition.append([batch([b"x"], keys=[b"a"], timestamps_ms=[clock.now_ms()])])
    assert compacted(log, clock, replace(JOB, force=True))["compacted"]["rows_after"] == 1


def test_small_objects_of_any_topic_are_merged(clock: ManualClock) -> None:
    log = Log(MemoryStore("merge", clock), clock=clock)
    log.create_topic("t")
    partition = log.partition("t", 0)
    for n in range(20):
        partition.append([numbered(3 * n, 3)])
    assert compacted(log, clock, replace(JOB, merges=False))["merged"] is None
    planned = compacted(log, clock, replace(JOB, dry_run=True))
    assert planned["compacted"] is None
    assert planned["merged"]["objects_before"] == 20
    done = compacted(log, clock)["merged"]
    assert (done["objects_before"], done["objects_after"], done["overtaken"]) == (20, 1, False)
    assert [row[0] for row in rows(partition)] == list(range(60))
    assert len(partition.view().entries) == 1
    partition.append([numbered(60, 3)])
    assert [row[0] for row in rows(partition)] == list(range(63))
    assert compacted(log, clock)["merged"] is None


def test_compacted_topic_rejects_records_without_a_key(log: Log) -> None:
    partition = log.partition("t", 0)
    with pytest.raises(InvalidRecord, match="row=0"):
        partition.append([batch([b"x"])])
    with pytest.raises(InvalidRecord, match="row=1"):
        partition.stage([batch([b"x", b"y"], keys=[b"k", None])])
    log.alter_configs("t", {"cleanup.policy": "delete"})
    assert log.partition("t", 0).append([batch([b"x"])]).base_offset == 0


def test_a_call_is_understood() -> None:
    job = parse_compact(["--root", "memory://x", "--topic", "a", "--force", "--no-merge"])
    assert (job.topics, job.dry_run, job.force, job.merges) == (("a",), False, True, False)


def test_report_adds_up_and_names_a_faster_rival() -> None:
    outcome = {
        "rows_before": 10, "rows_after": 4, "bytes_before": 2048, "bytes_after": 1024,
        "objects_before": 3, "objects_after": 1, "dirty_ratio": 1.0, "overtaken": False,
    }  # fmt: skip
    answers = [
        PartitionAnswer("t", 0, {"compacted": outcome, "merged": None}),
        PartitionAnswer("t", 1, {"compacted": {**outcome, "overtaken": True}, "merged": outcome}),
        PartitionAnswer("t", 2, {}, "DataCorrupt: bad"),
    ]
    report = compact_report(JOB, answers, 2.0)
    assert report.ended_by == 1
    assert "kept 8 of 20 records of 2 partitions" in report.to_text()
    assert "t-1: not compacted, another job was faster" in report.to_text()
    told = json.loads(report.to_json())
    assert told["compacted"]["rows_before"] == 20
    assert (told["compacted"]["overtaken"], told["merged"]["objects_after"]) == (1, 1)


def test_several_tasks_compact_a_large_partition_in_one_commit(
    log: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparklog.spark.jobs.compact.SHARE_BYTES", 1)
    partition = log.partition("t", 0)
    for n in range(10):
        partition.append([numbered(5 * n, 5)])
    works = work_on(log.topics().values())
    compacting = compacted_by(JOB, clock, share_bytes=0)
    first = [PartitionAnswer("t", 0, compacting(log, works[0]), "", {"get": (1, 5)})]
    parts = share_works(works, first, slots=3)
    assert [part.details["share"] for part in parts] == [[0, 3], [1, 3], [2, 3]]
    shared = [PartitionAnswer("t", 0, compacting(log, part), "", {"get": (2, 9)}) for part in parts]
    (failed,) = published(
        log, compacting, works, first, [*shared[:2], replace(shared[2], error="E")]
    )
    assert failed.error == "E"
    assert len(rows(partition)) == 50
    (done,) = published(log, compacting, works, first, shared)
    assert (done.error, done.requests, done.result["shares"]) == ("", {"get": (7, 32)}, 3)
    assert (done.result["compacted"]["rows_after"], len(rows(partition))) == (7, 7)
    report = compact_report(JOB, [done], 1.0)
    assert report.totals["compacted"]["rows_before"] == 50
    gone = replace(shared[1], result={"share": None, "seconds": 0})
    (late,) = published(log, compacting, works, first, [shared[0], gone])
    assert late.result["compacted"]["overtaken"]
