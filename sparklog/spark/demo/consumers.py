"""The two consumers: one follows by offset and keeps a Delta table, one starts at a time.

The module reads a Delta table without Spark and without Delta: its log says which Parquet files
count.
"""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from sparklog.core.bounded_json import parse_json
from sparklog.spark.demo import follow
from sparklog.spark.demo.processes import Child
from sparklog.spark.demo.scene import Expected, Scene, sorted_delays
from sparklog.spark.jobs.jars import delta_conf


def read_delta(table: Path) -> pa.Table:
    """Return the rows of the newest version of a table whose whole log is there."""
    files: dict[str, None] = {}
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            action = parse_json(line, "command")
            if "add" in action:
                files[unquote(action["add"]["path"])] = None
            elif "remove" in action:
                files.pop(unquote(action["remove"]["path"]), None)
    return pa.concat_tables([parquet.read_table(table / name) for name in files])


SINCE = "2013-07-01T00:00:00Z"
SINCE_S = 1_372_636_800
TOP = 5


class StreamFollower:
    """The process of `follow`, and the thread that prints what it says."""

    def __init__(self, scene: Scene) -> None:
        """Start it."""
        stage = scene.stage
        scene.narrator.step("A follower: delays by carrier and hour, from the stream into Delta")
        program = Path(follow.__file__)
        arguments = {
            "--root": stage.root,
            "--table": str(stage.table),
            "--checkpoint": str(stage.work / "checkpoints" / "follow"),
        }
        scene.narrator.tell(f"readStream on topic flights, in {program.name}; it starts meanwhile")
        if stage.root.startswith("s3://"):
            scene.narrator.tell("its Delta table stays on this disk: only the log is on S3")
        flat = [word for pair in arguments.items() for word in pair]
        words, environment = scene.submitter.driver(program, *flat, conf=delta_conf())
        self._scene = scene
        self._child: Child = scene.children.start(words, environment)
        self._teller = Thread(target=self._tell, name="follower", daemon=True)
        self.records = 0
        self._teller.start()

    def finish(self) -> None:
        """Let it take what is left, and wait for its end.

        Raises:
            ChildFailed: it failed.
        """
        self._child.send("finish")
        self._teller.join()
        self._child.finish()

    def _tell(self) -> None:
        for said in self._child.documents():
            if said["event"] == "ready":
                self._scene.narrator.tell("follower: ready")
            elif said["event"] == "batch":
                self.records += said["rows"]
                ends = ", ".join(f"{number}: {end:,}" for number, end in said["end"].items())
                self._scene.narrator.tell(
                    f"follower: {said['rows']:,} flights in {said['ms'] / 1000:.1f} s, now at "
                    f"offsets {ends}; {said['groups']:,} carriers and hours"
                )


def check_delays(scene: Scene, follower: StreamFollower, expected: Expected) -> None:
    """Let the follower finish, and compare its table."""
    scene.narrator.step("The follower's Delta table, against totals of the CSV")
    follower.finish()
    scene.checks.equal("flights followed", follower.records, expected.count("flights"))
    found = sorted_delays(read_delta(scene.stage.table))
    wanted = expected.delays()
    scene.checks.same_table("delays by carrier and hour", found, wanted)
    for name in ("flights", "dep_delay", "arr_delay"):
        total, must = pc.sum(found.column(name)).as_py(), pc.sum(wanted.column(name)).as_py()
        scene.checks.equal(f"sum of {name}", total, must)
    scene.narrator.tell(_worst(found))


def consume_since(scene: Scene, expected: Expected) -> None:
    """Consume two topics from a time on, and compare how many records came."""
    scene.narrator.step(f"A second consumer: flights and weather since {SINCE}")
    output = scene.stage.work / "since"
    job = scene.job(
        "consume.py",
        *("--topic", "flights,weather", "--from-time", SINCE),
        *("--columns", "topic,partition,offset,timestamp", "--to", "parquet"),
        *("--output", str(output)),
    )
    report = job.finish()[-1]
    rows = parquet.read_table(output, columns=["topic", "timestamp"])
    counted = rows.group_by("topic").aggregate([([], "count_all"), ("timestamp", "min")])
    found = {one["topic"]: one for one in counted.to_pylist()}
    total = 0
    for topic in ("flights", "weather"):
        must = expected.since(topic, SINCE_S)
        total += must
        one = found.get(topic, {"count_all": 0, "timestamp_min": None})
        scene.checks.equal(f"{topic} since then", one["count_all"], must)
        early = one["timestamp_min"] is None or one["timestamp_min"].timestamp() < SINCE_S
        scene.checks.equal(f"{topic} before then", int(early), 0)
    scene.checks.equal("records it reports", report["rows"], total)


def _worst(delays: pa.Table) -> str:
    """Return the carriers with the longest mean delay as a small table."""
    by_carrier = delays.group_by("carrier").aggregate(
        [("flights", "sum"), ("departed", "sum"), ("dep_delay", "sum")]
    )
    mean = pc.divide(
        by_carrier.column("dep_delay_sum").cast(pa.float64()), by_carrier.column("departed_sum")
    )
    worst = by_carrier.append_column("mean", mean).sort_by([("mean", "descending")])
    lines = ["carriers that leave latest, from the table:"]
    lines += [
        f"  {one['carrier']} {one['flights_sum']:7,} flights, {one['mean']:5.1f} minutes late"
        for one in worst.slice(0, TOP).to_pylist()
    ]
    return "\n".join(lines)
