"""Through a store that leaves the disk to the system nothing waits for the disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sparklog.core.errors import Unavailable
from sparklog.store.base import PutOutcome
from sparklog.store.file import FileStore

CREATED, EXISTS = PutOutcome.CREATED, PutOutcome.EXISTS
DATA, OTHER = b"data" * 1000, b"other" * 900


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "root")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "root" / "log"


def inode(folder: Path, name: str) -> int:
    return (folder / name).stat().st_ino


def hidden(folder: Path) -> list[Path]:
    return sorted(folder.glob(".put-*"))


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The inodes that were forced to the disk."""
    found: list[int] = []
    fsync = os.fsync

    def noting(descriptor: int) -> None:
        found.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    return found


def test_unforced_store_forces_nothing(store: FileStore, folder: Path, forced: list[int]) -> None:
    store.put_if_absent("log/0", DATA)
    assert forced[-2:] == [inode(folder, "0"), folder.stat().st_ino]
    forced.clear()
    unforced = store.unforced()
    assert unforced is not None
    assert unforced.put_if_absent("log/1", DATA) is CREATED
    assert unforced.put_if_absent("log/0", OTHER) is EXISTS
    assert store.get("log/1") == DATA
    assert forced == []
    assert unforced.unforced() is None


def test_file_retired_through_the_unforced_store_is_reused_at_once(
    store: FileStore, folder: Path, forced: list[int]
) -> None:
    unforced = store.unforced()
    assert unforced is not None
    unforced.put_if_absent("log/0", DATA)
    spare = inode(folder, "0")
    unforced.retire("log/0")
    forced.clear()
    unforced.put_if_absent("log/1", OTHER)
    assert inode(folder, "1") == spare
    assert store.get("log/1") == OTHER
    assert forced == []


def test_spare_files_are_given_up_for_a_full_disk(
    store: FileStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unforced = store.unforced()
    assert unforced is not None
    unforced.put_if_absent("log/0", DATA)
    unforced.retire("log/0")
    assert len(hidden(folder)) == 1

    def full(descriptor: int, data: bytes | memoryview) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(Unavailable, match="full"):
        store.put_if_absent("segments/0", DATA)
    assert hidden(folder) == []
