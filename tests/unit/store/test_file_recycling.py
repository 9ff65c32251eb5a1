"""Recycled files: no reader ever sees one under two names, or half of it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sparklog.core.clock import Clock
from sparklog.core.errors import Unavailable
from sparklog.store import file_recycling
from sparklog.store.base import ObjectNotFound, PutOutcome
from sparklog.store.file import READS_MAX, FileStore, read_bytes, write_bytes

ROOT = Path(__file__).parents[3]
CREATED, EXISTS = PutOutcome.CREATED, PutOutcome.EXISTS
DATA = bytes(range(250)) * 40
OTHER = bytes(reversed(DATA))


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    """A store where files may be written anew."""
    store = FileStore(tmp_path / "root")
    store.put_if_absent("first/0", DATA)
    assert store._nameless, "no nameless files in TMPDIR: nothing is ever written anew there"
    store.delete("first/0")
    return store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "root" / "log"


@pytest.fixture(autouse=True)
def held() -> Iterator[None]:
    """Close what `inode` opened."""
    yield
    while _HELD:
        os.close(_HELD.pop())


_HELD: list[int] = []


def inode(folder: Path, name: str) -> int:
    """Return a file's number, which no other file gets during the test, as it stays open."""
    _HELD.append(os.open(folder / name, os.O_RDONLY))
    return os.fstat(_HELD[-1]).st_ino


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def hidden(folder: Path) -> list[Path]:
    return sorted(folder.glob(".put-*"))


def have_spare(store: FileStore, folder: Path, data: bytes = DATA) -> int:
    """Leave one spare that may be written, and an object; return the inode of the spare."""
    assert store.put_if_absent("log/retired", data) is CREATED
    found = inode(folder, "retired")
    store.retire("log/retired")
    assert store.put_if_absent("log/forced", b"") is CREATED
    store.delete("log/forced")
    return found


# Written anew


@pytest.mark.parametrize(
    "data",
    [OTHER, OTHER[:100], OTHER * 3, memoryview(OTHER)[:-1]],
    ids=["as long", "shorter", "longer", "a view"],
)
def test_a_retired_file_is_written_anew(
    store: FileStore, folder: Path, data: bytes | memoryview
) -> None:
    spare = have_spare(store, folder)
    assert store.put_if_absent("log/0", data) is CREATED
    assert inode(folder, "0") == spare
    assert store.get("log/0") == bytes(data)
    assert store.head("log/0").size_bytes == len(data)
    assert names(folder) == ["0"], "the hidden name is gone"
    assert store.put_if_absent("log/1", data) is CREATED
    assert inode(folder, "1") != spare


def test_a_retired_object_is_gone(store: FileStore, folder: Path) -> None:
    have_spare(store, folder)
    assert len(hidden(folder)) == 1
    assert list(store.list("")) == []
    for look in (store.get, store.head):
        with pytest.raises(ObjectNotFound):
            look("log/retired")
    for absent in ("log/retired", "log/never", "no/folder/0"):
        store.retire(absent)
    assert len(hidden(folder)) == 1


def test_a_folder_cannot_be_retired(store: FileStore, folder: Path) -> None:
    store.put_if_absent("log/0", DATA)
    with pytest.raises(Unavailable, match="cannot delete"):
        store.retire("log")
    assert store.get("log/0") == DATA


def test_spares_stay_in_their_folder(store: FileStore, folder: Path) -> None:
    spare = have_spare(store, folder)
    store.put_if_absent("other/0", OTHER)
    assert inode(folder.parent / "other", "0") != spare
    store.put_if_absent("log/0", OTHER)
    assert inode(folder, "0") == spare


def test_retired_file_is_deleted_without_nameless_files(store: FileStore, folder: Path) -> None:
    store._nameless = False
    store.put_if_absent("log/0", DATA)
    store.retire("log/0")
    assert names(folder) == []


