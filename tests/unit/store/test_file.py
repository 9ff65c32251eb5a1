"""Faults that only a folder can have: full disks, leftovers, other people's files."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from sparklog.core.clock import Clock
from sparklog.core.errors import InvalidRequest, Unavailable
from sparklog.store.base import ObjectStore, PutOutcome
from sparklog.store.file import FORCED_AT_ONCE_BYTES, FileStore, write_bytes

ROOT = Path(__file__).parents[3]


@pytest.fixture(params=["nameless", "named"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> FileStore:
    """A store on a file system with nameless files, and one that has to do without."""
    store = FileStore(tmp_path / "root")
    if request.param == "named":
        store._nameless = False
    return store


def files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_writing_leaves_only_the_objects(store: FileStore, tmp_path: Path) -> None:
    assert store.put_if_absent("log/0", b"x" * 10_000) is PutOutcome.CREATED
    assert store.put_if_absent("log/0", b"y") is PutOutcome.EXISTS
    store.put("hint", b"1")
    store.put("hint", b"2")
    assert files(tmp_path / "root") == ["hint", "log/0"]
    assert (tmp_path / "root/log/0").stat().st_mode & 0o777 == 0o644


def test_losing_the_race_at_the_link_is_exists(
    store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overtaken(descriptor: int, data: bytes, clock: Clock, *, fsync: bool) -> None:
        write_bytes(descriptor, data, clock, fsync=fsync)
        (tmp_path / "root/log/0").write_bytes(b"winner")

    monkeypatch.setattr("sparklog.store.file.write_bytes", overtaken)
    assert store.put_if_absent("log/0", b"loser") is PutOutcome.EXISTS
    assert store.get("log/0") == b"winner"
    assert files(tmp_path / "root") == ["log/0"]


def test_a_file_system_without_nameless_files_is_served_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def refuse(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", refuse)
    store = FileStore(tmp_path / "root")
    assert store.put_if_absent("log/0", b"x") is PutOutcome.CREATED
    assert store.put_if_absent("log/0", b"y") is PutOutcome.EXISTS
    assert store.get("log/0") == b"x"
    assert files(tmp_path / "root") == ["log/0"]


def test_a_leftover_of_a_killed_writer_is_not_listed(store: FileStore, tmp_path: Path) -> None:
    store.put_if_absent("log/0", b"x")
    (tmp_path / "root/log/.put-0123").write_bytes(b"half")
    assert [info.key for info in store.list("")] == ["log/0"]
    assert [info.key for info in store.list("log/")] == ["log/0"]


def test_a_disk_that_fails_after_the_link_leaves_the_outcome_unknown(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put_if_absent("log/0", b"")
    real = os.fsync

    def failing(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    assert store.put_if_absent("log/1", b"x") is PutOutcome.UNKNOWN
    assert store.get("log/1") == b"x"


def test_every_new_folder_is_forced_to_the_disk_in_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def watching(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", watching)
    FileStore(tmp_path / "a/b").put_if_absent("c/d/0", b"x")
    parents = [tmp_path / p for p in (".", "a", "a/b", "a/b/c", "a/b/c/d")]
    assert [Path(s) for s in synced if Path(s).is_dir()] == parents


def test_a_large_object_is_forced_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fdatasync
    sizes = []

    def watching(descriptor: int) -> None:
        sizes.append(os.fstat(descriptor).st_size)
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", watching)
    store = FileStore(tmp_path / "root")
    data = bytes(range(256)) * (5 * FORCED_AT_ONCE_BYTES // 512)
    assert store.put_if_absent("large", data) is PutOutcome.CREATED
    assert sizes == [FORCED_AT_ONCE_BYTES, 2 * FORCED_AT_ONCE_BYTES]
    assert store.get("large") == data
    store.put_if_absent("small", b"x")
    FileStore(tmp_path / "other", fsync=False).put_if_absent("large", data)
    assert len(sizes) == 2


def test_store_without_fsync_forces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(_: int) -> None:
        raise AssertionError("fsync was called")

    monkeypatch.setattr(os, "fsync", never)
    store = FileStore(tmp_path / "root", fsync=False)
    assert store.put_if_absent("log/0", b"x") is PutOutcome.CREATED


def test_a_key_cannot_be_the_folder_of_another_nor_lie_below_one(store: FileStore) -> None:
    store.put_if_absent("a/b", b"x")
    with pytest.raises(InvalidRequest, match="go on from this one"):
        store.put_if_absent("a", b"y")
    with pytest.raises(Unavailable, match="cannot write"):
        store.put_if_absent("a/b/c", b"y")
    assert [info.key for info in store.list("")] == ["a/b"]


def test_a_root_that_is_a_file_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "root").write_bytes(b"")
    with pytest.raises(Unavailable, match="cannot write"):
        FileStore(tmp_path / "root").put_if_absent("a", b"")


def test_a_root_with_awkward_characters_keeps_them(tmp_path: Path) -> None:
    store: ObjectStore = FileStore(tmp_path / "with space %20 ü")
    store.put_if_absent("a", b"x")
    assert files(tmp_path) == ["with space %20 ü/a"]


FILL = """
import resource, sys
from pathlib import Path
from sparklog.core.errors import Unavailable
from sparklog.store.base import PutOutcome
from sparklog.store.file import FileStore

