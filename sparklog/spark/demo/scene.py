"""Scene: the common parts of the demo's steps (log, folder, Spark, narrator and judge).

The narrator prints numbered steps with their times, and commands as a person would type them.

The command part runs the `sparklog` command, and shows what is typed and what it says.

The judge compares results with the expected ones, and remembers every difference.

The expected results are totals of the package's files, computed without sparklog and Spark.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TextIO

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from sparklog.cluster.log import Log
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.shipped_files import shipped_folder
from sparklog.spark.access.log_options import ROOT_VARIABLE
from sparklog.spark.demo.flights import event_times, table_of
from sparklog.spark.demo.processes import Child, Children, Submitter, shown

_INDENT = "    "


class Narrator:
    """Writes the story. Thread-safe: the follower speaks while producers work."""

    def __init__(self, stream: TextIO, steps: int, clock: Clock = SYSTEM_CLOCK) -> None:
        """Begin the output of a demo of `steps` steps."""
        self._stream = stream
        self._steps = steps
        self._step = 0
        self._clock = clock
        self._started_s = clock.monotonic_s()
        self._lock = Lock()

    def step(self, title: str) -> None:
        """Begin the next step."""
        self._step += 1
        self._write(f"\n[{self._step}/{self._steps}] {title}  ({self.elapsed_s():.0f} s)")

    def tell(self, text: str) -> None:
        """Say something within the step."""
        self._write("\n".join(_INDENT + line for line in text.splitlines()))

    def command(self, text: str) -> None:
        """Show what is run."""
        first, *rest = text.splitlines()
        self._write("\n".join([f"{_INDENT}$ {first}", *(f"{_INDENT}  {line}" for line in rest)]))

    def close(self, text: str) -> None:
        """Say the last words."""
        self._write(f"\n{text}")

    def elapsed_s(self) -> float:
        """Return the seconds since the story began."""
        return self._clock.monotonic_s() - self._started_s

    def _write(self, text: str) -> None:
        with self._lock:
            print(text, file=self._stream, flush=True)


class Checks:
    """Says each comparison's result, and counts those that failed."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        """Say results by `tell`."""
        self._tell = tell
        self.passed = 0
        self.failed = 0

    def equal(self, what: str, found: object, expected: object, by: str = "the CSV says") -> None:
        """Compare two numbers or texts; `by` is whose word the expectation is."""
        same = found == expected
        self._note(same, f"{what}: {_spelled(found)}", f", but {by} {_spelled(expected)}")

    def same_table(self, what: str, found: pa.Table, expected: pa.Table) -> None:
        """Compare two tables in the same order, column by column."""
        wrong = [name for name in expected.column_names if not _same_column(found, expected, name)]
        rows = f"{found.num_rows:,} rows"
        difference = f", but the CSV gives {expected.num_rows:,} rows"
        if wrong and found.num_rows == expected.num_rows:
            difference = f", but not the CSV's in: {', '.join(wrong)}"
        self._note(not wrong, f"{what}: {rows}", difference)

    def _note(self, good: bool, statement: str, difference: str) -> None:
        if good:
            self.passed += 1
            self._tell(f"ok    {statement}")
        else:
            self.failed += 1
            self._tell(f"WRONG {statement}{difference}")


def read_topic(log: Log, topic: str) -> pa.Table:
    """Return keys, values, timestamps and offsets of every record, partition after partition."""
    batches: list[pa.RecordBatch] = []
    for number in range(log.topic(topic).partitions):
        partition = log.partition(topic, number)
        view = partition.view()
        columns = ("offset", "timestamp", "key", "value")
        batches += partition.read(view.log_start_offset, view.end_offset, columns, view=view)
    return pa.Table.from_batches(batches)


def rows_in(values: pa.ChunkedArray, like: pa.Table) -> pa.Table:
    """Return JSON values as a table with the columns and types of `like`, sorted by all of them."""
    lines = b"\n".join(values.to_pylist())
    options = arrow_json.ParseOptions(
        explicit_schema=like.schema, unexpected_field_behavior="error"
    )
    blocks = arrow_json.ReadOptions(block_size=8 << 20)
    found = arrow_json.read_json(pa.BufferReader(lines), blocks, options)
    return in_order(found.select(like.column_names))


def in_order(rows: pa.Table) -> pa.Table:
    """Return rows sorted by all their columns."""
    return rows.sort_by([(name, "ascending") for name in rows.column_names]).combine_chunks()


def _same_column(found: pa.Table, expected: pa.Table, name: str) -> bool:
    if name not in found.column_names:
        return False
    return bool(found.column(name).equals(expected.column(name)))


