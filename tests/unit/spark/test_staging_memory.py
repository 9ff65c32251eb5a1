"""The memory of one task that writes far more than it may hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LIMIT_MIB = 512
WRITTEN_MIB = 600

TASK = """
import sys
import numpy as np
import pyarrow as pa
from sparklog.cluster.log import open_log
from sparklog.spark.sink.options import SinkOptions
from sparklog.spark.sink.writer import stage_rows

root, mebibytes = sys.argv[1], int(sys.argv[2])
log = open_log(root)
log.create_topic("t", 3)
rows, size = 10_000, 1024
noise = np.random.default_rng(1).integers(0, 256, rows * size, np.uint8).tobytes()
ends = pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * size)
keys = pa.array([b"key-%d" % n for n in range(rows)], pa.binary())

def batches():
    for _ in range(mebibytes * 1024 * 1024 // (rows * size)):
        body = pa.py_buffer(bytearray(noise))
        values = pa.Array.from_buffers(pa.binary(), rows, [None, ends, body])
        yield pa.RecordBatch.from_arrays([keys, values], names=["key", "value"])

staged = stage_rows(log, SinkOptions(root, "t"), ["key", "value"], batches())
stored = sum(r.size_bytes for part in staged for r in part.staged) >> 20
status = open("/proc/self/status").read().split()
peak = int(status[status.index("VmHWM:") + 1]) >> 10
print(stored, peak)
"""


def test_a_task_that_writes_much_stays_under_half_a_gibibyte(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TASK, str(tmp_path / "log"), str(WRITTEN_MIB)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    stored_mib, peak_mib = map(int, done.stdout.split())
    assert stored_mib > WRITTEN_MIB * 0.9, "the records compressed; the case did not come about"
    assert peak_mib < LIMIT_MIB
