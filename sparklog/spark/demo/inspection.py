"""Looking at the log itself, without Spark: its records, one segment, its size and its bill."""

from __future__ import annotations

import sys
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.cluster.log import Log
from sparklog.core.counters import RequestCounters
from sparklog.log.manifest.view import PartitionView
from sparklog.spark.demo.flights import TOPICS
from sparklog.spark.demo.scene import Expected, Scene, counted_keys, in_order, read_topic, rows_in
from sparklog.spark.jobs.progress import bytes_text
from sparklog.store.root_url import scheme_of
from sparklog.store.settings import S3Access

DUMPED_RECORDS = 3
LINE_WIDTH = 150


def check_log(scene: Scene, log: Log, expected: Expected) -> None:
    """Compare every record of the log with the CSV: how many, every key, every field."""
    scene.narrator.step("Every record of the log, read without Spark, against the CSV")
    for topic in TOPICS:
        records = read_topic(log, topic)
        rows = expected.rows[topic]
        scene.checks.equal(f"{topic}, records", records.num_rows, expected.count(topic))
        keys = counted_keys(records.column("key"))
        scene.checks.same_table(f"{topic}, records of each key", keys, expected.keys(topic))
        found = rows_in(records.column("value"), rows)
        scene.checks.same_table(f"{topic}, every field of every row", found, in_order(rows))


def look_inside(scene: Scene, log: Log) -> None:
    """Open one object with plain pyarrow, and dump a few records."""
    scene.narrator.step("Inside: a segment is an Arrow file that anything opens")
    view = log.partition("flights", 0).view()
    name = view.layout.key(view.entries[0].object)
    with _opened(scene, log, name) as file, pa.ipc.open_file(file) as segment:
        for field in segment.schema:
            scene.narrator.tell(f"{field.name}: {field.type}")
        first = segment.get_batch(0).slice(0, 1).to_pylist()[0]
        scene.narrator.tell(f"first of {segment.get_batch(0).num_rows:,} rows in its first batch:")
        for column, value in first.items():
            scene.narrator.tell(_cut(f"  {column} = {value}"))
    _dump(scene, name)


def _opened(scene: Scene, log: Log, name: str) -> Any:
    """Open an object for reading, by fsspec where the project's own libraries reach the root."""
    root = scene.stage.root
    if scheme_of(root) in ("abfs", "gs"):
        scene.narrator.command(f'pyarrow.ipc.open_file("…/{name}")')
        return pa.BufferReader(log.store.get(name))
    scene.narrator.command(f'pyarrow.ipc.open_file(fsspec.open("…/{name}"))')
    options = _s3_options(scene) if scheme_of(root) == "s3" else {}
    return fsspec.open(f"{root.rstrip('/')}/{name}", "rb", **options)


def _s3_options(scene: Scene) -> dict[str, str | None]:
    access = S3Access.from_environment(scene.environment)
    return {
        "endpoint_url": access.endpoint_url,
        "key": access.access_key_id,
        "secret": access.secret_access_key,
        "token": access.session_token,
    }


def _dump(scene: Scene, name: str) -> None:
    arguments = ["dump-log", "--root", scene.stage.root, "--files", name, "--print-data-log"]
    scene.narrator.command(f"sparklog {' '.join(arguments[:-2])} \\\n    {name} --print-data-log")
    child = scene.children.start([sys.executable, "-m", "sparklog.cli", *arguments],
                                 scene.environment)  # fmt: skip
    records = 0
    for line in child.lines():
        scene.narrator.tell(_cut(line.rstrip()))
        records += line.startswith("| offset")
        if records == DUMPED_RECORDS:
            break
    child.end()
    scene.checks.equal("records dumped", records, DUMPED_RECORDS)


def tell_bill(scene: Scene, log: Log, counters: RequestCounters) -> None:
    """Say what the log takes and what was asked of the store."""
    scene.narrator.step("The bill")
    made = sorted(counters.by_kind().items())
    for topic in TOPICS:
        views = [log.partition(topic, n).view() for n in range(log.topic(topic).partitions)]
        entries = [entry for view in views for entry in view.entries]
        rows = sum(entry.rows for entry in entries)
        stored = sum(entry.size_bytes for entry in entries)
        raw = sum(_payload_bytes(log, topic, n, view) for n, view in enumerate(views))
        scene.narrator.tell(
            f"{topic:8} {stored / rows:6.1f} bytes per record on storage, {raw / rows:.1f} of key "
            f"and value; {bytes_text(stored)} in {len(entries)} objects"
        )
    for kind, count in made:
        size = f", {bytes_text(count.bytes)}" if count.bytes else ""
        scene.narrator.tell(f"requests of this process: {count.requests:5} {kind}{size}")
    if scene.s3_server is not None:
        scene.s3_server.send("counts")
        counts = scene.s3_server.document()
        spelled = ", ".join(f"{number:,} {kind}" for kind, number in sorted(counts.items()))
        scene.narrator.tell(f"requests the S3 server saw, of all processes: {spelled}")
    else:
        listed = sum(1 for _ in log.store.list(""))
        scene.narrator.tell(
            f"objects in the log: {listed}; each was put once, by producers or by this process"
        )


def _payload_bytes(log: Log, topic: str, partition: int, view: PartitionView) -> int:
    read = log.partition(topic, partition).read(
        view.log_start_offset, view.end_offset, ("key", "value"), view=view
    )
    return sum(
        pc.sum(pc.binary_length(column)).as_py() or 0 for batch in read for column in batch.columns
    )


def _cut(line: str) -> str:
    return line if len(line) <= LINE_WIDTH else line[: LINE_WIDTH - 1] + "…"
