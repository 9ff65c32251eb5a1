"""A folder as an object store: whole files that appear at once.

An object is written into a file without a name, forced to the disk, and linked to its final name.
The link makes the create exclusive and atomic: with O_EXCL alone, readers could see a half-written
object. A killed writer leaves nothing behind. A file system without O_TMPFILE (NFS) gets a file
`.put-…` first, which is no key and is never listed. A later put may reuse the file of a retired
object (`spares`). Sizes are bytes.

The store reads and writes the bytes of a file in parts, so that others get at the disk in between.

A broker forces a small object to the disk before it acknowledges records, and waits for all that is
on its way there already. Sizes are bytes.
"""

from __future__ import annotations

import errno
import os
import stat as modes
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.entropy import SYSTEM_ENTROPY, Entropy, new_nonce
from sparklog.core.errors import InvalidRequest, Unavailable
from sparklog.core.per_process import PerProcess
from sparklog.store.background_io import IoTurns, is_paced, part_written
from sparklog.store.base import (
    Data,
    ObjectInfo,
    ObjectNotFound,
    ObjectStore,
    PutOutcome,
    check_key,
    check_prefix,
    check_range,
)
from sparklog.store.file_recycling import TEMPORARY_PREFIX, RecycledFiles, remove_leftovers

FORCED_AT_ONCE_BYTES = 2 << 20
"""Bytes of a large object, such as a flushed segment, between two fsyncs. On a journalling file
system the fsync of a small object waits for the unwritten bytes of large ones, too."""
GENTLE_WRITE_BYTES = 256 * 1024
"""The same for low-priority or paced threads: a write behind such a part waits less."""
GENTLE_READ_BYTES = 128 * 1024
"""Linux's default read-ahead. A read-ahead of megabytes would be one large request, and a write
would wait behind it."""


def read_bytes(descriptor: int, size_bytes: int, clock: Clock) -> bytes:
    """Return the next bytes of a file, at most `size_bytes`; one read gives up to 2 GiB."""
    turns = IoTurns(clock)
    part_bytes = size_bytes
    if turns.gentle and size_bytes > GENTLE_READ_BYTES:
        part_bytes = GENTLE_READ_BYTES
        _read_nothing_ahead(descriptor)
    parts = []
    while size_bytes > 0:
        part = turns.take(partial(os.read, descriptor, min(part_bytes, size_bytes)))
        if not part:
            break
        parts.append(part)
        size_bytes -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def write_bytes(descriptor: int, data: Data, clock: Clock, *, fsync: bool) -> None:
    """Write all of `data` to a new file; with `fsync`, force it to the disk."""
    turns = IoTurns(clock)
    part_bytes = GENTLE_WRITE_BYTES if turns.gentle or is_paced() else FORCED_AT_ONCE_BYTES
    view = memoryview(data)
    while view:
        part, view = view[:part_bytes], view[part_bytes:]
        turns.take(partial(_write_part, descriptor, part, force=fsync and bool(view)))
        part_written(len(part))
    if fsync:
        os.fsync(descriptor)


def _write_part(descriptor: int, part: memoryview, *, force: bool) -> None:
    while part:
        part = part[os.write(descriptor, part) :]
    if force:
        # The file's metadata is not needed yet. macOS has only fsync.
        getattr(os, "fdatasync", os.fsync)(descriptor)


def _read_nothing_ahead(descriptor: int) -> None:
    if hasattr(os, "posix_fadvise"):  # macOS has none
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)


_NO_NAMELESS_FILES = frozenset(
    {errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL, errno.EPERM, errno.EXDEV}
)
"""Errors of open with O_TMPFILE where it is not supported, and of the link without /proc."""
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
READS_MAX = 100
"""Reads of an object that is replaced during each read; only hints are replaced."""
_ADVICE = {
    errno.ENOSPC: "the disk is full; free some space and try again",
    errno.EDQUOT: "the disk quota is used up; free some space and try again",
    errno.EFBIG: "the file is larger than this process may write; raise the limit",
    errno.EACCES: "no permission; check the folder's owner and mode",
    errno.EPERM: "not permitted; the file system must know hard links",
    errno.EROFS: "the file system is read-only; remount it or use another root",
    errno.EMFILE: "too many open files; raise the limit (ulimit -n)",
}


