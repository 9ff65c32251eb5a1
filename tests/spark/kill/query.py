"""A streaming query to be killed: its input, its drivers (processes), and what it has written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from dataclasses import asdict, replace
from pathlib import Path

import pyarrow as pa

from sparklog.cluster.open import Log, open_log
from tests.spark.kill.driver import Job
from tests.spark.kill.points import PLAN_VARIABLE, reached, write_plan
from tests.waiting import eventually

REPOSITORY = Path(__file__).parents[3]
PARTITIONS = 3
BATCHES = 6
RECORDS_PER_BATCH = 300
KEYS = 20
RUN_SECONDS_MAX = 300
"""Several times what a driver needs on a loaded machine, where a minute goes by until it runs."""


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
        places = [self.log.partition("out", number) for number in range(PARTITIONS)]
        eventually(lambda: all(p.view().is_led for p in places), "leaders", RUN_SECONDS_MAX)

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

    def run(self, within_s: float = RUN_SECONDS_MAX) -> int:
        """Run a driver to its end, whatever end that is."""
        ended = self.start().wait(timeout=within_s)
        assert ended in (0, -signal.SIGKILL), self.said()
        return ended

    def said(self) -> str:
        """Return the end of what the drivers have printed."""
        return self.output.read_text(errors="replace")[-6000:]

    def run_until_done(self, starts_max: int, within_s: float = RUN_SECONDS_MAX) -> int:
        """Start a driver again and again; returns how many it took."""
        for started in range(1, starts_max + 1):
            if self.run(within_s) == 0:
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


def wait_for_pause(query: Query, driver: subprocess.Popen[bytes]) -> int:
    """Wait until a process sleeps at the first point, and return its id."""
    marker = query.plan / "0.reached"

    def told() -> str:
        assert driver.poll() is None, query.said()
        return marker.read_text() if marker.exists() else ""

    try:
        return int(eventually(told, "the driver at the point", RUN_SECONDS_MAX).split()[0])
    except TimeoutError as error:
        raise AssertionError(query.said()) from error


def let_others_run(seconds: float) -> None:
    """Let the other processes run."""
    time.sleep(seconds)  # kills come at moments drawn by chance
