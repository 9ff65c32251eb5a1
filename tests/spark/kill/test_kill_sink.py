"""Exactly once: a streaming query is killed at every step of a batch, and each record counted.

Nothing here is simulated: processes die by SIGKILL and are started again on the same checkpoint.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.cluster.open import Log, open_log
from tests.spark.kill.brokers import KilledBrokers
from tests.spark.kill.driver import Job
from tests.spark.kill.points import (
    CARELESS_FILE,
    PLAN_VARIABLE,
    Point,
    reached,
    write_plan,
)

REPOSITORY = Path(__file__).parents[3]
PARTITIONS = 3
BATCHES = 6
RECORDS_PER_BATCH = 300
KEYS = 20
RUN_SECONDS_MAX = 120


class Query:
    """A query that copies, its plan, its drivers, and what it has written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log: Log = open_log(str(folder / "log"))
        self.job = Job(
            root=str(folder / "log"), checkpoint=str(folder / "checkpoint"), output="out"
        )
        self.drivers: list[subprocess.Popen[bytes]] = []
        self.expected = BATCHES * RECORDS_PER_BATCH
        self.log.create_topic("out", PARTITIONS)
        write_plan(folder / "plan", [])

    def reads_a_topic(self, batches: int = BATCHES) -> None:
        """Fill a topic and copy from it."""
        self.expected = batches * RECORDS_PER_BATCH
        self.log.create_topic("in", 2)
        for partition in range(2):
            # A key lives in one partition, so its records have one order.
            numbers = range(self.expected // 2)
            rows = [(b"%d-%d" % (partition, n % KEYS), b"%d" % n) for n in numbers]
            columns = {"key": [k for k, _ in rows], "value": [v for _, v in rows]}
            self.log.partition("in", partition).append([pa.RecordBatch.from_pydict(columns)])
        self.job = replace(self.job, topic="in", records_per_batch=RECORDS_PER_BATCH)

    def reads_files(self) -> None:
        """Write files, one for each batch, and copy from them."""
        files = self.folder / "files"
        files.mkdir()
        for batch in range(BATCHES):
            numbers = range(batch * RECORDS_PER_BATCH, (batch + 1) * RECORDS_PER_BATCH)
            lines = [json.dumps({"key": f"{n % KEYS}", "value": f"{n}"}) for n in numbers]
            path = files / f"{batch:05d}.json"
            path.write_text("\n".join(lines))
            os.utime(path, (1_700_000_000 + batch, 1_700_000_000 + batch))
        self.job = replace(self.job, folder=str(files))

    def wait_for_leaders(self) -> None:
        """Wait until brokers lead every partition of the topic that is written to."""
        deadline = time.monotonic() + RUN_SECONDS_MAX
        while not all(
            self.log.partition("out", partition).view().is_led for partition in range(PARTITIONS)
        ):
            assert time.monotonic() < deadline, "no broker leads"
            let_others_run(0.1)

    @property
    def output(self) -> Path:
        return self.folder / "output"

    @property
    def plan(self) -> Path:
        return self.folder / "plan"

    def start(self, plan: Path | None = None) -> subprocess.Popen[bytes]:
        """Start a driver in a process group of its own."""
        environment = {
            **os.environ,
            PLAN_VARIABLE: str(plan or self.plan),
            "PYTHONPATH": str(REPOSITORY),
        }
        with self.output.open("ab") as output:
            driver = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.kill.driver", json.dumps(asdict(self.job))],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.drivers.append(driver)
        return driver

    def run(self) -> int:
        """Run a driver to its end, whatever end that is."""
        ended = self.start().wait(timeout=RUN_SECONDS_MAX)
        assert ended in (0, -signal.SIGKILL), self.said()
        return ended

    def said(self) -> str:
        """Return the end of what the drivers have printed."""
        return self.output.read_text(errors="replace")[-6000:]

    def run_until_done(self, starts_max: int) -> int:
        """Start a driver again and again; returns how many it took."""
        for started in range(1, starts_max + 1):
            if self.run() == 0:
                return started
        raise AssertionError(f"not done after {starts_max} starts; reached {reached(self.plan)}")

    def check(self) -> None:
        """Count: every record once, and the records of a key in their order."""
        found: Counter[tuple[bytes, bytes]] = Counter()
        by_key: dict[bytes, list[int]] = defaultdict(list)
        self.log.refresh()
        for partition in range(PARTITIONS):
            place = self.log.partition("out", partition)
            for batch in place.read(0, place.view().end_offset, ("key", "value")):
                pairs = zip(*(batch.column(n).to_pylist() for n in ("key", "value")), strict=True)
                for key, value in pairs:
                    found[key, value] += 1
                    by_key[key].append(int(value))
        repeated = {record: n for record, n in found.items() if n > 1}
        assert not repeated, f"{len(repeated)} records are there more than once"
        assert found.total() == self.expected
        for key, numbers in by_key.items():
            assert numbers == sorted(numbers), f"records of key {key!r} changed places"

    def kill_all(self) -> None:
        for driver in self.drivers:
            try:
                os.killpg(driver.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            driver.wait(timeout=30)


@pytest.fixture
def query(tmp_path: Path) -> Iterator[Query]:
    made = Query(tmp_path)
    yield made
    made.kill_all()
    made.log.close()


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


def test_a_query_whose_workers_are_killed_at_every_step_writes_each_record_once(
    query: Query,
) -> None:
    query.reads_a_topic()
    write_plan(query.plan, [Point(where, "itself") for where in EVERY_STEP])
    query.job = replace(query.job, restarts_max=len(EVERY_STEP))
    assert query.run() == 0
    assert reached(query.plan) == len(EVERY_STEP)
    query.check()


def test_a_query_whose_driver_is_killed_between_the_steps_writes_each_record_once(
    query: Query,
) -> None:
    query.reads_files()
    steps = [RECORD_PUT.format("after"), APPEND.format("after"), r"after commit .*"]
    write_plan(query.plan, [Point(where, "driver") for where in steps])
    assert query.run_until_done(len(steps) + 1) == len(steps) + 1
    query.check()


def test_a_query_through_brokers_of_which_each_is_killed_too_writes_each_record_once(
    query: Query,
) -> None:
    """Workers, drivers' and brokers die where a batch is in nobody's, both's or one's hands."""
    query.reads_a_topic()
    taken = r"broker \d: after put wal/.*/0*[1-9]\d*\.arrow"
    flushed = r"broker \d: after put topics/out~.*/log/0*[1-9]\d*\.arrow"
    steps = ["before send", taken, "after send", flushed, r"after commit .*", taken]
    write_plan(query.plan, [Point(where, "itself") for where in steps])
    query.job = replace(query.job, restarts_max=len(steps))
    with KilledBrokers(query.folder, query.job.root, query.plan) as brokers:
        query.wait_for_leaders()
        assert query.run() == 0
        assert reached(query.plan) == len(steps), brokers.said()
        assert brokers.restarts >= 3
    query.check()


@pytest.mark.soak
def test_a_sink_that_publishes_without_the_batchs_number_is_caught(query: Query) -> None:
    query.reads_files()
    write_plan(query.plan, [Point(r"after commit .*", "driver")])
    (query.plan / CARELESS_FILE).touch()
    assert query.run_until_done(2) == 2
    with pytest.raises(AssertionError, match="more than once"):
        query.check()


def test_an_executor_killed_with_staged_work_and_a_slow_twin_leave_each_record_once(
    query: Query,
) -> None:
    query.reads_a_topic()
    steps = ["staged", STAGED_PUT.format("after")]
    write_plan(query.plan, [Point(where, "executor") for where in steps])
    query.job = replace(
        query.job,
        master="local-cluster[2,1,700]",
        settings={
            "spark.executor.memory": "600m",
            "spark.speculation": "true",
            # Every task that is slower than its fastest neighbour gets a twin.
            "spark.speculation.interval": "10ms",
            "spark.speculation.multiplier": "1.0",
            "spark.speculation.quantile": "0.1",
            "spark.speculation.minTaskRuntime": "0ms",
        },
        records_per_batch=RECORDS_PER_BATCH * 2,
    )
    assert query.run() == 0
    assert reached(query.plan) == len(steps)
    query.check()


def test_a_driver_that_comes_back_from_a_long_sleep_repeats_nothing(query: Query) -> None:
    query.reads_files()
    write_plan(query.plan, [Point(r"before put commits/.*", "pause")])
    sleeper = query.start()
    pid = _wait_for_pause(query, sleeper)
    awake = query.folder / "no-plan"
    write_plan(awake, [])
    successor = query.start(awake)
    assert successor.wait(timeout=RUN_SECONDS_MAX) == 0, query.said()
    query.check()
    os.kill(pid, signal.SIGCONT)
    sleeper.wait(timeout=RUN_SECONDS_MAX)
    query.check()


def _wait_for_pause(query: Query, driver: subprocess.Popen[bytes]) -> int:
    """Wait until a process sleeps at the first point, and return its id."""
    deadline = time.monotonic() + RUN_SECONDS_MAX
    while time.monotonic() < deadline:
        assert driver.poll() is None, query.said()
        marker = query.plan / "0.reached"
        if marker.exists() and marker.read_text():
            return int(marker.read_text().split()[0])
        let_others_run(0.05)
    raise AssertionError("the driver never reached the point")


def let_others_run(seconds: float) -> None:
    """Let the other processes run."""
    time.sleep(seconds)  # kills come at moments drawn by chance


@pytest.mark.parametrize(
    "kills", [1, pytest.param(40, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])]
)
def test_a_driver_killed_at_random_moments_writes_each_record_once(
    query: Query, kills: int
) -> None:
    query.reads_a_topic(batches=3 * (kills + 1))
    seed = random.randrange(1 << 32)
    print(f"seed={seed}")
    moments = random.Random(seed)
    done = False
    for _ in range(kills):
        driver = query.start()
        _wait_for_commits(query, driver, moments.randrange(1, 3))
        let_others_run(moments.random() * 0.5)
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
        done = driver.wait(timeout=RUN_SECONDS_MAX) == 0
        if done:
            break
    if not done:
        query.run_until_done(2)
    query.check()


def _wait_for_commits(query: Query, driver: subprocess.Popen[bytes], more: int) -> None:
    """Wait until the query has decided so many batches more, or is done."""
    before = sum(1 for _ in query.log.store.list("commits/"))
    deadline = time.monotonic() + RUN_SECONDS_MAX
    while driver.poll() is None and time.monotonic() < deadline:
        if sum(1 for _ in query.log.store.list("commits/")) >= before + more:
            return
        let_others_run(0.05)
    assert driver.poll() is not None, "the query made no progress"
