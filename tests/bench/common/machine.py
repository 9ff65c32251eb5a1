"""The machine of the figures."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

from tests.peers.jars import KAFKA_VERSION, SPARK_KAFKA_VERSION

PACKAGES = ("pyspark", "pyarrow", "numpy", "numba", "fsspec")
PROJECT = Path(__file__).resolve().parents[3]


def hardware(work_folder: Path) -> dict[str, str]:
    """Return processor, memory and the file system of the work folder."""
    disk = os.statvfs(work_folder)
    return {
        "processor": _proc_field("cpuinfo", "model name") or platform.machine(),
        "cores": str(os.cpu_count()),
        "memory": f"{_memory_gib():.1f} GiB",
        "kernel": platform.release(),
        "free disk": f"{disk.f_bavail * disk.f_frsize / 2**30:.0f} GiB",
        "load at start": f"{os.getloadavg()[0]:.2f}",
    }


def versions() -> dict[str, str]:
    """Return the versions of everything that takes part."""
    found = {"sparklog": f"{version('sparklog')} {_revision()}".strip()}
    found["kafka"] = KAFKA_VERSION
    found["spark-sql-kafka"] = SPARK_KAFKA_VERSION
    found["python"] = platform.python_version()
    found["java"] = _java_version()
    found.update({name: version(name) for name in PACKAGES})
    return found


def _proc_field(file: str, name: str) -> str:
    path = Path("/proc") / file
    if not path.exists():
        return ""
    for line in path.read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def _revision() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _java_version() -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    first = (done.stderr or done.stdout).splitlines()
    return first[0] if first else "unknown"
