"""Upkeep by the scheduler: the latest status of each aircraft is kept, old months of flights go.

The jobs run in the brokers' application, whose schedule says every minute. The demo computes the
expected result from the CSV, and measures the former contents before brokers start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.cluster.log import Log
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.log.manifest.view import PartitionView
from sparklog.spark.demo.producers import PARTITIONS
from sparklog.spark.demo.scene import Expected, Scene, in_order, read_topic, rows_in, sparklog
from sparklog.spark.demo.serving import DemoBrokers
from sparklog.spark.jobs.progress import bytes_text
from sparklog.store.base import ObjectInfo

STEPS: Final = 2
TOPIC: Final = "aircraft"
APPENDS: Final = 12
"""As many objects per partition as the year has months."""
KEPT_FROM: Final = datetime(2013, 7, 1, tzinfo=UTC)
COMPACTION, RETENTION = "latest-status", "old-flights"
SCHEDULE: Final = f"""\
[jobs.{COMPACTION}]
kind = "compact"
cron = "* * * * *"
arguments = ["--topic", "{TOPIC}"]

[jobs.{RETENTION}]
kind = "retain"
cron = "* * * * *"
arguments = ["--topic", "flights", "--topic", "{TOPIC}"]
"""


@dataclass(frozen=True, slots=True)
class Holdings:
    """The contents of a topic."""

    objects: int
    """In its folder: more than the log names while objects wait to be deleted."""
    size_bytes: int
    records: int
    log_starts: tuple[int, ...]

    @classmethod
    def of(cls, log: Log, topic: str) -> Holdings:
        """Look at a topic."""
        views = _views(log, topic)
        stored = [info for view in views for info in _stored(log, view)]
        return cls(
            len(stored),
            sum(info.size_bytes for info in stored),
            sum(entry.rows for view in views for entry in view.entries),
            tuple(view.log_start_offset for view in views),
        )


@dataclass(frozen=True, slots=True)
class Before:
    """The topics' contents before their upkeep, and the offset of the newest of each key."""

    holdings: Mapping[str, Holdings]
    newest: pa.Table
    """Of the compacted topic: `key`, `partition` and `offset`, sorted."""
    kept: pa.Table
    """Of the flights that are to stay: `partition` and `offset`, in order."""


def prepare(scene: Scene, log: Log) -> Before:
    """Make the topics that are looked after, and the schedule of the brokers' application."""
    scene.narrator.step("A compacted topic for the status of each aircraft; flights that may go")
    log.create_topic(TOPIC, PARTITIONS, {"cleanup.policy": "compact", "file.delete.delay.ms": "0"})
    for number in range(PARTITIONS):
        _copy(log, number)
    age_ms = SYSTEM_CLOCK.now_ms() - round(KEPT_FROM.timestamp() * 1000)
    log.alter_configs("flights", {"retention.ms": str(age_ms), "file.delete.delay.ms": "0"})
    scene.narrator.tell(f"{TOPIC}: cleanup.policy=compact, the flights of each tail number")
    scene.narrator.tell(f"flights: retention.ms={age_ms}, which is since {KEPT_FROM:%B %Y}")
    for line in SCHEDULE.splitlines():
        scene.narrator.tell(f"  {line}")
    schedule_of(scene).write_text(SCHEDULE)
    holdings = {topic: Holdings.of(log, topic) for topic in (TOPIC, "flights")}
    before = Before(holdings, _newest(log), _kept_offsets(log))
    _tell(scene, before.holdings)
    return before


def schedule_of(scene: Scene) -> Path:
    """Return the file with the schedule."""
    return scene.stage.work / "jobs.toml"


def await_runs(scene: Scene, brokers: DemoBrokers) -> None:
    """Wait until the scheduler has run both jobs, while brokers serve.

    Raises:
        Unavailable: it has not.
    """
    scene.narrator.step("Upkeep on schedule, in the brokers' application")
    for job in (COMPACTION, RETENTION):
        brokers.await_job(job)


