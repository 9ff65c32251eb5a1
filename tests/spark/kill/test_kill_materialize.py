"""Exactly once into two Delta tables: the job's driver is killed around every commit.

There is no checkpoint: a driver that is started again knows nothing but the tables and the log.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.cluster.open import open_log
from tests.spark.kill.drivers import Drivers
from tests.spark.kill.materializer import TABLES_FILE
from tests.spark.kill.points import Point, write_plan

PARTITIONS = 2
BATCHES = 3
RECORDS_PER_BATCH = 60
BAD_EVERY = 10


class Job(Drivers):
    """A topic with records of which some are bad, and the drivers that materialise it."""

    program = "tests.spark.kill.materializer"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.records = BATCHES * RECORDS_PER_BATCH // PARTITIONS
        with open_log(str(folder / "log")) as log:
            log.create_topic("t", PARTITIONS)
            values = [b"{" if n % BAD_EVERY == 0 else b'{"n":%d}' % n for n in range(self.records)]
            for partition in range(PARTITIONS):
                batch = pa.record_batch({"value": pa.array(values, pa.binary())})
                log.partition("t", partition).append([batch])

    def argument(self) -> object:
        return ["--root", str(self.folder / "log"), "--topic", "t",
                "--table", str(self.folder / "table"),
                "--max-per-batch", str(RECORDS_PER_BATCH)]  # fmt: skip

    def check(self) -> None:
        """Count: every record once, in the table where it belongs."""
        tables = json.loads((self.plan / TABLES_FILE).read_text())
        everything = [[p, n] for p in range(PARTITIONS) for n in range(self.records)]
        assert tables["kept"] == [place for place in everything if place[1] % BAD_EVERY]
        assert tables["parked"] == [place for place in everything if not place[1] % BAD_EVERY]


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
        if job.end_of(driver) == 0:
            break
    else:
        job.run_until_done(1)
    job.check()
