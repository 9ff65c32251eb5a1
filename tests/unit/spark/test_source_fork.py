"""Spark forks its Python workers: what a process has opened must not be used by its children."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, sys
import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType
from sparklog.spark.source import scan
from sparklog.spark.access.log_access import shared_log
from sparklog.spark.source.options import parse_batch_options
from sparklog.spark.source.batch_reader import SparklogReader

root = sys.argv[1]
log = shared_log(root)
log.create_topic("t")
values = pa.array([b"x" * 50] * 50_000)
for _ in range(3):
    log.partition("t", 0).append([pa.RecordBatch.from_pydict({"value": values})])

def count():
    options = parse_batch_options({"path": root, "subscribe": "t"})
    reader = SparklogReader(options, StructType([StructField("value", BinaryType())]))
    return sum(b.num_rows for p in reader.partitions() for b in reader.read(p))

def reader():
    return scan._reader(root, log.partition("t", 0).layout)

assert count() == 150_000
ours = reader()
assert reader() is ours
for _ in range(3):
    child = os.fork()
    if not child:
        os._exit(0 if reader() is not ours and count() == 150_000 else 1)
    assert os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_child_reads_with_threads_of_its_own(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, str(tmp_path / "log")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
