"""Files that have lost their names and wait to be written anew: the spares of a folder.

A broker's write-ahead log makes hundreds of small files a second and deletes as many. Both cost a
file system more than to rename a file and write it again: ext4 without a journal looks at each
inode that was deleted of late before it finds a free one. Sizes are bytes.
  P1  a spare is known to the memory of one process, and there to the stores that share it. Names
      found on the disk are never adopted: a killed process may leave one that is also the name of
      an object
  P2  a spare is written only once the loss of its old name is on the disk: after a power cut the
      old name is gone, or shows what it always did. Not if who retired it says that nobody will
      look at that name, whatever it shows
  P3  only a file without any other name is written: another one is an object's, or of somebody who
      keeps copies by links
  P4  it gets its new name by a link, as a new file does: exclusive, and whole
  P5  whoever opened it under its old name may still be reading: readers look afterwards whether
      what they read has kept its name (`FileStore.get`)
"""

from __future__ import annotations

import os
import stat as modes
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Final

from sparklog.core.entropy import Entropy, new_nonce

TEMPORARY_PREFIX: Final = ".put-"
"""Of names that are no keys: spares, and files on their way to a name. They are never listed."""
SPARE_BYTES_MAX: Final = 1 << 20
"""A larger file is deleted: what it costs to make one is little beside what is written."""
SPARES_MAX: Final = 1024
"""In one folder. A flush sets free what a busy broker has put for seconds, at several hundred a
second, and the next puts use it."""
FOLDER_BYTES_MAX: Final = 64 << 20
"""All spares of a folder: as much as a disk has less for others."""
LEFTOVER_MS: Final = 15 * 60 * 1000
"""A hidden file this old is of nobody who writes it: a put takes seconds. And were it a spare, its
process would only make a new file."""


@dataclass(frozen=True, slots=True)
class Spare:
    """A file under a hidden name."""

    path: str
    size_bytes: int


@dataclass(slots=True)
class _Folder:
    """What there is in one folder."""

    ready: list[Spare] = field(default_factory=list)
    unforced: deque[tuple[int, Spare]] = field(default_factory=deque)
    """With the number of each: the loss of its name may not be on the disk yet."""
    size_bytes: int = 0

    def has_room(self, size_bytes: int) -> bool:
        count = len(self.ready) + len(self.unforced)
        return count < SPARES_MAX and self.size_bytes + size_bytes <= FOLDER_BYTES_MAX

    def spares(self) -> list[Spare]:
        return [*self.ready, *(spare for _, spare in self.unforced)]