class FileStore(ObjectStore):
    """Objects as files below one folder, which need not exist yet."""

    def __init__(
        self,
        folder: str | Path,
        *,
        fsync: bool = True,
        entropy: Entropy = SYSTEM_ENTROPY,
        clock: Clock = SYSTEM_CLOCK,
        recycled: PerProcess[RecycledFiles] | None = None,
    ) -> None:
        """Use `folder`. Without `fsync` a power cut may lose what was reported as created.

        `spares` are those of another store of this folder in this process, to share them.
        """
        self._folder = Path(folder).absolute()
        self._root = str(self._folder)
        self.url = self._folder.as_uri()
        self._fsync = fsync
        self._entropy = entropy
        self._clock = clock
        self._nameless = hasattr(os, "O_TMPFILE")
        # A child that has the spares of its parent would write what the parent writes.
        self._recycled = recycled or PerProcess(lambda: RecycledFiles(entropy))

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """See `ObjectStore.get`. An object that is gone when all is read counts as not found."""
        check_range(start, end)
        path = self._path(key)
        try:
            for _ in range(READS_MAX):
                with path.open("rb", buffering=0) as file:
                    opened = os.fstat(file.fileno())
                    low, high, _ = slice(start, end).indices(opened.st_size)
                    file.seek(low)
                    data = read_bytes(file.fileno(), high - low, self._clock)
                    # While the file is open: nothing else can have its number.
                    if _is_unchanged(opened, path.stat()):
                        return data
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise ObjectNotFound(key) from error
        except OSError as error:
            raise self._unavailable("read", key, error) from error
        raise Unavailable(
            f"it is replaced as often as it is read; try again. root={self.url} key={key}"
        )

    def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        """See `ObjectStore.put_if_absent`. UNKNOWN only if the disk fails after the link."""
        check_key(key)
        path = f"{self._root}/{key}"  # a `Path` costs as much as all that is done with it here
        folder = path.rpartition("/")[0]
        try:
            if os.path.lexists(path) or not self._link_new(folder, path, data):
                return self._exists(key, Path(path))
        except OSError as error:
            self._make_space(error)
            raise self._unavailable("write", key, error) from error
        try:
            self._sync_folder(folder)
        except OSError:
            return PutOutcome.UNKNOWN
        return PutOutcome.CREATED

    def put(self, key: str, data: bytes) -> None:
        """See `ObjectStore.put`."""
        path = self._path(key)
        try:
            temporary = self._write_temporary(path, data)
            try:
                os.replace(temporary, path)
            except OSError:
                os.unlink(temporary)
                raise
        except OSError as error:
            self._make_space(error)
            raise self._unavailable("write", key, error) from error

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """See `ObjectStore.list`. Cost: one look into each folder that can hold such keys."""
        check_prefix(prefix)
        folder, _, _ = prefix.rpartition("/")
        yield from self._walk(f"{folder}/" if folder else "", prefix, start_after)

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`. Folders stay: another writer may be about to use them."""
        try:
            self._path(key).unlink(missing_ok=True)
        except NotADirectoryError:
            return
        except OSError as error:
            raise self._unavailable("delete", key, error) from error

    def retire(self, key: str) -> None:
        """See `ObjectStore.retire`: a later put reuses the file, unless it is too large.

        Only on file systems with O_TMPFILE. Those without are mostly network file systems, where
        cached metadata could hide from a reader that its file was rewritten.
        """
        check_key(key)
        try:
            recycled, path = self._recycled.get(), f"{self._root}/{key}"
            if self._nameless and recycled.keep(path, at_once=not self._fsync):
                return
        except OSError:
            pass  # none such; or a full disk has no place for another name, and deleting makes some
        self.delete(key)

    def tidy(self, prefix: str) -> None:
        """See `ObjectStore.tidy`: hidden files that are older than a quarter of an hour."""
        check_prefix(prefix)
        folder, _, start = prefix.rpartition("/")
        try:
            remove_leftovers(f"{self._root}/{folder}", start, self._clock.now_ms())
        except OSError as error:
            raise self._unavailable("tidy", prefix, error) from error

    def unforced(self) -> FileStore | None:
        """See `ObjectStore.unforced`. Both know what is spare: a full disk has it back."""
        if not self._fsync:
            return None
        return FileStore(
            self._folder,
            fsync=False,
            entropy=self._entropy,
            clock=self._clock,
            recycled=self._recycled,
        )

    def close(self) -> None:
        """Delete the spare files; what is retired later is deleted, too."""
        self._recycled.get().close()

    def head(self, key: str) -> ObjectInfo:
        """See `ObjectStore.head`."""
        try:
            found = self._path(key).stat()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ObjectNotFound(key) from error
        except OSError as error:
            raise self._unavailable("look at", key, error) from error
        if not modes.S_ISREG(found.st_mode):
            raise ObjectNotFound(key)
        return ObjectInfo(key, found.st_size, found.st_mtime_ns // 1_000_000)

    def _path(self, key: str) -> Path:
        check_key(key)
        return self._folder / key

    def _exists(self, key: str, path: Path) -> PutOutcome:
        if path.is_dir():
            raise InvalidRequest(f"other keys go on from this one with a slash. key={key}")
        return PutOutcome.EXISTS

    def _link_new(self, folder: str, path: str, data: Data) -> bool:
        """Write `data` and link it to its name; False if the name exists."""
        if self._nameless:
            linked = self._link_spare(path, data)
            if linked is not None:
                return linked
            try:
                return self._link_nameless(folder, path, data)
            except OSError as error:
                if error.errno not in _NO_NAMELESS_FILES:
                    raise
                self._nameless = False
        temporary = self._write_temporary(Path(path), data)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            os.unlink(temporary)
        return True

    def _link_spare(self, path: str, data: Data) -> bool | None:
        def write(descriptor: int) -> None:
            write_bytes(descriptor, data, self._clock, fsync=self._fsync)

        return self._recycled.get().link(path, len(data), write)

    def _link_nameless(self, folder: str, path: str, data: Data) -> bool:
        try:
            descriptor = os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o644)
        except FileNotFoundError:
            self._make_folder(Path(folder))
            descriptor = os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o644)
        try:
            write_bytes(descriptor, data, self._clock, fsync=self._fsync)
            # A source folder makes Python call linkat, which follows the link in /proc to the file.
            source = f"/proc/self/fd/{descriptor}"
            os.link(source, path, src_dir_fd=descriptor, follow_symlinks=True)
        except FileExistsError:
            return False
        finally:
            os.close(descriptor)
        return True

    def _write_temporary(self, path: Path, data: Data) -> Path:
        self._make_folder(path.parent)
        name = path.parent / f"{TEMPORARY_PREFIX}{new_nonce(self._entropy)}"
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            write_bytes(descriptor, data, self._clock, fsync=self._fsync)
        except BaseException:
            os.unlink(name)
            raise
        finally:
            os.close(descriptor)
        return name

    def _make_folder(self, folder: Path) -> None:
        """Make `folder` and those above it; each new name is forced to the disk in its parent."""
        if folder.is_dir():
            return
        self._make_folder(folder.parent)
        try:
            folder.mkdir()
        except FileExistsError:
            if not folder.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
        self._sync_folder(folder.parent)

    def _sync_folder(self, folder: str | Path) -> None:
        if not self._fsync:
            return
        recycled = self._recycled.get()
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            mark = recycled.mark()
            os.fsync(descriptor)
        except OSError:
            # The next one may succeed although this one's names never came to the disk.
            recycled.clear()
            raise
        finally:
            os.close(descriptor)
        recycled.forced(str(folder), mark)

    def _walk(self, folder: str, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        """Yield the keys below `folder` (with its slash) in byte order of the whole key."""
        try:
            with os.scandir(self._folder / folder) as found:
                # A folder's keys sort as its name with the slash does, so sort it that way.
                entries = sorted(
                    (
                        (f"{folder}{e.name}{'/' if e.is_dir() else ''}", e)
                        for e in found
                        if not e.name.startswith(TEMPORARY_PREFIX)
                    ),
                    key=lambda pair: os.fsencode(pair[0]),
                )
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise self._unavailable("list", folder, error) from error
        for key, entry in entries:
            if key.endswith("/"):
                related = key.startswith(prefix) or prefix.startswith(key)
                if related and (start_after.startswith(key) or key > start_after):
                    yield from self._walk(key, prefix, start_after)
            elif key.startswith(prefix) and key > start_after:
                try:
                    stat = entry.stat()
                except FileNotFoundError:
                    continue
                yield ObjectInfo(key, stat.st_size, stat.st_mtime_ns // 1_000_000)

    def _make_space(self, error: OSError) -> None:
        """Delete the spares if the disk is full, so that a retry has their space."""
        if error.errno in _NO_SPACE:
            self._recycled.get().clear()

    def _unavailable(self, verb: str, key: str, error: OSError) -> Unavailable:
        advice = _ADVICE.get(error.errno or 0, "check the disk")
        return Unavailable(
            f"cannot {verb}: {advice}. root={self.url} key={key} error={error.strerror}"
        )


def _is_unchanged(opened: os.stat_result, found: os.stat_result) -> bool:
    """Return whether the name still refers to the opened file, and the file is unmodified."""
    return os.path.samestat(opened, found) and opened.st_mtime_ns == found.st_mtime_ns
