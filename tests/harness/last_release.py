"""The last release as an installation beside this one, for tests of brokers of both.

`tests/golden/release/sparklog-<version>.tar.xz` has the packages that a broker imports, as they
were. So these tests need no history of the repository: a clone may be shallow. For another commit,
`of_commit` takes them from the history.

    folder = last_release(tmp_path / "last")   # `python -m sparklog.broker.main` there is the last
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

from tests.tidy.tree import ROOT

RELEASES = ROOT / "tests" / "golden" / "release"
PACKAGES = (
    "broker",
    "cluster",
    "coordinator",
    "core",
    "log",
    "protocol",
    "registry",
    "security",
    "store",
)
"""The packages that a broker imports."""


def last_release(folder: Path) -> Path:
    """Unpack the stored release into a new folder, and return the folder."""
    (archive,) = RELEASES.glob("sparklog-*.tar.xz")
    return _installed(archive.read_bytes(), folder)


def of_commit(commit: str, folder: Path) -> Path:
    """Unpack a commit of this repository into a new folder, and return the folder."""
    names = ["sparklog/__init__.py", "sparklog/py.typed", *(f"sparklog/{p}" for p in PACKAGES)]
    done = subprocess.run(
        ["git", "archive", "--format=tar", commit, *names],
        check=False,
        cwd=ROOT,
        capture_output=True,
    )
    assert done.returncode == 0, (
        f"this clone has no commit {commit}: a shallow one gets its history by "
        f"`git fetch --unshallow`. {done.stderr.decode()}"
    )
    return _installed(done.stdout, folder)


def _installed(archive: bytes, folder: Path) -> Path:
    with tarfile.open(fileobj=BytesIO(archive)) as packed:
        for member in packed:
            content = packed.extractfile(member)
            if content is not None:
                target = folder / member.name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content.read())
    for source in folder.glob("sparklog/**/*kernels.py"):
        _take_compiled(source, ROOT / source.relative_to(folder))
    return folder


def _take_compiled(source: Path, here: Path) -> None:
    """Copy the compiled kernels of a source file that has not changed since.

    Compiling takes half a minute. numba compares a file's size and time.
    """
    if not here.is_file() or here.read_bytes() != source.read_bytes():
        return
    shutil.copystat(here, source)
    target = source.with_name("__pycache__")
    target.mkdir(exist_ok=True)
    for compiled in here.with_name("__pycache__").glob(f"{here.stem}.*.nb[ci]"):
        shutil.copy2(compiled, target)
