"""The folders in which compiled kernels are kept, found without loading the compiler.

`protocol.jit` says which folder is used when.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path


def private_cache_path() -> Path:
    """Return the temporary folder for kernels that only this user can write, if it exists."""
    return Path(tempfile.gettempdir()) / f"sparklog-kernels-{os.getuid()}"


def private_cache_folder() -> Path:
    """Return that folder, and create it if absent.

    Raises:
        OSError: it cannot be created, or another user created it (cached code is code).
    """
    folder = private_cache_path()
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    own = found.st_uid == os.getuid()
    if not (stat.S_ISDIR(found.st_mode) and own and not found.st_mode & 0o022):
        raise PermissionError(f"kernel cache folder is not ours alone; remove it. folder={folder}")
    return folder


def is_kept(source: Path, environment: Mapping[str, str]) -> bool:
    """Return True if some folder holds compiled kernels of a source file."""
    folders = _folders_of(source, environment)
    return any(any(folder.glob(f"{source.stem}.*.nbi")) for folder in folders)


def _folders_of(source: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield the folders in numba's order; a folder that the user names is the only one."""
    parent = source.resolve().parent
    # As numba names it.
    digest = hashlib.sha1(str(parent).encode(), usedforsecurity=False).hexdigest()
    name = f"{parent.name}_{digest}"
    if named := environment.get("NUMBA_CACHE_DIR"):
        yield Path(named) / name
        return
    yield source.with_name("__pycache__")
    home = environment.get("HOME", "")
    yield Path(environment.get("XDG_CACHE_HOME") or f"{home}/.cache") / "numba" / name
    yield private_cache_path() / name
