"""SIGKILL before and after every write of a job: the log is as it was, or as it shall be."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sparklog.cluster.log import Log
from sparklog.cluster.named_snapshots import (
    SnapshotReader,
    create_snapshot,
    read_snapshot,
    snapshot_records,
)
from sparklog.log.effects import run
from sparklog.log.repair.verify import verify
from sparklog.store.file import FileStore
from tests.harness.killed_jobs import TOPIC
from tests.harness.log_records import batch, numbered

KILLED = -9
Rows = list[tuple[int, bytes, bytes]]
KEEP = {
    "compact": {"cleanup.policy": "compact", "retention.ms": "-1"},
    "retain": {"retention.bytes": "0", "retention.ms": "-1"},
    "snapshot": {"retention.ms": "-1"},
}


class Runner:
    """Has jobs run in processes that may be killed."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.harness.killed_jobs"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[3],
            text=True,
        )

    def run(self, root: Path, job: str, at: int = 0, when: str = "before") -> tuple[int, int]:
        """Return how the process ended, and how many writes it began."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(root, job, at, when, file=self._process.stdin, flush=True)
        code, writes = self._process.stdout.readline().split()
        return int(code), int(writes)

    def close(self) -> None:
        self._process.communicate(timeout=30)
        assert self._process.returncode == 0


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    running = Runner()
    yield running
    running.close()


def filled(root: Path, job: str) -> None:
    """A topic of five small segments, two of them in the tail, and a snapshot of all."""
    with Log(FileStore(root, fsync=False)) as log:
        settings = {"file.delete.delay.ms": "0", "delete.retention.ms": "0", **KEEP[job]}
        log.create_topic(TOPIC, 1, settings)
        partition = log.partition(TOPIC, 0)
        for number in range(3):
            partition.append([numbered(4 * number, 4)])
        partition.absorb_tail()
        partition.append([numbered(12, 4)])
        partition.append_staged([partition.stage([batch([b"staged"], keys=[b"k"])])])
        create_snapshot(log, "first", [TOPIC])


def records(root: Path) -> Rows:
    with Log(FileStore(root, fsync=False)) as log:
        partition = log.partition(TOPIC, 0)
        view = partition.view()
        return [
            row
            for one in partition.read(view.log_start_offset, view.end_offset, view=view)
            for row in zip(*(one.column(n).to_pylist() for n in ("offset", "key", "value")),
                           strict=True)
        ]  # fmt: skip


def kept(root: Path, name: str = "first") -> int:
    """Return how many records a snapshot has, all of them read."""
    with Log(FileStore(root, fsync=False)) as log, ThreadPoolExecutor(2) as pool:
        reader = SnapshotReader(log.store, read_snapshot(log.store, name), pool)
        return sum(one.num_rows for one in reader.read(TOPIC, 0))


def check_whole(root: Path) -> None:
    with Log(FileStore(root, fsync=False)) as log, ThreadPoolExecutor(2) as pool:
        layout = log.partition(TOPIC, 0).layout
        found = verify(log.store, layout, pool, deep=True, now_ms=1 << 42)
        assert found.damages == ()


@pytest.mark.parametrize("job", KEEP)
def test_job_killed_at_any_write_is_finished_by_a_second_run(
    job: str, runner: Runner, tmp_path: Path
) -> None:
    start = tmp_path / "start"
    filled(start, job)
    before = records(start)
    assert len(before) == 17
    done = tmp_path / "done"
    shutil.copytree(start, done)
    code, writes = runner.run(done, job)
    assert code == 0
    assert writes >= 2
    after = records(done)
    assert (after == before) == (job == "snapshot")
    for at in range(1, writes + 1):
        for when in ("before", "after"):
            root = tmp_path / f"{at}-{when}"
            shutil.copytree(start, root)
            assert runner.run(root, job, at, when) == (KILLED, at)
            assert records(root) in (before, after)
            assert kept(root) == 17
            check_whole(root)
            _end(runner, root, job, after)
            shutil.rmtree(root)


def _end(runner: Runner, root: Path, job: str, after: Rows) -> None:
    """Run the job to its end; of a snapshot either it is there, whole, or it can be made."""
    if job == "snapshot":
        with Log(FileStore(root, fsync=False)) as log:
            names = [one.name for one in run(snapshot_records(), log.store).snapshots]
        if "made" in names:
            assert kept(root, "made") == 17
            return
    assert runner.run(root, job)[0] == 0
    assert records(root) == after
    assert kept(root, "made" if job == "snapshot" else "first") == 17
    check_whole(root)
