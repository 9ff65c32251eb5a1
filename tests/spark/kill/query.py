"""A streaming query to be killed: its input, its drivers, and what it has written."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from dataclasses import asdict, replace
from pathlib import Path

import pyarrow as pa

from sparklog.cluster.log import Log, open_log
from tests.harness.waiting import eventually
from tests.spark.kill.driver import Job
from tests.spark.kill.drivers import RUN_SECONDS_MAX, Drivers

PARTITIONS = 3
BATCHES = 6
RECORDS_PER_BATCH = 300
KEYS = 20


class Query(Drivers):
    """A query that copies, and what it has written."""

    program = "tests.spark.kill.driver"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.log: Log = open_log(str(folder / "log"))
        self.job = Job(
            root=str(folder / "log"), checkpoint=str(folder / "checkpoint"), output="out"
        )
        self.expected = BATCHES * RECORDS_PER_BATCH
        self.log.create_topic("out", PARTITIONS)

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

    def argument(self) -> object:
        return asdict(self.job)

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
