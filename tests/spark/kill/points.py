"""Points at which a process is killed, and a data source that passes them.

Only tests import this. `PointsSource` is the product's data source with a log whose store, and a
writer whose steps, look at a plan before they go on. A plan is a folder:

- `plan.json`: the points, in the order in which they are to be reached.
- `<n>.reached`: made by the process that reaches point n. Each is reached once, after those before.
- `careless`: if it is there, batches are published without their number. That is the mutant.

The environment variable `SPARKLOG_TEST_POINTS` names the folder, so that it reaches every process.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from sparklog.client.batch_producer import TransactionalProducer
from sparklog.cluster.log import Log
from sparklog.cluster.publication import (
    AppendInTransaction,
    AppendLed,
    StagedPartition,
    append_once,
)
from sparklog.core.errors import SparklogError
from sparklog.core.types import TopicPartition
from sparklog.log.partition.append import AppendResult
from sparklog.log.segment.segment import CommitStamp
from sparklog.spark.access.log_access import shared_log
from sparklog.spark.datasource import SparklogDataSource
from sparklog.spark.sink.transactional_sink import TransactionalAppends
from sparklog.spark.sink.writer import SparklogStreamWriter, Staged, stream_writer
from sparklog.store.base import Data, ObjectStore, PutOutcome
from sparklog.store.delegating_store import DelegatingStore

PLAN_VARIABLE = "SPARKLOG_TEST_POINTS"
DRIVER_FILE = "driver.pid"
CARELESS_FILE = "careless"

Victim = Literal["itself", "driver", "executor", "pause", "nobody"]


@dataclass(frozen=True, slots=True)
class Point:
    """A place in the run, and the process that passes it.

    `where` matches `before put <key>`, `after put <key>`, `staged` (a task is done),
    `before commit <batch>` and `after commit <batch>`. In between, where brokers lead the topic, it
    matches `before <step>` and `after <step>`. A step is `send`, and in a transaction also `begin`,
    `tell` and `end`. A broker's puts are preceded by its name: `broker 1: …`.
    """

    where: str
    victim: Victim


def write_plan(folder: Path, points: Sequence[Point]) -> None:
    """Make a plan."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.json").write_text(json.dumps([asdict(p) for p in points]))


def reached(folder: Path) -> int:
    """Return how many points have been reached."""
    return len(list(folder.glob("*.reached")))


def pass_point(where: str) -> None:
    """Go on, unless the plan says otherwise."""
    folder = Path(os.environ[PLAN_VARIABLE])
    points = [Point(**p) for p in json.loads((folder / "plan.json").read_text())]
    number = reached(folder)
    if number >= len(points) or not re.fullmatch(points[number].where, where):
        return
    try:
        with (folder / f"{number}.reached").open("x") as file:
            file.write(f"{os.getpid()} {where}")
    except FileExistsError:
        return
    _strike(points[number].victim, folder)


def _strike(victim: Victim, folder: Path) -> None:
    match victim:
        case "nobody":
            return
        case "pause":
            os.kill(os.getpid(), signal.SIGSTOP)
            return
        case "driver":
            # The driver's process group: its Python and its JVM, at once.
            os.killpg(int((folder / DRIVER_FILE).read_text()), signal.SIGKILL)
        case "executor":
            os.kill(_parent(os.getppid()), signal.SIGKILL)
        case "itself":
            pass
    os.kill(os.getpid(), signal.SIGKILL)


def _parent(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("PPid:")).split()[1])


class PointsStore(DelegatingStore):
    """Passes a point before and after every put."""

    def __init__(self, inner: ObjectStore, owner: str = "") -> None:
        super().__init__(inner)
        self.owner = owner

    def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        pass_point(f"{self.owner}before put {key}")
        outcome = self._store.put_if_absent(key, data)
        pass_point(f"{self.owner}after put {key}")
        return outcome


_logs: dict[tuple[int, str], Log] = {}


def points_log(root: str) -> Log:
    """Return this process's log, on a store that passes points."""
    key = (os.getpid(), root)
    if key not in _logs:
        _logs[key] = Log(PointsStore(shared_log(root).store))
    return _logs[key]


class PointsWriter(SparklogStreamWriter):
    """The product's writer, which passes points between its steps."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        staged = super().write(iterator)
        pass_point("staged")
        return staged

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        pass_point(f"before commit {batchId}")
        if (Path(os.environ[PLAN_VARIABLE]) / CARELESS_FILE).exists():
            staged = [m.partitions for m in messages if isinstance(m, Staged)]
            append_once(points_log(self.options.root), [part for parts in staged for part in parts])
        else:
            super().commit(messages, batchId)
        pass_point(f"after commit {batchId}")

    def leaders(self, log: Log) -> AppendLed:
        appends = super().leaders(log)

        def append(
            parts: Sequence[StagedPartition], commit: CommitStamp | None
        ) -> Mapping[TopicPartition, AppendResult | SparklogError]:
            pass_point("before send")
            found = appends(parts, commit)
            pass_point("after send")
            return found

        return append

    def transaction(self, log: Log) -> AppendInTransaction:
        return PointsTransactions(log, self.options.bootstrap)


class PointsTransactions(TransactionalAppends):
    """The product's transactions, which pass points between their steps."""

    def begin(self, *args: Any, **kwargs: Any) -> TransactionalProducer:
        pass_point("before begin")
        producer = super().begin(*args, **kwargs)
        pass_point("after begin")
        return producer

    def send(self, *args: Any, **kwargs: Any) -> Mapping[TopicPartition, AppendResult]:
        pass_point("before send")
        appended = super().send(*args, **kwargs)
        pass_point("after send")
        return appended

    def tell(self, *args: Any, **kwargs: Any) -> None:
        super().tell(*args, **kwargs)
        pass_point("after tell")

    def end(self, *args: Any, **kwargs: Any) -> None:
        super().end(*args, **kwargs)
        pass_point("after end")


class PointsSource(SparklogDataSource):
    """`format("sparklogpoints")`."""

    @classmethod
    def name(cls) -> str:
        return "sparklogpoints"

    def streamWriter(self, schema: StructType, overwrite: bool) -> PointsWriter:  # noqa: N802
        made = stream_writer(self.options, schema, overwrite)
        return PointsWriter(made.options, made.columns, points_log)
