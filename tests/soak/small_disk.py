"""A disk that is small enough to be filled."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MIB = 1 << 20


class SmallDisk:
    """A file system of its own, and one file on it that takes all that is left."""

    def __init__(self, folder: Path) -> None:
        """Use the file system mounted on `folder`."""
        self._ballast = folder / ".put-ballast"  # no key, so no store lists it

    def fill(self) -> None:
        """Take every byte that is free now."""
        descriptor = os.open(self._ballast, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            for size in (MIB, 4096, 1):
                _write_until_full(descriptor, bytes(size))
        finally:
            os.close(descriptor)

    def free(self) -> None:
        """Give back what was taken."""
        self._ballast.unlink(missing_ok=True)


def _write_until_full(descriptor: int, data: bytes) -> None:
    try:
        while os.write(descriptor, data):
            pass
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[SmallDisk]:
    """Mount a file system of that size on `folder`, which only root may."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    assert not mounted.returncode, f"only root may mount: {mounted.stderr.strip()}"
    try:
        yield SmallDisk(folder)
    finally:
        # Lazily: a broker that is being killed may still have a file open.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
