"""Many processes append to one partition of a real folder: everything once, offsets dense."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from sparklog.store.file import FileStore
from tests.harness.log_records import open_partition, values

WRITERS = 4
APPENDS = 25

WRITER = """
import sys
from sparklog.store.file import FileStore
from tests.harness.log_records import batch, open_partition
folder, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
log = open_partition(FileStore(folder))
for i in range(count):
    done = log.append([batch([f"{name}-{i}-{j}".encode() for j in range(3)])])
    print(done.base_offset, flush=True)
"""


def test_racing_processes_lose_and_repeat_nothing(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), f"w{n}", str(APPENDS)],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[3],
            text=True,
        )
        for n in range(WRITERS)
    ]
    acknowledged = []
    for n, writer in enumerate(writers):
        out, _ = writer.communicate(timeout=400)
        assert writer.returncode == 0
        acknowledged += [(int(base), f"w{n}-{i}") for i, base in enumerate(out.split())]
    log = open_partition(FileStore(tmp_path))
    view = log.view()
    assert view.end_offset == WRITERS * APPENDS * 3
    assert view.manifest.version > 0, "the tail was never taken in"
    found = values(log, 0, view.end_offset)
    for base, prefix in acknowledged:
        assert found[base : base + 3] == [f"{prefix}-{j}".encode() for j in range(3)]
    assert len(acknowledged) == WRITERS * APPENDS