folder, mode, nameless = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "nameless"
if mode == "limit":
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
store = FileStore(folder / "root")
store._nameless = nameless
assert store.put_if_absent("log/0", bytes(300_000)) is PutOutcome.CREATED
for put in (store.put_if_absent, store.put):
    try:
        put("log/1", bytes(2_000_000))
    except Unavailable as error:
        print(error)
    else:
        raise SystemExit("a full disk took the object")
    assert [i.key for i in store.list("")] == ["log/0"], "something is visible"
    found = [p.name for p in folder.rglob("*") if p.is_file()]
    assert found == ["0"], found
assert store.get("log/0") == bytes(300_000)
assert store.put_if_absent("log/1", bytes(300_000)) is PutOutcome.CREATED
"""
MOUNT = 'mount -t tmpfs -o size=1m tmpfs "$1" && exec "$2" -c "$3" "$1" disk "$4"'


def full_disk(folder: Path, nameless: str) -> subprocess.CompletedProcess[str]:
    """Run FILL on a real file system of 1 MiB, in a mount namespace of its own."""
    namespace = ["unshare", "--map-root-user", "--mount", "sh", "-c", MOUNT, "sh"]
    return subprocess.run(
        [*namespace, str(folder), sys.executable, FILL, nameless],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip


def file_size_limit(folder: Path, nameless: str) -> subprocess.CompletedProcess[str]:
    """Run FILL in a process that may not write files over 1 MB."""
    return subprocess.run(
        [sys.executable, "-c", FILL, str(folder), "limit", nameless],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip


def can_mount(folder: Path) -> bool:
    probe = ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "tmpfs", str(folder)]
    try:
        return subprocess.run(probe, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("nameless", ["nameless", "named"])
def test_full_disk_is_a_clear_error_and_leaves_nothing(tmp_path: Path, nameless: str) -> None:
    if can_mount(tmp_path):
        done, advice = full_disk(tmp_path, nameless), "the disk is full; free some space"
    else:  # containers may forbid it: then a limit on file sizes, which fails the same way
        done, advice = file_size_limit(tmp_path, nameless), "larger than this process may write"
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(advice) == 2, done.stdout


def test_file_size_limit_is_a_clear_error_and_leaves_nothing(tmp_path: Path) -> None:
    done = file_size_limit(tmp_path, "nameless")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("larger than this process may write; raise the limit") == 2


KILLED = """
import os, sys
from sparklog.store.file import FileStore
store = FileStore(sys.argv[1])
def killed(*_, **__):
    os.kill(os.getpid(), 9)
os.link = killed
store.put_if_absent("log/0", bytes(1_000_000))
"""


def test_a_writer_killed_before_the_link_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path)], cwd=ROOT, check=False
    )
    assert done.returncode == -9
    assert files(tmp_path) == []
