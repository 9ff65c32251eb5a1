"""Exactly once into two Delta tables: the job's driver is killed around every commit.

There is no checkpoint: a driver that is started again knows nothing but the tables and the log. The
log is in a folder or in S3 (a real server), the tables are in a folder: Spark writes them itself.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

from sparklog.cluster.log import open_log
from tests.harness.moto_server import MotoServer, moto_server
from tests.harness.waiting import eventually, until_a_random_moment
from tests.spark.kill.drivers import RUN_SECONDS_MAX, Drivers
from tests.spark.kill.materializer import TABLES_FILE
from tests.spark.kill.points import Point, reached, write_plan

PARTITIONS = 2
BATCHES = 3
RECORDS_PER_BATCH = 60
BAD_EVERY = 10
KILLS = 8
POINTS_BETWEEN_MAX = 5
STEP_S = 1.0
"""About as long as a driver takes from one point to the next, or less."""


class Job(Drivers):
    """A topic with records of which some are bad, and the drivers that materialise it."""

    program = "tests.spark.kill.materializer"

    def __init__(self, folder: Path, root: str) -> None:
        super().__init__(folder)
        self.root = root
        self.records = BATCHES * RECORDS_PER_BATCH // PARTITIONS
        with open_log(root) as log:
            log.create_topic("t", PARTITIONS)
            values = [b"{" if n % BAD_EVERY == 0 else b'{"n":%d}' % n for n in range(self.records)]
            for partition in range(PARTITIONS):
                batch = pa.record_batch({"value": pa.array(values, pa.binary())})
                log.partition("t", partition).append([batch])

    def argument(self) -> object:
        return ["--root", self.root, "--topic", "t",
                "--table", str(self.folder / "table"),
                "--max-per-batch", str(RECORDS_PER_BATCH)]  # fmt: skip

    def check(self) -> None:
        """Count: every record once, in the table where it belongs."""
        tables = json.loads((self.plan / TABLES_FILE).read_text())
        everything = [[p, n] for p in range(PARTITIONS) for n in range(self.records)]
        assert tables["kept"] == [place for place in everything if place[1] % BAD_EVERY]
        assert tables["parked"] == [place for place in everything if not place[1] % BAD_EVERY]


MakeJob = Callable[[str], Job]


@pytest.fixture(scope="module")
def server() -> Iterator[MotoServer]:
    """A real S3 server."""
    with moto_server() as started:
        yield started


@pytest.fixture
def make_job(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MakeJob]:
    """Make the job on a log in a `folder` or in `S3`."""
    made: list[Job] = []

    def make(where: str) -> Job:
        root = str(tmp_path / "log")
        if where == "S3":
            server: MotoServer = request.getfixturevalue("server")
            for name, value in server.environment().items():
                monkeypatch.setenv(name, value)
            bucket = f"log-{uuid4().hex}"
            server.make_bucket(bucket)
            root = f"s3://{bucket}/log"
        made.append(Job(tmp_path, root))
        return made[-1]

    yield make
    for one in made:
        one.kill_all()


def test_driver_killed_between_the_tables_keeps_records_once(make_job: MakeJob) -> None:
    job = make_job("S3")
    write_plan(job.plan, [Point("after append 1", "driver")])
    assert job.run_until_done(2) == 2
    job.check()


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_driver_killed_around_every_commit_leaves_each_record_once(make_job: MakeJob) -> None:
    job = make_job("folder")
    steps = [f"{when} {what} {n}" for n in (1, 2) for what in ("append", "park")
             for when in ("before", "after")]  # fmt: skip
    write_plan(job.plan, [Point(where, "driver") for where in steps])
    assert job.run_until_done(len(steps) + 1) == len(steps) + 1
    job.check()


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("where", ["folder", "S3"])
def test_a_driver_killed_at_random_moments_leaves_each_record_once(
    make_job: MakeJob, where: str
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed={seed}")
    moments = random.Random(seed)
    job = make_job(where)
    # No process is killed at a point: the number of passed points shows the drivers' progress.
    write_plan(job.plan, [Point(".*", "nobody")] * (KILLS * POINTS_BETWEEN_MAX * 2))
    killed = 0
    for _ in range(KILLS):
        driver = job.start()
        if _has_passed(job, driver, moments.randrange(POINTS_BETWEEN_MAX)):
            until_a_random_moment(moments, 0, STEP_S)  # somewhere on the way to the next one
            os.killpg(driver.pid, signal.SIGKILL)
        ended = job.end_of(driver)
        assert ended in (0, -signal.SIGKILL), job.said()
        if ended == 0:
            break
        killed += 1
    else:
        job.run_until_done(1)
    assert killed, "a driver was killed before it was done"
    job.check()


def _has_passed(job: Job, driver: subprocess.Popen[bytes], points: int) -> bool:
    """Wait until a driver has come to its first commit, and passed `points` points more.

    Returns False if it has ended.
    """
    wanted = reached(job.plan) + 1 + points

    def seen() -> str:
        if driver.poll() is not None:
            return "ended"
        return "passed" if reached(job.plan) >= wanted else ""

    return eventually(seen, "a driver's way", RUN_SECONDS_MAX) == "passed"
