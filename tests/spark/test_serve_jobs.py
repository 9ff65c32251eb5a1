"""Upkeep on schedule in a serving application: missed runs are made up for once, after any kill.

The brokers here only echo: the topics are written and looked at without them.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from urllib.request import urlopen

import pyarrow as pa
import pytest

from sparklog.cluster.log import open_log
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.log.effects import run
from sparklog.spark.schedule.claims import RunClaim, take
from sparklog.spark.schedule.history import DONE, FAILED, read_history
from sparklog.spark.schedule.schedule import CATCH_UP, SEEN
from tests.bench.common.process_memory import children, descendants, is_running
from tests.harness.waiting import eventually
from tests.peers.sparklog import SparklogCluster
from tests.spark.conftest import MakeLog

PROGRAM = Path(__file__).with_name("serve_echo.py")
DAY_MS = 86_400_000
SCHEDULE = """
[jobs.compaction]
kind = "compact"
cron = "0 3 * * *"
arguments = ["--topic", "status"]

[jobs.retention]
kind = "retain"
cron = "0 3 * * *"
arguments = ["--topic", "old"]
"""
ONE_MORE = """
[jobs.verification]
kind = "verify"
cron = "0 3 * * *"
"""


def test_missed_jobs_run_once_in_the_application_and_again_in_none(
    make_log: MakeLog, log_root: str, tmp_path: Path
) -> None:
    log = make_log(old=1)
    log.create_topic("status", 1, {"cleanup.policy": "compact"})
    log.alter_configs("old", {"retention.bytes": "0"})
    rows = pa.record_batch({"key": [b"a", b"b"], "value": [b"1", b"2"]})
    for topic in ("old", "status", "old", "status", "old"):
        log.partition(topic, 0).append([rows])
    schedule = tmp_path / "jobs.toml"
    schedule.write_text(SCHEDULE)
    words = (sys.executable, str(PROGRAM), "--brokers", "1", "--master", "local[3]")
    program = (*words, "--jobs", str(schedule))

    def known(job: str) -> None:
        seen_ms = SYSTEM_CLOCK.now_ms() - 2 * DAY_MS
        assert run(take(RunClaim(job, seen_ms, SEEN, claimed_ms=seen_ms)), log.store)

    known("compaction")
    known("retention")
    with SparklogCluster(tmp_path / "first", program=program, root=log_root) as first:
        page = first.first("jobs")["metrics"]
        done = {first.until("job", outcome=DONE)["job"] for _ in range(2)}
        with urlopen(page) as answer:
            metrics = answer.read().decode()
    assert done == {"compaction", "retention"}
    assert 'sparklog_job_runs_total{job="retention",outcome="done"} 1.0' in metrics
    status, old = log.partition("status", 0), log.partition("old", 0)
    batches = status.read(0, 4, ("offset", "key"), view=status.view())
    kept = [row for batch in batches for row in batch.to_pylist()]
    assert kept == [{"offset": 2, "key": b"a"}, {"offset": 3, "key": b"b"}]
    assert old.view().log_start_offset == 6
    runs = {one.job: one for one in read_history(log).newest_first()}
    assert {(r.outcome, r.exit_code, r.trigger) for r in runs.values()} == {(DONE, 0, CATCH_UP)}
    assert (runs["compaction"].records_before, runs["compaction"].records_after) == (4, 2)
    assert runs["retention"].report["expired_offsets"] == 6

    # The first application was killed. The second has the same schedule, and one job more.
    schedule.write_text(SCHEDULE + ONE_MORE)
    known("verification")
    with SparklogCluster(tmp_path / "second", program=program, root=log_root) as second:
        assert second.until("job", outcome=DONE)["job"] == "verification"
        second.process.send_signal(signal.SIGTERM)
        ended = second.rest()
    assert ended[-1]["drained"] == 1
    assert [
        one for one in second.seen + ended if one["event"] == "job" and one["job"] in runs
    ] == []
    assert len(read_history(log).runs) == 3


def test_executors_have_the_python_of_jobs_before_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    schedule = tmp_path / "jobs.toml"
    schedule.write_text('[jobs.verification]\nkind = "verify"\ncron = "@yearly"\n')
    words = (sys.executable, str(PROGRAM), "--brokers", "2", "--jobs", str(schedule))
    with SparklogCluster(tmp_path, program=words) as cluster:

        def pythons() -> list[int] | None:
            """Return how many each executor has started, once all have."""
            started = children()
            executors = descendants(cluster.process.pid)
            found = [
                sum(is_running(pid, "pyspark.daemon") for pid in started.get(executor, ()))
                for executor in executors
                if is_running(executor, "CoarseGrainedExecutorBackend")
            ]
            return found if len(found) == 3 and min(found) == 1 else None

        assert eventually(pythons, "each executor has one, for a broker or for jobs") == [1, 1, 1]
        assert not [one for one in cluster.seen if one["event"] == "job"]
        # The driver's JVM asks this Python for data sources, such as sparklog's.
        (jvm,) = [pid for pid in children()[cluster.process.pid] if is_running(pid, "java")]
        variables = Path(f"/proc/{jvm}/environ").read_bytes().split(b"\0")
        assert b"PYSPARK_PYTHON=" + sys.executable.encode() in variables


CRASHES = """
[jobs.exit]
kind = "crash"
cron = "0 3 * * *"
arguments = ["exit"]

[jobs.memory]
kind = "crash"
cron = "0 3 * * *"
arguments = ["memory"]

[jobs.stack]
kind = "crash"
cron = "0 3 * * *"
arguments = ["stack"]
"""


def test_no_broker_is_lost_when_jobs_end_their_executors(log_root: str, tmp_path: Path) -> None:
    """By a call of exit, without memory, and by a stack that overflows."""
    schedule = tmp_path / "jobs.toml"
    schedule.write_text(CRASHES)
    jobs = {"exit", "memory", "stack"}
    with open_log(log_root) as log:
        log.create_topic("t", 1)
        for job in jobs:
            seen_ms = SYSTEM_CLOCK.now_ms() - 2 * DAY_MS
            assert run(take(RunClaim(job, seen_ms, SEEN, claimed_ms=seen_ms)), log.store)
    program = (sys.executable, str(PROGRAM), "--brokers", "2", "--jobs", str(schedule))
    with SparklogCluster(tmp_path, program=program, root=log_root) as cluster:
        before = {number: one["pid"] for number, one in cluster.brokers.items()}
        failed = [cluster.until("job", outcome=FAILED) for _ in jobs]
        assert {one["job"] for one in failed} == jobs
        assert {number: one["pid"] for number, one in cluster.brokers.items()} == before
        assert not [one for one in cluster.seen if one["event"] in ("lost", "failed")]
    with open_log(log_root) as log:
        messages = [one.message for one in read_history(log).newest_first()]
    assert len(messages) == len(jobs)
    assert all("failed 1 times" in text for text in messages), messages
