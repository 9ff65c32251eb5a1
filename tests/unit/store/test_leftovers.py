"""Leftovers of killed processes in a folder: old ones are deleted, and no object with them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sparklog.core.clock import SYSTEM_CLOCK, ManualClock
from sparklog.core.errors import Unavailable
from sparklog.store.file import FileStore
from sparklog.store.file_recycling import LEFTOVER_MS

DATA = b"left behind"


def test_old_leftovers_of_killed_processes_are_deleted(tmp_path: Path) -> None:
    clock = ManualClock()
    store = FileStore(tmp_path, clock=clock)
    old_ms = clock.now_ms() - LEFTOVER_MS - 1000
    kept = {"wal/1-b/.put-1": clock.now_ms(), "wal/1-b/0": old_ms}
    kept |= {f"{name}/.put-1": old_ms for name in ("wal/10-c", "wal", "wal/1-a/below", "1-a")}
    gone = {f"wal/{name}": old_ms for name in ("1-a/.put-1", "1-a/.put-2", "1-b/.put-2")}
    for name, modified_ms in (kept | gone).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(DATA)
        os.utime(path, ns=(modified_ms * 1_000_000,) * 2)
    store.tidy("wal/1-")
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == set(kept)
    store.tidy("no/such-")
    store.tidy("wal/1-b/0/")


def test_a_hidden_name_of_an_object_is_deleted_and_the_object_stays(tmp_path: Path) -> None:
    clock = ManualClock(SYSTEM_CLOCK.now_ms() + 2 * LEFTOVER_MS)
    store = FileStore(tmp_path, clock=clock)
    store.put_if_absent("wal/1-a/0", DATA)
    os.link(tmp_path / "wal/1-a/0", tmp_path / "wal/1-a/.put-killed")
    store.tidy("wal/1-")
    assert os.listdir(tmp_path / "wal/1-a") == ["0"]
    assert store.get("wal/1-a/0") == DATA


def test_a_folder_that_cannot_be_tidied_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(tmp_path)
    store.put_if_absent("wal/1-a/0", DATA)

    def failing(folder: str) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "scandir", failing)
    with pytest.raises(Unavailable, match="cannot tidy"):
        store.tidy("wal/1-")
