"""Exactly once into two Delta tables: the job's driver is killed around every commit.

There is no checkpoint: a driver that is started again knows nothing but the tables and the log.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.cluster.open import open_log
from tests.spark.kill.materializer import TABLES_FILE
from tests.spark.kill.points import PLAN_VARIABLE, Point, reached, write_plan

REPOSITORY = Path(__file__).parents[3]
RUN_SECONDS_MAX = 300
PARTITIONS = 2
BATCHES = 3
RECORDS_PER_BATCH = 60
BAD_EVERY = 10


class Job:
    """A topic with records of which some are bad, and the drivers that materialise it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plan = folder / "plan"
        self.records = BATCHES * RECORDS_PER_BATCH // PARTITIONS
        self.drivers: list[subprocess.Popen[bytes]] = []
        with open_log(str(folder / "log")) as log:
            log.create_topic("t", PARTITIONS)
            values = [b"{" if n % BAD_EVERY == 0 else b'{"n":%d}' % n for n in range(self.records)]
            for partition in range(PARTITIONS):
                batch = pa.record_batch({"value": pa.array(values, pa.binary())})
                log.partition("t", partition).append([batch])
        write_plan(self.plan, [])

    def start(self) -> subprocess.Popen[bytes]:
        """Start a driver in a process group of its own."""
        words = ["--root", str(self.folder / "log"), "--topic", "t",
                 "--table", str(self.folder / "table"),
                 "--max-per-batch", str(RECORDS_PER_BATCH)]  # fmt: skip
        environment = {**os.environ, PLAN_VARIABLE: str(self.plan), "PYTHONPATH": str(REPOSITORY)}
        with (self.folder / "output").open("ab") as output:
            driver = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.kill.materializer", json.dumps(words)],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.drivers.append(driver)
        return driver

    def run_until_done(self, starts_max: int) -> int:
        """Start a driver again and again; returns how many it took."""
        for started in range(1, starts_max + 1):
            code = self.start().wait(RUN_SECONDS_MAX)
            assert code in (0, -signal.SIGKILL), self.said()
            if code == 0:
                return started
        raise AssertionError(f"not done after {starts_max} starts; reached {reached(self.plan)}")

    def said(self) -> str:
        """Return the end of what the drivers have printed."""
        return (self.folder / "output").read_text(errors="replace")[-6000:]

    def check(self) -> None:
        """Count: every record once, in the table where it belongs."""
        tables = json.loads((self.plan / TABLES_FILE).read_text())
        everything = [[p, n] for p in range(PARTITIONS) for n in range(self.records)]
        assert tables["kept"] == [place for place in everything if place[1] % BAD_EVERY]
        assert tables["parked"] == [place for place in everything if not place[1] % BAD_EVERY]

    def kill_all(self) -> None:
        for driver in self.drivers:
            try:
                os.killpg(driver.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            driver.wait(30)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    made = Job(tmp_path)
    yield made
    made.kill_all()


def test_a_driver_killed_between_the_two_tables_leaves_each_record_once(job: Job) -> None:
    write_plan(job.plan, [Point("after append 1", "driver")])
    assert job.run_until_done(2) == 2
    job.check()


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_driver_killed_around_every_commit_leaves_each_record_once(job: Job) -> None:
    steps = [f"{when} {what} {n}" for n in (1, 2) for what in ("append", "park")
             for when in ("before", "after")]  # fmt: skip
    write_plan(job.plan, [Point(where, "driver") for where in steps])
    assert job.run_until_done(len(steps) + 1) == len(steps) + 1
    job.check()


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_driver_killed_at_random_moments_leaves_each_record_once(job: Job) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed={seed}")
    moments = random.Random(seed)
    for _ in range(8):
        driver = job.start()
        try:
            driver.wait(8 + moments.random() * 20)
        except subprocess.TimeoutExpired:
            os.killpg(driver.pid, signal.SIGKILL)
        if driver.wait(RUN_SECONDS_MAX) == 0:
            break
    else:
        job.run_until_done(1)
    job.check()
