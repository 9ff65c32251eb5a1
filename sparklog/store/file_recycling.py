"""Spares: files of deleted objects under hidden names, which later puts overwrite and rename.

A broker's write-ahead log creates and deletes hundreds of small files a second. Renaming and
rewriting a file costs less: ext4 without a journal checks each recently deleted inode before it
finds a free one. Sizes are bytes.
  FILE-RECYCLING-1: Only the memory of one process knows a spare; stores in that process may share
      it. Names found on the disk are never adopted: a killed process may leave one that an object
      links, too.
  FILE-RECYCLING-2: A spare is overwritten only once the loss of its old name is on the disk. So
      after a power cut the old name is gone, or has its old content. The caller may waive this
      (`at_once`).
  FILE-RECYCLING-3: Only a file with a single link is overwritten. A second link may be an object,
      or a user's copy by hard links.
  FILE-RECYCLING-4: A spare gets its new name by a link, as a new file does: exclusive and atomic.
  FILE-RECYCLING-5: A reader may still have the file open under its old name. So readers check
      after the read that the file has kept its name (`FileStore.get`).
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
"""Prefix of names that are no keys: spares and unfinished puts. Listings leave them out."""
SPARE_BYTES_MAX: Final = 1 << 20
"""A larger file is deleted: creating one costs little compared with writing it."""
RECYCLED_FILES_MAX: Final = 1024
"""Spares in one folder. A flush releases the WAL objects of some seconds, several hundred per
second on a busy broker, and the next puts reuse their files."""
FOLDER_BYTES_MAX: Final = 64 << 20
"""Disk space that all spares of a folder may hold."""
LEFTOVER_MS: Final = 15 * 60 * 1000
"""Age from which a hidden file counts as abandoned: a put takes seconds. If it is a spare after
all, its process creates a new file instead."""


@dataclass(frozen=True, slots=True)
class RecycledFile:
    """A file under a hidden name."""

    path: str
    size_bytes: int


@dataclass(slots=True)
class _Folder:
    """The spares of one folder."""

    ready: list[RecycledFile] = field(default_factory=list)
    unforced: deque[tuple[int, RecycledFile]] = field(default_factory=deque)
    """With the number of each: the loss of its name may not be on the disk yet."""
    size_bytes: int = 0

    def has_capacity(self, size_bytes: int) -> bool:
        count = len(self.ready) + len(self.unforced)
        return count < RECYCLED_FILES_MAX and self.size_bytes + size_bytes <= FOLDER_BYTES_MAX

    def files(self) -> list[RecycledFile]:
        return [*self.ready, *(spare for _, spare in self.unforced)]


class RecycledFiles:
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
        """Rename a file to a spare; False if the caller is to delete it instead.

        `at_once`: a put may overwrite it before the loss of its name is on the disk
        (FILE-RECYCLING-2).

        Raises:
            OSError: no such file, or the disk's.
        """
        found = os.lstat(path)
        folder = path.rpartition("/")[0]
        if not _may_be_written(found) or not self._has_capacity(folder, found.st_size):
            return False
        spare = RecycledFile(
            f"{folder}/{TEMPORARY_PREFIX}{new_nonce(self._entropy)}", found.st_size
        )
        os.rename(path, spare.path)
        self._add(folder, spare, forced=at_once)
        return True

    def link(self, path: str, size_bytes: int, write: Callable[[int], None]) -> bool | None:
        """Write a spare and link it as `path`; False if the name exists, None if not done.

        After None, because there is no spare or the write failed, the caller creates a new file.

        Args:
            path: the new name, in the spare's folder.
            size_bytes: length of the new file.
            write: writes and fsyncs the content to a descriptor.
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
        """Return the mark to pass to `forced` after the fsync of a folder that starts now."""
        with self._lock:
            return self._number

    def forced(self, folder: str, mark: int) -> None:
        """Release the spares up to `mark` for use: an fsync of their folder has completed."""
        with self._lock:
            found = self._folders.get(folder)
            while found is not None and found.unforced and found.unforced[0][0] <= mark:
                found.ready.append(found.unforced.popleft()[1])

    def clear(self) -> None:
        """Delete all spares: the disk is full, or an fsync failed."""
        with self._lock:
            folders, self._folders = self._folders, {}
        for folder in folders.values():
            for spare in folder.files():
                _unlink(spare)

    def close(self) -> None:
        """Delete all spares, and keep none from now on."""
        with self._lock:
            self._closed = True
        self.clear()

    def _has_capacity(self, folder: str, size_bytes: int) -> bool:
        with self._lock:
            return not self._closed and self._folders.get(folder, _Folder()).has_capacity(
                size_bytes
            )

    def _add(self, folder: str, spare: RecycledFile, *, forced: bool) -> None:
        """Add a spare; delete it if the folder's limits are reached."""
        with self._lock:
            found = self._folders.setdefault(folder, _Folder())
            if not self._closed and found.has_capacity(spare.size_bytes):
                found.size_bytes += spare.size_bytes
                if forced:
                    found.ready.append(spare)
                else:
                    self._number += 1
                    found.unforced.append((self._number, spare))
                return
        _unlink(spare)

    def _take(self, folder: str) -> RecycledFile | None:
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


def _write_anew(spare: RecycledFile, size_bytes: int, write: Callable[[int], None]) -> bool:
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


def _unlink(spare: RecycledFile) -> None:
    try:
        os.unlink(spare.path)
    except OSError:
        pass  # abandoned: no process knows it, so none writes it; `remove_leftovers` deletes it
