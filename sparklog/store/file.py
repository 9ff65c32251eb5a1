"""A folder as an object store: temporary file, fsync, hard link.

Creating the final name by a link is what makes it exclusive and whole at once: opening it with O_EXCL
would be exclusive, but readers could see it half written. Temporary names start with `.put-` and are
no keys. Sizes are bytes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from sparklog.core.entropy import SYSTEM_ENTROPY, Entropy, new_nonce
from sparklog.core.errors import InvalidRequest, Unavailable
from sparklog.store.base import ObjectInfo, ObjectNotFound, ObjectStore, PutOutcome

TEMPORARY_PREFIX = ".put-"


class FileStore(ObjectStore):
    """Objects as files below one folder, which need not exist yet."""

    def __init__(
        self, folder: str | Path, *, fsync: bool = True, entropy: Entropy = SYSTEM_ENTROPY
    ) -> None:
        """Use `folder`. Without `fsync` a power cut may lose what was reported as created."""
        self._folder = Path(folder).absolute()
        self.url = self._folder.as_uri()
        self._fsync = fsync
        self._entropy = entropy

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """See `ObjectStore.get`."""
        try:
            with self._path(key).open("rb", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                low, high, _ = slice(start, end).indices(size)
                return os.pread(file.fileno(), max(0, high - low), low)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise ObjectNotFound(key) from error
        except OSError as error:
            raise self._unavailable("read", key, error) from error

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        """See `ObjectStore.put_if_absent`; never UNKNOWN."""
        path = self._path(key)
        try:
            temporary = self._write_temporary(path, data)
            try:
                os.link(temporary, path)
            except FileExistsError:
                return PutOutcome.EXISTS
            finally:
                os.unlink(temporary)
            self._sync_folder(path.parent)
        except OSError as error:
            raise self._unavailable("write", key, error) from error
        return PutOutcome.CREATED

    def put(self, key: str, data: bytes) -> None:
        """See `ObjectStore.put`."""
        path = self._path(key)
        try:
            os.replace(self._write_temporary(path, data), path)
        except OSError as error:
            raise self._unavailable("write", key, error) from error

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """See `ObjectStore.list`."""
        folder, _, _ = prefix.rpartition("/")
        yield from self._walk(f"{folder}/" if folder else "", prefix, start_after)

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`. Folders stay: another writer may be about to use them."""
        try:
            self._path(key).unlink(missing_ok=True)
        except OSError as error:
            raise self._unavailable("delete", key, error) from error

    def head(self, key: str) -> ObjectInfo:
        """See `ObjectStore.head`."""
        try:
            stat = self._path(key).stat()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ObjectNotFound(key) from error
        return ObjectInfo(key, stat.st_size, stat.st_mtime_ns // 1_000_000)

    def _path(self, key: str) -> Path:
        parts = key.split("/")
        if any(part in ("", ".", "..") or part.startswith(TEMPORARY_PREFIX) for part in parts):
            raise InvalidRequest(f"not a key. key={key!r}")
        return self._folder.joinpath(*parts)

    def _write_temporary(self, path: Path, data: bytes) -> str:
        name = str(path.parent / f"{TEMPORARY_PREFIX}{new_nonce(self._entropy)}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            descriptor = os.open(name, flags, 0o644)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(name, flags, 0o644)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            if self._fsync:
                os.fsync(descriptor)
        except BaseException:
            os.unlink(name)
            raise
        finally:
            os.close(descriptor)
        return name

    def _sync_folder(self, folder: Path) -> None:
        if not self._fsync:
            return
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

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
                    key=lambda pair: pair[0].encode(),
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

    def _unavailable(self, verb: str, key: str, error: OSError) -> Unavailable:
        advice = {
            errno.ENOSPC: "the disk is full; free some space and try again",
            errno.EDQUOT: "the disk quota is used up; free some space and try again",
            errno.EFBIG: "the file is larger than this process may write; raise the limit",
            errno.EACCES: "no permission; check the folder's owner and mode",
            errno.EROFS: "the file system is read-only",
        }.get(error.errno or 0, "check the disk")
        return Unavailable(
            f"cannot {verb}: {advice}. root={self.url} key={key} error={error.strerror}"
        )
