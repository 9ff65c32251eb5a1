"""Exactly once: a streaming query is killed at every step of a batch, and each record counted.

Nothing here is simulated: processes die by SIGKILL and are started again on the same checkpoint.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.harness.waiting import eventually, until_a_random_moment
from tests.spark.kill.drivers import REPOSITORY, RUN_SECONDS_MAX
from tests.spark.kill.points import CARELESS_FILE, PLAN_VARIABLE, Point, reached, write_plan
from tests.spark.kill.query import RECORDS_PER_BATCH, Query
from tests.spark.standalone import standalone_cluster

STAGED_PUT = r"{} put .*/staged/.*"
RECORD_PUT = r"{} put commits/.*"
APPEND = r"{} put topics/out~.*/log/.*"
EVERY_STEP = [
    STAGED_PUT.format("before"),
    STAGED_PUT.format("after"),
    "staged",
    r"before commit .*",
    RECORD_PUT.format("before"),
    RECORD_PUT.format("after"),
    APPEND.format("before"),
    APPEND.format("after"),
    r"after commit .*",
]


def test_query_with_killed_workers_writes_each_record_once(
    query: Query,
) -> None:
    query.reads_a_topic()
    write_plan(query.plan, [Point(where, "itself") for where in EVERY_STEP])
    query.job = replace(query.job, restarts_max=len(EVERY_STEP))
    assert query.run() == 0
    assert reached(query.plan) == len(EVERY_STEP)
    query.check()


def test_query_with_a_killed_driver_writes_each_record_once(
    query: Query,
) -> None:
    query.reads_files()
    steps = [RECORD_PUT.format("after"), APPEND.format("after"), r"after commit .*"]
    write_plan(query.plan, [Point(where, "driver") for where in steps])
    assert query.run_until_done(len(steps) + 1) == len(steps) + 1
    query.check()


@pytest.mark.soak
def test_a_sink_that_publishes_without_the_batchs_number_is_caught(query: Query) -> None:
    query.reads_files()
    write_plan(query.plan, [Point(r"after commit .*", "driver")])
    (query.plan / CARELESS_FILE).touch()
    assert query.run_until_done(2) == 2
    with pytest.raises(AssertionError, match="more than once"):
        query.check()


def test_killed_executor_and_speculative_twin_write_records_once(
    query: Query, tmp_path: Path
) -> None:
    """A task that never ends, its work staged: only its twin, which stages too, lets it go on."""
    query.reads_a_topic(batches=4)
    points = [
        Point("staged", "pause"),
        Point("after commit 0", "nobody"),
        Point("staged", "executor"),
        Point(STAGED_PUT.format("after"), "executor"),
    ]
    write_plan(query.plan, points)
    # Spark starts no twin on a host that has tried before: two hosts, and the twin comes first.
    with standalone_cluster(tmp_path, ("127.0.0.1", "127.0.0.2"), 1, "700m") as master:
        query.job = replace(
            query.job,
            master=master,
            settings={
                "spark.executor.memory": "600m",
                f"spark.executorEnv.{PLAN_VARIABLE}": str(query.plan),
                "spark.executorEnv.PYTHONPATH": str(REPOSITORY),
                "spark.speculation": "true",
                # Every task that is slower than its fastest neighbour gets a twin.
                "spark.speculation.multiplier": "1.0",
                "spark.speculation.quantile": "0.1",
            },
            records_per_batch=RECORDS_PER_BATCH * 2,
        )
        assert query.run() == 0
    assert reached(query.plan) == len(points)
    query.check()


def test_a_driver_that_comes_back_from_a_long_sleep_repeats_nothing(query: Query) -> None:
    query.reads_files()
    write_plan(query.plan, [Point(r"before put commits/.*", "pause")])
    query.overtake_one_that_sleeps(query.check)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_driver_killed_at_random_moments_writes_each_record_once(query: Query) -> None:
    kills = 40
    query.reads_a_topic(batches=3 * (kills + 1))
    seed = random.randrange(1 << 32)
    print(f"seed={seed}")
    moments = random.Random(seed)
    done = False
    for _ in range(kills):
        driver = query.start()
        _wait_for_commits(query, driver, moments.randrange(1, 3))
        until_a_random_moment(moments, 0, 0.5)
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
        done = query.end_of(driver) == 0
        if done:
            break
    if not done:
        query.run_until_done(2)
    query.check()


def _wait_for_commits(query: Query, driver: subprocess.Popen[bytes], more: int) -> None:
    """Wait until the query has decided `more` more batches, or is done."""
    before = sum(1 for _ in query.log.store.list("commits/"))

    def is_there() -> bool:
        ended = driver.poll() is not None
        return ended or sum(1 for _ in query.log.store.list("commits/")) >= before + more

    try:
        eventually(is_there, "decided batches", RUN_SECONDS_MAX)
    except TimeoutError as error:
        raise AssertionError(query.said()) from error