def check_upkeep(scene: Scene, log: Log, expected: Expected, before: Before) -> None:
    """Run retention once more, by hand, and compare what is left with what must be.

    Raises:
        SparklogError: the job failed.
    """
    sparklog(scene, "jobs", "--run", RETENTION, "--master", scene.stage.master)
    sparklog(scene, "jobs", "--history", "--max", "5")
    after = {topic: Holdings.of(log, topic) for topic in (TOPIC, "flights")}
    _tell(scene, after, before.holdings)
    equal, same = scene.checks.equal, scene.checks.same_table
    rows = expected.rows["flights"]
    latest = read_topic(log, TOPIC)
    same(f"{TOPIC}, the newest flight of each", rows_in(latest.column("value"), rows),
         in_order(_latest(rows, expected.times["flights"])))  # fmt: skip
    same(f"{TOPIC}, keys where they were", _newest(log), before.newest)
    kept = rows.filter(_since(expected.times["flights"]))
    found = rows_in(read_topic(log, "flights").column("value"), rows)
    same(f"flights since {KEPT_FROM:%B}, every field", found, in_order(kept))
    same("flights, offsets of those that stay", _kept_offsets(log), before.kept)
    times = _offsets(log, "flights").column("timestamp")
    old = pc.sum(pc.invert(_since(times))).as_py()
    equal(f"flights of before {KEPT_FROM:%B}", old, 0, "there should be")
    for topic in after:
        equal(f"{topic}, objects that no record needs", _left(log, topic), 0, "there should be")


def _copy(log: Log, number: int) -> None:
    """Append a partition of flights to the compacted topic, but those without a tail number."""
    flights = log.partition("flights", number)
    view = flights.view()
    columns = ("timestamp", "key", "value")
    batches = list(flights.read(view.log_start_offset, view.end_offset, columns, view=view))
    if not batches:
        return
    records = pa.Table.from_batches(batches)
    records = records.filter(pc.is_valid(records.column("key"))).combine_chunks()
    share = -(-records.num_rows // APPENDS)
    for start in range(0, records.num_rows, share):
        log.partition(TOPIC, number).append(records.slice(start, share).to_batches())


def _newest(log: Log) -> pa.Table:
    """Return where the newest record of each key is."""
    records = _offsets(log, TOPIC).group_by(["key", "partition"]).aggregate([("offset", "max")])
    return in_order(records.rename_columns(["key", "partition", "offset"]))


def _kept_offsets(log: Log) -> pa.Table:
    records = _offsets(log, "flights")
    return records.filter(_since(records.column("timestamp"))).select(["partition", "offset"])


def _offsets(log: Log, topic: str) -> pa.Table:
    """Return `partition`, `offset`, `timestamp` and `key` of every record, in order."""
    tables = []
    for number, view in enumerate(_views(log, topic)):
        columns = ("offset", "timestamp", "key")
        read = log.partition(topic, number).read(
            view.log_start_offset, view.end_offset, columns, view=view
        )
        for batch in read:
            numbers = pa.repeat(pa.scalar(number, pa.int32()), batch.num_rows)
            records = pa.Table.from_batches([batch])
            tables.append(records.add_column(0, "partition", numbers))
    return pa.concat_tables(tables).combine_chunks()


def _latest(rows: pa.Table, times: pa.Array) -> pa.Table:
    """Return the last row of each tail number, by time and, at the same time, by place."""
    order = pc.sort_indices(times)
    tail_numbers = rows.column("tailnum").take(order).to_pylist()
    newest = dict(zip(tail_numbers, order.to_pylist(), strict=True))
    newest.pop(None, None)
    return rows.take(pa.array(sorted(newest.values())))


def _since(times: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    return pc.greater_equal(times, pa.scalar(KEPT_FROM).cast(times.type))


def _stored(log: Log, view: PartitionView) -> list[ObjectInfo]:
    """Return the objects with records, or that point at records, in a partition's folder."""
    listed = log.store.list(view.layout.folder)
    return [info for info in listed if "/log/" in info.key or "/staged/" in info.key]


def _left(log: Log, topic: str) -> int:
    """Return how many objects a topic has that its log does not name."""
    left = 0
    for view in _views(log, topic):
        named = {e.object for e in view.entries} | {one.name for one in view.tail}
        left += sum(view.layout.relative(i.key) not in named for i in _stored(log, view))
    return left


def _views(log: Log, topic: str) -> list[PartitionView]:
    return [log.partition(topic, n).view() for n in range(log.topic(topic).partitions)]


def _tell(
    scene: Scene, holdings: Mapping[str, Holdings], before: Mapping[str, Holdings] | None = None
) -> None:
    for topic, one in holdings.items():
        for when, which in (("before", (before or {}).get(topic)), ("now", one)):
            if which is not None:
                scene.narrator.tell(
                    f"{topic:8} {when if before else '':6} {which.records:8,} records in "
                    f"{which.objects:3} objects, {bytes_text(which.size_bytes):>9}; "
                    f"log starts {_spelled(which.log_starts)}"
                )


def _spelled(numbers: tuple[int, ...]) -> str:
    return ", ".join(f"{number:,}" for number in numbers)