def _spelled(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


NOTHING_YET = "0 records"


@dataclass(frozen=True, slots=True)
class Stage:
    """The places that the demo uses."""

    root: str
    folder: Path
    """The demo's remains: Delta table, Spark's log, the log itself unless that is elsewhere."""
    master: str

    @property
    def work(self) -> Path:
        """Return the folder that goes away at the end."""
        return self.folder / "work"

    @property
    def spark_log(self) -> Path:
        """Return the file that takes what Spark says."""
        return self.folder / "spark.log"

    @property
    def table(self) -> Path:
        """Return the Delta table."""
        return self.folder / "delays"


@dataclass(slots=True)
class Scene:
    """One performance."""

    stage: Stage
    narrator: Narrator
    children: Children
    checks: Checks
    environment: dict[str, str]
    """Of every process that is started; the S3 server's address is added to it."""
    s3_server: Child | None = None
    submitter: Submitter = field(init=False)

    def __post_init__(self) -> None:
        """Make the calls of spark-submit, and the log known to them."""
        self.environment[ROOT_VARIABLE] = self.stage.root
        self.submitter = Submitter(self.stage.master, self.stage.work, self.environment)

    def job(self, name: str, *arguments: str) -> Child:
        """Submit one of the project's jobs, and show the call."""
        self.narrator.command(shown(f"jobs/{name}", arguments))
        words = self.submitter.words(shipped_folder("jobs") / name, *arguments, "--json")
        return self.children.start(words, self.submitter.environ(), self._tell_progress)

    def _tell_progress(self, line: str) -> None:
        if not line.startswith(NOTHING_YET):
            self.narrator.tell(line)


WIDTH = 150


def sparklog(scene: Scene, *words: str) -> None:
    """Run the command.

    Raises:
        ChildFailed: its exit code is not 0.
    """
    scene.narrator.command(" ".join(["sparklog", *words]))
    child = scene.children.start([sys.executable, "-m", "sparklog.cli", *words], scene.environment)
    for line in child.lines():
        scene.narrator.tell(_cut(line.rstrip()))
    child.finish()


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


KEYS = {"flights": "tailnum", "planes": "tailnum", "weather": "origin"}
"""The column whose value is the key of a record. 2,512 flights have no tail number: no key."""

DELAY_COLUMNS = ("carrier", "hour", "flights", "departed", "dep_delay", "arr_delay")


@dataclass(frozen=True, slots=True)
class Expected:
    """The files as tables, and when each row happened."""

    rows: Mapping[str, pa.Table]
    times: Mapping[str, pa.Array]

    def count(self, topic: str) -> int:
        """Return how many records the topic must have."""
        return int(self.rows[topic].num_rows)

    def keys(self, topic: str) -> pa.Table:
        """Return how many records each key must have: columns `key` and `records`, sorted."""
        keys = self.rows[topic].column(KEYS[topic]).cast(pa.binary())
        return counted_keys(keys)

    def delays(self) -> pa.Table:
        """Return flights and delays by carrier and hour, sorted; see `DELAY_COLUMNS`."""
        rows = self.rows["flights"]
        hours = rows.column("time_hour").cast(pa.timestamp("us", "UTC"))
        grouped = (
            rows.append_column("at", hours)
            .group_by(["carrier", "at"])
            .aggregate(
                [([], "count_all"), ("dep_delay", "count"), ("dep_delay", "sum"),
                 ("arr_delay", "sum")]
            )
        )  # fmt: skip
        names = ("carrier", "at", "count_all", "dep_delay_count", "dep_delay_sum", "arr_delay_sum")
        return sorted_delays(pa.table([grouped.column(n) for n in names], list(DELAY_COLUMNS)))

    def since(self, topic: str, moment_s: int) -> int:
        """Return how many rows happened at or after a moment (seconds since 1970)."""
        start = pa.scalar(moment_s, pa.int64()).cast(pa.timestamp("s", "UTC"))
        return int(pc.sum(pc.greater_equal(self.times[topic], start)).as_py() or 0)


def expected_of(originals: Mapping[str, bytes]) -> Expected:
    """Read the package's files."""
    rows = {topic: table_of(data) for topic, data in originals.items()}
    return Expected(rows, {topic: event_times(topic, one) for topic, one in rows.items()})


def counted_keys(keys: pa.ChunkedArray) -> pa.Table:
    """Return how often each key occurs, sorted by key, null last."""
    counted = pa.table({"key": keys}).group_by("key").aggregate([([], "count_all")])
    return counted.rename_columns(["key", "records"]).sort_by("key")


def sorted_delays(table: pa.Table) -> pa.Table:
    """Return delays in one order and with one set of types, so that two tables can be compared."""
    wanted = pa.schema(
        [("carrier", pa.string()), ("hour", pa.timestamp("us", "UTC"))]
        + [(name, pa.int64()) for name in DELAY_COLUMNS[2:]]
    )
    chosen = table.select(DELAY_COLUMNS).cast(wanted)
    return chosen.sort_by([("carrier", "ascending"), ("hour", "ascending")]).combine_chunks()