class Spares:
    """The spares of one process in one store. Thread-safe."""

    def __init__(self, entropy: Entropy) -> None:
        """Name them by `entropy`."""
        self._entropy = entropy
        self._lock = Lock()
        self._folders: dict[str, _Folder] = {}
        self._number = 0
        """Of the newest spare."""
        self._closed = False

    def keep(self, path: str, *, at_once: bool = False) -> bool:
        """Make a spare of a file, which loses its name; False if it is to be deleted instead.

        `at_once`: it may be written before the loss of its name is on the disk (P2).

        Raises:
            OSError: no such file, or the disk's.
        """
        found = os.lstat(path)
        folder = path.rpartition("/")[0]
        if not _may_be_written(found) or not self._has_room(folder, found.st_size):
            return False
        spare = Spare(f"{folder}/{TEMPORARY_PREFIX}{new_nonce(self._entropy)}", found.st_size)
        os.rename(path, spare.path)
        self._add(folder, spare, forced=at_once)
        return True

    def link(self, path: str, size_bytes: int, write: Callable[[int], None]) -> bool | None:
        """Write a spare and give it the name `path`; False if somebody has it, None if not done.

        Not done, as there is no spare or it failed: make a new file.

        Args:
            path: the new name, in the spare's folder.
            size_bytes: how much is written, which is also how long the file is then.
            write: writes all of it to a descriptor, and forces it to the disk.
        """
        folder = path.rpartition("/")[0]
        spare = self._take(folder) if 0 < size_bytes <= SPARE_BYTES_MAX else None
        if spare is None:
            return None
        try:
            if not _write_anew(spare, size_bytes, write):
                return None
            os.link(spare.path, path)
        except FileExistsError:
            given_back, spare = replace(spare, size_bytes=size_bytes), None
            self._add(folder, given_back, forced=True)
            return False
        except OSError:
            return None
        finally:
            if spare is not None:
                _unlink(spare)
        return True

    def mark(self) -> int:
        """Return what `forced` is to be told of a folder that is about to be forced to the disk."""
        with self._lock:
            return self._number

    def forced(self, folder: str, mark: int) -> None:
        """Take in that a folder, as it was at `mark` or later, is on the disk."""
        with self._lock:
            found = self._folders.get(folder)
            while found is not None and found.unforced and found.unforced[0][0] <= mark:
                found.ready.append(found.unforced.popleft()[1])

    def clear(self) -> None:
        """Delete all spares: somebody else needs the space, or the disk cannot be relied on."""
        with self._lock:
            folders, self._folders = self._folders, {}
        for folder in folders.values():
            for spare in folder.spares():
                _unlink(spare)

    def close(self) -> None:
        """Delete all spares, and keep none from now on."""
        with self._lock:
            self._closed = True
        self.clear()

    def _has_room(self, folder: str, size_bytes: int) -> bool:
        with self._lock:
            return not self._closed and self._folders.get(folder, _Folder()).has_room(size_bytes)

    def _add(self, folder: str, spare: Spare, *, forced: bool) -> None:
        """Take in a spare; without room for it any more it is deleted."""
        with self._lock:
            found = self._folders.setdefault(folder, _Folder())
            if not self._closed and found.has_room(spare.size_bytes):
                found.size_bytes += spare.size_bytes
                if forced:
                    found.ready.append(spare)
                else:
                    self._number += 1
                    found.unforced.append((self._number, spare))
                return
        _unlink(spare)

    def _take(self, folder: str) -> Spare | None:
        with self._lock:
            found = self._folders.get(folder)
            if found is None or not found.ready:
                return None
            spare = found.ready.pop()
            found.size_bytes -= spare.size_bytes
            if not found.ready and not found.unforced:
                del self._folders[folder]
            return spare


def remove_leftovers(folder: str, start: str, now_ms: int) -> None:
    """Delete the old hidden files in those folders in `folder` whose names begin with `start`.

    Raises:
        OSError: the disk's.
    """
    try:
        inside = [path for path in _listed(folder, start) if os.path.isdir(path)]
    except (FileNotFoundError, NotADirectoryError):
        return
    for path in (path for one in inside for path in _listed(one, TEMPORARY_PREFIX)):
        try:
            if os.lstat(path).st_mtime_ns // 1_000_000 < now_ms - LEFTOVER_MS:
                os.unlink(path)
        except FileNotFoundError:
            continue


def _listed(folder: str, start: str) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.path for entry in entries if entry.name.startswith(start)]


def _may_be_written(found: os.stat_result) -> bool:
    whole = modes.S_ISREG(found.st_mode) and found.st_nlink == 1
    return whole and 0 < found.st_size <= SPARE_BYTES_MAX


def _write_anew(spare: Spare, size_bytes: int, write: Callable[[int], None]) -> bool:
    """Write all there is to be in the file; False if it may not be written."""
    descriptor = os.open(spare.path, os.O_WRONLY | os.O_NOFOLLOW)
    try:
        found = os.fstat(descriptor)
        if not _may_be_written(found):
            return False
        if found.st_size > size_bytes:
            os.ftruncate(descriptor, size_bytes)  # before it is forced to the disk
        write(descriptor)
        return True
    finally:
        os.close(descriptor)


def _unlink(spare: Spare) -> None:
    try:
        os.unlink(spare.path)
    except OSError:
        pass  # a leftover: it is in nobody's memory any more, so nobody writes it
