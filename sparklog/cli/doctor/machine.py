"""Checks of this machine: programs, packages, limits, disks, ports and names.

Each check returns findings: one plain line with what is wrong and what to do. A check has no other
effect, except that the one of a disk writes a file and deletes it.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, requires, version
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from sparklog.broker.network.listener_sockets import EVERY_INTERFACE, open_sockets
from sparklog.core.clock import Clock
from sparklog.log.kernels import kernels_are_kept

PYTHONS: Final = ((3, 11), (3, 14))
JAVAS: Final = (17, 21)
JAVA_ANSWERS_WITHIN_S: Final = 20.0
PACKAGES: Final = ("pyspark", "delta-spark", "pyarrow", "numpy", "numba", "confluent-kafka")
FILES_MIN: Final = 4096
"""A connection takes one file, and a broker has a thousand clients before it is large."""
FREE_BYTES_MIN: Final = 1 << 30
FREE_BYTES_WANTED: Final = 10 << 30
SYNCS: Final = 5
SYNC_MS_WANTED: Final = 50.0
"""A slower disk is the latency of every acknowledgement."""
_JAVA_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_CLAUSE: Final = re.compile(r"(>=|<|==)\s*([0-9.]+)")


class Level(Enum):
    """The weight of a finding."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    check: str
    level: Level
    text: str
    """One line: what was seen and, if it is wrong, what to do."""


def ok(check: str, text: str) -> Finding:
    """Return a finding without a fault."""
    return Finding(check, Level.OK, text)


def warning(check: str, text: str) -> Finding:
    """Return a finding about something that works, but not well."""
    return Finding(check, Level.WARNING, text)


def failure(check: str, text: str) -> Finding:
    """Return a finding about something that does not work."""
    return Finding(check, Level.FAILURE, text)


def python() -> Finding:
    """Check the interpreter."""
    found = sys.version_info[:2]
    text = f"Python {sys.version.split()[0]}"
    if not __debug__:
        return failure(
            "python", f"{text} runs with -O, and brokers check their own invariants: start without"
        )
    if found < PYTHONS[0]:
        return failure("python", f"{text} is too old: install Python 3.11 or newer")
    if found > PYTHONS[1]:
        return warning("python", f"{text} is newer than any that sparklog was tested with, 3.14")
    return ok("python", text)


def java(environment: Mapping[str, str]) -> Finding:
    """Check the Java that Spark starts."""
    home = environment.get("JAVA_HOME")
    wanted = str(Path(home) / "bin" / "java") if home else "java"
    program = shutil.which(wanted, path=environment.get("PATH"))
    if program is None:
        where = f"JAVA_HOME={home} has none" if home else "PATH has none"
        return failure("java", f"Spark needs Java 17 or 21, and {where}: install it")
    try:
        answer = subprocess.run(  # noqa: S603 - the program that Spark would start
            [program, "-version"],
            capture_output=True,
            text=True,
            timeout=JAVA_ANSWERS_WITHIN_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return failure("java", f"{program} does not run: {error}")
    match = _JAVA_VERSION.search(answer.stderr + answer.stdout)
    if match is None:
        return failure("java", f"{program} -version shows no version: install Java 17 or 21")
    number = int(match[1])
    text = f"Java {number} at {program}"
    if number < JAVAS[0]:
        return failure("java", f"{text} is too old for Spark: set JAVA_HOME to a Java 17 or 21")
    if number not in JAVAS:
        return warning("java", f"{text} was not tested with sparklog: 17 and 21 were")
    return ok("java", text)


def packages() -> list[Finding]:
    """Check the versions of the packages on which most depends."""
    needs = {re.split(r"[^A-Za-z0-9_-]", text)[0]: text for text in requires("sparklog") or ()}
    return [_package(name, needs.get(name, "")) for name in PACKAGES]


def _package(name: str, need: str) -> Finding:
    try:
        found = version(name)
    except PackageNotFoundError:
        return failure(name, f"{name} is not installed: run pip install sparklog again")
    return package_version(name, found, need.partition(";")[0])


def package_version(name: str, found: str, need: str) -> Finding:
    """Compare a version with a requirement, such as `pyarrow<27,>=26`."""
    for relation, bound in _CLAUSE.findall(need):
        have, limit = _numbers(found), _numbers(bound)
        width = max(len(have), len(limit))
        have += (0,) * (width - len(have))
        limit += (0,) * (width - len(limit))
        fits = {">=": have >= limit, "<": have < limit, "==": have == limit}[relation]
        if not fits:
            return failure(
                name, f"{name} {found} is not what sparklog needs: run pip install '{need.strip()}'"
            )
    return ok(name, f"{name} {found}")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:4])


