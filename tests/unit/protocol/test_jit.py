"""Cache folders and late loading of compiled kernels; each case in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sparklog.protocol.partitioner.partitioner as partitioner_module

SOURCE = Path(partitioner_module.__file__).parents[2]
PLACE_KEYS = """
import os
import pyarrow as pa
from sparklog.protocol.partitioner.partitioner import partition_for_key, partitions_for_keys
found = partitions_for_keys(pa.array([b"foobar"]), 1000, sticky_partition=0)
assert found.tolist() == [partition_for_key(b"foobar", 1000)]
from sparklog.protocol.partitioner.kernels import assign_partitions, __file__ as place
assert place.startswith(os.getcwd()), place
print(sum(assign_partitions.stats.cache_hits.values()))
"""


def run(code: str, root: Path, **environment: str) -> str:
    """Run Python with the sparklog found under `root`; return what it prints."""
    inherited = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**inherited, "PYTHONPATH": str(root), **environment},
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def install_into(folder: Path) -> Path:
    """Copy sparklog to a folder without compiled code."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(SOURCE, folder / "sparklog", ignore=ignored)
    (folder / "tmp").mkdir()
    return folder


@pytest.fixture
def install(tmp_path: Path) -> Path:
    return install_into(tmp_path)


@pytest.fixture(scope="module")
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy in which one process has compiled its kernels."""
    folder = install_into(tmp_path_factory.mktemp("compiled"))
    assert run(PLACE_KEYS, folder) == "0"
    return folder


@pytest.fixture
def compiled(compiled_once: Path, tmp_path: Path) -> Path:
    """A copy of that with its code, which a test may change."""
    return Path(shutil.copytree(compiled_once, tmp_path / "copy"))


@pytest.fixture
def read_only_install(install: Path) -> Path:
    """Put files where cache folders are needed, so that even root cannot cache."""
    for room in (install / "sparklog").rglob("*/"):
        (room / "__pycache__").write_text("not a folder")
    return install


def no_home(root: Path) -> dict[str, str]:
    return {"HOME": os.devnull, "XDG_CACHE_HOME": os.devnull, "TMPDIR": str(root / "tmp")}


def test_importing_the_codec_loads_no_compiler() -> None:
    code = (
        "import sys, sparklog.protocol.records.record_batch, "
        "sparklog.protocol.partitioner.partitioner, "
        "sparklog.protocol.records.control, sparklog.protocol.records.memory_records; "
        "print([name for name in ('numba', 'llvmlite', 'pyspark') if name in sys.modules])"
    )
    assert run(code, SOURCE.parent) == "[]"


def test_single_key_is_partitioned_without_a_compiler() -> None:
    code = (
        "import sys; from sparklog.protocol.partitioner.partitioner import partition_for_key; "
        "print(partition_for_key(b'foobar', 1000), 'numba' in sys.modules)"
    )
    assert run(code, SOURCE.parent).endswith("False")


KERNELS_ARE_KEPT = """
import sys
from sparklog.log.kernels import kernels_are_kept
print(kernels_are_kept(), "numba" in sys.modules)
"""


@pytest.mark.parametrize("place", ["NUMBA_CACHE_DIR", "cache", "private"])
def test_kernels_are_found_without_a_compiler_wherever_they_are_kept(
    read_only_install: Path, tmp_path: Path, place: str
) -> None:
    root = read_only_install
    environment = no_home(root)
    if place == "NUMBA_CACHE_DIR":
        environment["NUMBA_CACHE_DIR"] = str(tmp_path / "kernels")
    elif place == "cache":
        environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    assert run(KERNELS_ARE_KEPT, root, **environment) == "False False"
    compile_all = "from sparklog.log.kernels import compile_kernels; print(len(compile_kernels()))"
    assert run(compile_all, root, **environment) in ("1", "3")
    assert run(KERNELS_ARE_KEPT, root, **environment) == "True False"


def test_second_process_loads_compiled_kernels(compiled: Path) -> None:
    assert run(PLACE_KEYS, compiled) == "1"


def test_read_only_install_caches_code_in_a_private_folder(read_only_install: Path) -> None:
    environment = no_home(read_only_install)
    assert run(PLACE_KEYS, read_only_install, **environment) == "0"
    (folder,) = (read_only_install / "tmp").glob("sparklog-kernels-*")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert list(folder.rglob("*.nbc"))
    assert run(PLACE_KEYS, read_only_install, **environment) == "1"


UNWRITABLE = """
import os
may = os.access
os.access = lambda path, mode: mode != os.W_OK and may(path, mode)  # as for a user who is not root
import tempfile
def refuse(dir):
    raise PermissionError(dir)
tempfile.TemporaryFile = refuse
"""


def test_code_beside_the_source_is_loaded_when_read_only(compiled: Path) -> None:
    assert run(UNWRITABLE + PLACE_KEYS, compiled, **no_home(compiled)) == "1"
    assert not list((compiled / "tmp").iterdir())


def test_kernels_are_compiled_when_read_only_and_uncached(install: Path) -> None:
    (install / "sparklog" / "protocol" / "__pycache__").mkdir(exist_ok=True)
    assert run(UNWRITABLE + PLACE_KEYS, install, **no_home(install)) == "0"


def test_folder_writable_by_others_is_not_trusted(read_only_install: Path) -> None:
    folder = read_only_install / "tmp" / f"sparklog-kernels-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    assert run(PLACE_KEYS, read_only_install, **no_home(read_only_install)) == "0"
    assert list(folder.iterdir()) == []


def test_kernels_work_without_any_cache_folder(read_only_install: Path) -> None:
    (read_only_install / "tmp" / f"sparklog-kernels-{os.getuid()}").write_text("no folder")
    assert run(PLACE_KEYS, read_only_install, **no_home(read_only_install)) == "0"


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize("size", [0, 100])
def test_damaged_code_is_compiled_again(compiled: Path, suffix: str, size: int) -> None:
    (damaged,) = (compiled / "sparklog" / "protocol" / "partitioner" / "__pycache__").glob(
        f"*.{suffix}"
    )
    damaged.write_bytes(damaged.read_bytes()[:size])
    assert run(PLACE_KEYS, compiled, TMPDIR=str(compiled / "tmp")) == "0"
