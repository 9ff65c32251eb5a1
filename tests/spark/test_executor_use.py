"""Spark's own answer to the question whether a query waits for a slot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Thread

from pyspark import SparkContext
from pyspark.sql import SparkSession

from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.spark.serve.executor_use import executor_use
from tests.harness.waiting import eventually

SLOTS = 2
WAIT_S = 60.0


def test_query_waits_while_another_job_holds_all_slots(spark: SparkSession, tmp_path: Path) -> None:
    context = spark.sparkContext
    held = submitted(context, "holder", until_file(tmp_path / "held"))
    waits = None
    try:
        eventually(lambda: len(list(tmp_path.glob("began-*"))) == SLOTS, "tasks", WAIT_S)
        eventually(lambda: not executor_use(context, ()).query_waits, "tasks that run", WAIT_S)
        waits = submitted(context, "waiting", lambda number: number)
        eventually(lambda: executor_use(context, ("holder",)).query_waits, "a query", WAIT_S)
        assert not executor_use(context, ("waiting",)).query_waits, "it is a broker's"
        assert (executor_use(context, ()).executors, executor_use(context, ()).idle) == (0, -1), (
            "the driver is no executor, and is busy"
        )
    finally:
        (tmp_path / "held").touch()
        for one in (held, waits):
            if one is not None:
                one.join(WAIT_S)
    eventually(lambda: not executor_use(context, ()).query_waits, "the end of all jobs", WAIT_S)


def submitted(context: SparkContext, group: str, task: Callable[[int], int]) -> Thread:
    """Run a job in a thread, one task for each slot."""

    def run() -> None:
        context.setJobGroup(group, group)
        context.parallelize(range(SLOTS), SLOTS).map(task).collect()

    thread = Thread(target=run, daemon=True)
    thread.start()
    return thread


def until_file(path: Path) -> Callable[[int], int]:
    """Return a task that ends once a file exists."""

    def wait(number: int) -> int:
        path.with_name(f"began-{number}").touch()
        while not path.exists():
            SYSTEM_CLOCK.sleep_s(0.05)  # files send no notice
        return number

    return wait