def test_threads_never_share_a_spare_file(tmp_path: Path) -> None:
    store = FileStore(tmp_path, fsync=False)

    def lane(me: int) -> None:
        for n in range(200):
            key, data = f"log/{me}-{n}", f"{me}-{n}".encode() * (1 + n % 7)
            assert store.put_if_absent(key, data) is CREATED
            if n >= 3:
                old = f"{me}-{n - 3}"
                assert store.get(f"log/{old}") == old.encode() * (1 + (n - 3) % 7)
                store.retire(f"log/{old}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lane, range(4)))
    assert len(list(store.list("log/"))) == 4 * 3


# Exclusive


def test_a_name_that_is_taken_costs_no_spare(store: FileStore, folder: Path) -> None:
    store.put_if_absent("log/0", b"winner")
    spare = have_spare(store, folder)
    assert store.put_if_absent("log/0", OTHER) is EXISTS
    assert store.get("log/0") == b"winner"
    store.put_if_absent("log/1", OTHER)
    assert inode(folder, "1") == spare


def test_loser_of_the_link_race_returns_the_spare_file(
    store: FileStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spare = have_spare(store, folder)

    def overtaken(descriptor: int, data: bytes, clock: Clock, *, fsync: bool) -> None:
        write_bytes(descriptor, data, clock, fsync=fsync)
        (folder / "0").write_bytes(b"winner")

    with monkeypatch.context() as patch:
        patch.setattr("sparklog.store.file.write_bytes", overtaken)
        assert store.put_if_absent("log/0", DATA * 2) is EXISTS
    assert store.get("log/0") == b"winner"
    assert store.put_if_absent("log/1", OTHER) is CREATED
    assert inode(folder, "1") == spare
    assert (store.get("log/0"), store.get("log/1")) == (b"winner", OTHER)


# After a power cut


def test_file_is_reused_only_once_its_removal_is_on_the_disk(
    store: FileStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put_if_absent("log/retired", DATA)
    spare = inode(folder, "retired")
    real, began = os.fsync, False

    def retiring(descriptor: int) -> None:
        nonlocal began
        if not began and os.path.isdir(f"/proc/self/fd/{descriptor}"):
            began = True
            store.retire("log/retired")  # too late: what is forced now may lack it
        real(descriptor)

    monkeypatch.setattr(os, "fsync", retiring)
    for n in range(3):
        assert store.put_if_absent(f"log/{n}", OTHER) is CREATED
    assert began
    inodes = [inode(folder, str(n)) for n in range(3)]
    assert inodes.index(spare) == 2, "after the first folder that was forced from the start"


def test_fsync_of_a_folder_frees_only_files_retired_before_it(
    store: FileStore, folder: Path
) -> None:
    have_spare(store, folder)
    store.put_if_absent("log/0", DATA)
    store.put_if_absent("log/1", DATA)
    early, late = inode(folder, "0"), inode(folder, "1")
    store.retire("log/0")
    store.put_if_absent("other/0", DATA)  # forces another folder
    store.put_if_absent("log/2", DATA)
    store.retire("log/1")
    store.put_if_absent("log/3", DATA)
    assert inode(folder, "2") not in (early, late)
    assert inode(folder, "3") == early
    store.put_if_absent("log/4", DATA)
    assert inode(folder, "4") == late


def test_failed_fsync_of_a_folder_ends_recycling_of_its_files(
    store: FileStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put_if_absent("log/retired", DATA)
    store.retire("log/retired")
    real = os.fsync

    def failing(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        assert store.put_if_absent("log/0", OTHER) is PutOutcome.UNKNOWN
    assert names(folder) == ["0"]


def test_retired_file_is_reused_at_once_without_fsync(store: FileStore, folder: Path) -> None:
    careless = FileStore(folder.parent, fsync=False)
    careless.put_if_absent("log/0", DATA)
    spare = inode(folder, "0")
    careless.retire("log/0")
    careless.put_if_absent("log/1", OTHER)
    assert inode(folder, "1") == spare


# Readers


def during_a_read(monkeypatch: pytest.MonkeyPatch, *then: Callable[[], object]) -> None:
    """Have each read do one of these, in turn, when its file is open."""
    left = list(then)

    def reading(descriptor: int, size_bytes: int, clock: Clock) -> bytes:
        if left:
            left.pop(0)()
        return read_bytes(descriptor, size_bytes, clock)

    monkeypatch.setattr("sparklog.store.file.read_bytes", reading)


def test_a_reader_of_a_file_that_is_written_anew_finds_no_object(
    store: FileStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put_if_absent("log/0", DATA)
    was = inode(folder, "0")

    def rewritten() -> None:
        store.retire("log/0")
        store.put_if_absent("log/1", b"")
        store.put_if_absent("log/2", OTHER)

    during_a_read(monkeypatch, rewritten)
    with pytest.raises(ObjectNotFound):
        store.get("log/0")
    assert inode(folder, "2") == was
    assert store.get("log/2") == OTHER


def test_reader_retries_if_its_name_returns_on_the_same_file(
    store: FileStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put_if_absent("log/0", DATA)
    was = inode(folder, "0")

    def rewritten() -> None:
        store.retire("log/0")
        store.put_if_absent("log/1", b"")
        store.put_if_absent("log/0", OTHER[:-1])

    reads: list[int] = []
    during_a_read(monkeypatch, rewritten, lambda: reads.append(2))
    assert store.get("log/0") == OTHER[:-1]
    assert inode(folder, "0") == was
    assert reads == [2]


def test_a_hint_that_is_replaced_while_it_is_read_is_read_again(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("hint", b"old")
    replace = [lambda n=n: store.put("hint", b"new %d" % n) for n in range(3)]
    during_a_read(monkeypatch, *replace)
    assert store.get("hint") == b"new 2"


def test_a_reader_gives_up_on_a_hint_that_is_always_replaced(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("hint", b"old")
    during_a_read(monkeypatch, *[lambda: store.put("hint", b"new")] * READS_MAX)
    with pytest.raises(Unavailable, match="replaced as often as it is read"):
        store.get("hint")


# Spare files that are kept


def test_a_folder_keeps_so_many(
    store: FileStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_recycling, "RECYCLED_FILES_MAX", 2)
    for n in range(3):
        store.put_if_absent(f"log/{n}", DATA)
    for n in range(3):
        store.retire(f"log/{n}")
    assert len(hidden(folder)) == len(names(folder)) == 2


def test_a_folder_keeps_so_many_bytes(
    store: FileStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_recycling, "FOLDER_BYTES_MAX", 2 * len(DATA) + 1)
    for n in range(3):
        store.put_if_absent(f"log/{n}", DATA)
    for n in range(3):
        store.retire(f"log/{n}")
    assert len(hidden(folder)) == len(names(folder)) == 2
    store.put_if_absent("log/3", b"")
    store.put_if_absent("log/4", DATA)
    assert len(hidden(folder)) == 1
    store.retire("log/4")
    assert len(hidden(folder)) == 2, "there is room again for what was written anew"


def test_large_files_are_not_recycled(
    store: FileStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_recycling, "SPARE_BYTES_MAX", len(DATA))
    store.put_if_absent("log/large", DATA + b"x")
    store.put_if_absent("log/empty", b"")
    store.retire("log/large")
    store.retire("log/empty")
    assert names(folder) == []
    spare = have_spare(store, folder)
    for name, data in (("large", DATA + b"x"), ("empty", b"")):
        store.put_if_absent(f"log/{name}", data)
        assert inode(folder, name) != spare
    assert len(hidden(folder)) == 1


def test_a_file_with_another_name_is_never_written(store: FileStore, folder: Path) -> None:
    copies = folder.parent / "copies"
    copies.mkdir()
    store.put_if_absent("log/0", DATA)
    os.link(folder / "0", copies / "0")
    store.retire("log/0")
    assert names(folder) == [], "deleted, as it could not be written"
    have_spare(store, folder)
    (spare,) = hidden(folder)
    os.link(spare, copies / "1")
    store.put_if_absent("log/1", OTHER)
    assert (store.get("copies/0"), store.get("copies/1")) == (DATA, DATA)
    assert names(folder) == ["1"]


def test_a_spare_that_has_vanished_is_replaced_by_a_new_file(
    store: FileStore, folder: Path
) -> None:
    have_spare(store, folder)
    hidden(folder)[0].unlink()
    assert store.put_if_absent("log/0", OTHER) is CREATED
    assert store.get("log/0") == OTHER
    assert names(folder) == ["0"]


@pytest.mark.parametrize("error", [OSError(errno.EIO, "bad block"), KeyboardInterrupt()])
def test_a_spare_that_cannot_be_written_is_deleted(
    store: FileStore, folder: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    spare = have_spare(store, folder)

    def failing(descriptor: int, data: bytes, clock: Clock, *, fsync: bool) -> None:
        if os.fstat(descriptor).st_ino == spare:
            os.write(descriptor, data[:10])
            raise error
        write_bytes(descriptor, data, clock, fsync=fsync)

    monkeypatch.setattr("sparklog.store.file.write_bytes", failing)
    if isinstance(error, OSError):
        assert store.put_if_absent("log/0", OTHER) is CREATED
        assert store.get("log/0") == OTHER
        assert names(folder) == ["0"]
    else:
        with pytest.raises(KeyboardInterrupt):
            store.put_if_absent("log/0", OTHER)
        assert names(folder) == []


def test_a_file_that_cannot_be_renamed_is_deleted(
    store: FileStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(old: str, new: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    store.put_if_absent("log/0", DATA)
    monkeypatch.setattr(os, "rename", full)
    store.retire("log/0")
    assert names(folder) == []


@pytest.mark.parametrize("put", [FileStore.put_if_absent, FileStore.put])
def test_a_full_disk_gets_the_spares_back(
    store: FileStore,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    put: Callable[[FileStore, str, bytes], object],
) -> None:
    have_spare(store, folder)

    def full(descriptor: int, data: bytes, clock: Clock, *, fsync: bool) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("sparklog.store.file.write_bytes", full)
        with pytest.raises(Unavailable, match="the disk is full"):
            put(store, "other/0", OTHER)
    assert names(folder) == []
    put(store, "other/0", OTHER)


FORKED = """
import os, sys
from sparklog.store import file

store = file.FileStore(sys.argv[1], fsync=False)
store.put_if_absent("log/0", b"before")
store.retire("log/0")
to_parent, to_child, write_bytes = os.pipe(), os.pipe(), file.write_bytes

def while_the_parent_puts(*arguments, **named):
    os.write(to_parent[1], b"opened")
    os.read(to_child[0], 100)
    write_bytes(*arguments, **named)

if not os.fork():
    file.write_bytes = while_the_parent_puts
    store.put_if_absent("log/child", b"child")
    store.close()
    os._exit(0)
os.read(to_parent[0], 100)
store.put_if_absent("log/parent", b"parent")
os.write(to_child[1], b"go on")
assert os.wait()[1] == 0
print(store.get("log/child"), store.get("log/parent"))
"""


def test_a_forked_process_has_no_spares_of_its_parent(store: FileStore, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED, str(tmp_path / "forked")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "b'child' b'parent'\n", done.stderr


def test_closing_deletes_the_spares_and_keeps_no_more(store: FileStore, folder: Path) -> None:
    have_spare(store, folder)
    store.put_if_absent("log/0", b"")  # no spare is taken for nothing
    store.put_if_absent("log/1", DATA * 2)
    store.put_if_absent("log/2", DATA)
    store.retire("log/1")
    assert len(hidden(folder)) == 1
    store.close()
    assert names(folder) == ["0", "2"]
    store.retire("log/2")
    assert names(folder) == ["0"], "who is slow leaves nothing"
    assert store.put_if_absent("log/2", DATA) is CREATED