def kernels() -> Finding:
    """Check that the compiled kernels are on disk."""
    if kernels_are_kept():
        return ok("kernels", "compiled")
    return warning(
        "kernels",
        "not compiled yet: the first use takes half a minute. Run sparklog warm-up as this user",
    )


def file_limit() -> Finding:
    """Check how many files a process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"a process may open {soft} files"
    if soft != resource.RLIM_INFINITY and soft < FILES_MIN:
        return warning(
            "file limit",
            f"{text}, and each client takes one: set ulimit -n {FILES_MIN} or more",
        )
    return ok("file limit", text)


def disk(folder: Path, clock: Clock, free_bytes_min: int = FREE_BYTES_MIN) -> list[Finding]:
    """Check the disk of a root that is a folder, where segments and write-ahead logs go.

    A folder that does not exist yet is on the disk of the first parent that does.
    """
    place = next((one for one in (folder, *folder.absolute().parents) if one.exists()), Path("/"))
    if not place.is_dir():
        return [failure("disk", f"{place} is a file: choose a root below a folder")]
    try:
        sync_ms = _sync_ms(place, clock)
    except OSError as error:
        return [failure("disk", f"{place} cannot be written: {error.strerror or error}")]
    free = shutil.disk_usage(place).free
    text = f"{free / (1 << 30):.1f} GiB are free at {place}"
    if free < free_bytes_min:
        space = failure("disk", f"{text}: brokers end when a disk is full. Make room")
    elif free < FREE_BYTES_WANTED:
        space = warning("disk", f"{text}: give retention or the disk more room")
    else:
        space = ok("disk", text)
    text = f"a forced write takes {sync_ms:.1f} ms at {place}"
    if sync_ms > SYNC_MS_WANTED:
        return [space, warning("sync", f"{text}, and so does each acknowledgement: use a disk")]
    return [space, ok("sync", text)]


def _sync_ms(place: Path, clock: Clock) -> float:
    """Return the time of a small write that reaches the disk, the median of some."""
    times: list[float] = []
    with tempfile.TemporaryFile(dir=place) as file:
        for _ in range(SYNCS):
            began_s = clock.monotonic_s()
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
            times.append((clock.monotonic_s() - began_s) * 1000)
    return sorted(times)[SYNCS // 2]


def listener(host: str, port: int) -> Finding:
    """Check that a broker could listen at an address."""
    where = f"{host or 'every interface'}, port {port}"
    try:
        sockets = open_sockets(host, port)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        return failure(
            "listener",
            f"no broker can listen on {where}: {why}. Choose another with --listen-host, --port",
        )
    for one in sockets:
        one.close()
    return ok("listener", f"a broker can listen on {where}")


def advertised(host: str) -> Finding:
    """Check that clients can look up an advertised host, as far as this machine shows."""
    if host in EVERY_INTERFACE:
        return failure(
            "advertised host",
            "every interface is no address for clients: name a host with --advertised-host",
        )
    try:
        answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        return failure(
            "advertised host", f"{host} has no address here: {why}. Mend DNS or choose another host"
        )
    found = sorted({str(address[0]) for *_, address in answers})
    text = f"{host} is {', '.join(found)}"
    if all(ip_address(one.partition("%")[0]).is_loopback for one in found):
        return warning("advertised host", f"{text}: clients of other machines cannot reach that")
    return ok("advertised host", text)
