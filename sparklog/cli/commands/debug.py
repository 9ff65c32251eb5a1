"""`sparklog debug --bundle FILE`: all that a report of a problem needs, in one archive.

The archive has versions, settings, and the findings of `doctor` about this machine and the root. It
also has the brokers' pages and states, and the ends of log files. It has no records and no keys.

Brokers hide settings with secrets, and no environment variable is read. In all files, values that
look like secrets are hidden. `problems.txt` has a line for each part that cannot be had.
"""

from __future__ import annotations

import io
import json
import platform
import re
import tarfile
from collections.abc import Callable, Iterable
from functools import partial
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final

from sparklog.cli.arguments import Arguments, CommandParser
from sparklog.cli.doctor import machine
from sparklog.cli.doctor.machine import Finding
from sparklog.cli.doctor.root import root as root_findings
from sparklog.cli.metrics_pages import page_url, read_page
from sparklog.cli.output import Output
from sparklog.cli.target import (
    add_log_options,
    administered,
    bootstrap_of,
    client_settings_of,
    root_of,
)
from sparklog.client.values import ConfigResource, ConfigValue
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.config.model import HIDDEN
from sparklog.core.errors import SparklogError

LOG_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of the end of each log file."""
LOGS_MAX: Final = 100
_SECRET: Final = re.compile(
    r"(?i)((?:[\w.\-]*(?:password|passphrase|secret|token|jaas[._]config|access[._]?key|credential)"
    r"[\w.\-]*)[\"']?\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|[^\s,;&}\"']+)"
)
_LOGIN_IN_URL: Final = re.compile(r"(\w+://)[^/\s:@]+:[^/\s@]+@")
_AUTHORIZATION: Final = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=\-]{8,}")


def configure(parser: CommandParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--bundle", required=True, type=Path, metavar="FILE", help="the .tar.gz file to write"
    )
    parser.add_argument(
        "--page", action="append", default=[], metavar="HOST:PORT",
        help="a broker's page for Prometheus; its state comes from a broker of this machine alone",
    )  # fmt: skip
    parser.add_argument(
        "--logs", action="append", default=[], type=Path, metavar="PATH",
        help="a log file, or a folder with files *.log and stderr",
    )  # fmt: skip
    add_log_options(parser)


def run(args: Arguments, output: Output) -> int:
    """Write the archive, and print what it has."""
    bundle = _Bundle()
    bundle.add("versions.json", _versions)
    bundle.add("machine.jsonl", lambda: _lines(_machine()))
    url = root_of(args)
    if url is not None:
        settings = client_settings_of(args)
        bundle.add("root.jsonl", lambda: _lines(root_findings(url, {}, settings)))
    if url is not None or bootstrap_of(args) is not None:
        bundle.add("settings.json", lambda: _settings(args))
    for number, page in enumerate(args.page):
        folder = f"brokers/{number}-{re.sub(r'[^A-Za-z0-9.-]', '_', page)}"
        for name, path in (("metrics.txt", "/metrics"), ("state.json", "/debug/state")):
            bundle.add(f"{folder}/{name}", partial(_page, page, path))
    for number, file in enumerate(_log_files(args.logs)):
        bundle.add(f"logs/{number}-{file.name}", partial(_end_of, file))
    bundle.write(args.bundle)
    for name in bundle.files:
        output.put(name, {"file": name, "bytes": len(bundle.files[name])})
    return 0


class _Bundle:
    """The files of an archive."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self._problems: list[str] = []

    def add(self, name: str, make: Callable[[], bytes]) -> None:
        """Add what `make` returns, without secrets, or note why there is nothing."""
        try:
            self.files[name] = hide_secrets(make())
        except (SparklogError, OSError) as error:
            self._problems.append(f"{name}: {' '.join(str(error).split())}")

    def write(self, path: Path) -> None:
        """Write the archive.

        Raises:
            OSError: the file cannot be written.
        """
        self.files["problems.txt"] = hide_secrets("\n".join(self._problems).encode())
        now_s = SYSTEM_CLOCK.now_ms() // 1000
        with tarfile.open(path, "w:gz") as archive:
            for name, content in self.files.items():
                entry = tarfile.TarInfo(f"sparklog-debug/{name}")
                entry.size, entry.mtime, entry.mode = len(content), now_s, 0o600
                archive.addfile(entry, io.BytesIO(content))


def hide_secrets(data: bytes) -> bytes:
    """Return text with `[hidden]` for values after names of secrets, and for logins in URLs."""
    text = data.decode("utf-8", "replace")
    text = _SECRET.sub(_hidden, text)
    text = _AUTHORIZATION.sub(rf"\1 {HIDDEN}", text)
    return _LOGIN_IN_URL.sub(rf"\1{HIDDEN}@", text).encode()


def _hidden(found: re.Match[str]) -> str:
    """Return a name with a hidden value, in quotes where JSON needs them."""
    before, value = found[1], found[2]
    in_json = before.rstrip(" :=")[-1:] in {'"', "'"}
    quote = value[0] if value[0] in {'"', "'"} else '"' if in_json else ""
    return f"{before}{quote}{HIDDEN}{quote}"


def _page(address: str, path: str) -> bytes:
    return read_page(page_url(address), path)


def _versions() -> bytes:
    packages = {one.metadata["Name"]: one.version for one in distributions()}
    found = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": dict(sorted(packages.items())),
    }
    return json.dumps(found, indent=1).encode()


def _machine() -> Iterable[Finding]:
    yield machine.python()
    yield from machine.packages()
    yield machine.kernels()
    yield machine.file_limit()


def _lines(findings: Iterable[Finding]) -> bytes:
    rows = ({"check": f.check, "level": f.level.value, "text": f.text} for f in findings)
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _settings(args: Arguments) -> bytes:
    with administered(args) as log:
        brokers = log.brokers()
        topics = log.configs(ConfigResource.TOPIC, log.topic_names())
        ids = [str(one.broker_id) for one in brokers]
        of_brokers = log.configs(ConfigResource.BROKER, ids) if bootstrap_of(args) else {}
    found: dict[str, Any] = {
        "brokers": [[b.broker_id, b.host, b.port, b.rack, b.controller] for b in brokers],
        "broker_settings": {name: _values(values) for name, values in of_brokers.items()},
        "topic_settings": {name: _values(values) for name, values in topics.items()},
    }
    return json.dumps(found, indent=1).encode()


def _values(values: Iterable[ConfigValue]) -> dict[str, str | None]:
    return {one.name: HIDDEN if one.sensitive else one.value for one in values}


def _log_files(paths: Iterable[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += sorted(p for p in path.rglob("*") if p.suffix == ".log" or p.name == "stderr")
        else:
            found.append(path)
    return found[:LOGS_MAX]


def _end_of(path: Path) -> bytes:
    with path.open("rb") as file:
        size = file.seek(0, io.SEEK_END)
        file.seek(max(0, size - LOG_BYTES_MAX))
        return file.read()
