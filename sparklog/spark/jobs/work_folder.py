"""A folder for what Spark leaves on this machine while brokers run: its log, work and scratch.

Spark puts the work of a `local-cluster`, with the logs of all executors, into its own
installation, and keeps it for good. An installation that cannot be written fails. So its JVM is
started from a home of ours, which has links to all of Spark and a `work` of its own.

Java's temporary folder is there as well: Spark's processes unpack libraries and make folders in it,
and leave them behind when they are killed.

A folder is locked while its launcher lives. It goes with a launcher that ends in good order. Those
of launchers that failed or were killed stay to be read, and the next launcher removes them.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.find_spark_home import _find_spark_home

from sparklog.spark.jobs.class_archive import with_archive

_PREFIX: Final = "serve-"
_LOCK: Final = "lock"
_WORK: Final = "work"
_LOCAL_DIR: Final = "spark.local.dir"
_JAVA_OPTIONS: Final = ("spark.driver.defaultJavaOptions", "spark.executor.extraJavaOptions")
"""Those that `serve_conf` sets."""


@dataclass(frozen=True, slots=True)
class ServeFolder:
    """One launcher's folder."""

    path: Path

    @property
    def log(self) -> Path:
        """Return the file for what Spark's JVM prints."""
        return self.path / "spark.log"

    @property
    def spark_home(self) -> Path:
        """Return Spark's home: links, and the work of executors."""
        return self.path / "spark"

    @property
    def scratch(self) -> Path:
        """Return the folder for Spark's temporary files."""
        return self.path / "scratch"

    @property
    def requests(self) -> Path:
        """Return the folder for what Python workers request of the store: see `request_files`."""
        return self.path / "requests"


def conf_of_folder(conf: Mapping[str, str], folder: ServeFolder) -> dict[str, str]:
    """Return settings with which Spark's temporary files, and Java's, are in a folder.

    Its JVMs map the archive of Spark's classes, if there is one.
    """
    own = {_LOCAL_DIR: str(folder.scratch), **conf}
    for name in _JAVA_OPTIONS:
        own[name] = (
            f"-Djava.io.tmpdir={shlex.quote(str(folder.scratch))} {own.get(name, '')}".strip()
        )
    return with_archive(own, _JAVA_OPTIONS)


@contextmanager
def serve_folder(
    parent: Path | None = None, failed: Callable[[], bool] = lambda: False
) -> Iterator[ServeFolder]:
    """Yield a new folder; remove what others left.

    The folder is removed at the end, unless the block raises or `failed` returns true.

    Args:
        parent: where folders of launchers are; by default a private one in the system's temporary
            folder.
        failed: asked at the end of the block.

    Raises:
        OSError: it cannot be made, or its parent is not this user's alone.
    """
    parent = parent or _private_parent()
    with _locked(parent / "making"):  # so that no process removes a folder before it is locked
        _remove_unlocked(parent)
        folder = ServeFolder(Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent)))
        lock = _lock(folder.path / _LOCK)
    try:
        folder.scratch.mkdir()
        folder.requests.mkdir()
        link_spark_home(folder.spark_home)
        yield folder
        if not failed():
            shutil.rmtree(folder.path, ignore_errors=True)
    finally:
        os.close(lock)


def _private_parent() -> Path:
    folder = Path(tempfile.gettempdir()) / f"sparklog-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o022 or folder.is_symlink():
        raise PermissionError(f"{folder} is not this user's alone: remove it, or set TMPDIR")
    return folder


def link_spark_home(home: Path) -> None:
    """Make a home of Spark: links to all of the installed one, and a `work` of its own."""
    (home / _WORK).mkdir(parents=True)
    for entry in Path(_find_spark_home()).iterdir():
        if entry.name != _WORK:
            (home / entry.name).symlink_to(entry)


def _remove_unlocked(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            lock = _lock(folder / _LOCK)
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _lock(path: Path) -> int:
    """Return the descriptor of a file that no other process has locked. Raises OSError."""
    found = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(found)
        raise
    return found


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    found = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(found, fcntl.LOCK_EX)
        yield
    finally:
        os.close(found)
