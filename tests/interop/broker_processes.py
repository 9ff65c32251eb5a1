"""Brokers in processes of their own, each of which can be killed.

with BrokerProcesses(folder, count=3) as brokers:
    brokers.bootstrap   # "127.0.0.1:40123,…"
    brokers.kill(2)
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

STOP_S = 30.0


class BrokerProcesses:
    """Some brokers over one folder; a context manager."""

    def __init__(
        self, folder: Path, count: int = 3, settings: Mapping[str, str] | None = None
    ) -> None:
        """Prepare brokers 1 to `count` on free ports of this machine."""
        self._folder = folder
        self._count = count
        self._settings = dict(settings or {})
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self.addresses: dict[int, str] = {}

    @property
    def bootstrap(self) -> str:
        """Return the addresses of all brokers, dead or alive, as clients take them."""
        return ",".join(self.addresses.values())

    def __enter__(self) -> BrokerProcesses:
        """Start all and wait until they serve."""
        for number in range(1, self._count + 1):
            self._start(number)
        for number, process in self._processes.items():
            self._await(number, process)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait(STOP_S)
            if process.stdout is not None:
                process.stdout.close()

    def kill(self, number: int) -> None:
        """Kill a broker with SIGKILL."""
        self._processes[number].kill()
        self._processes[number].wait(STOP_S)

    def _start(self, number: int) -> None:
        words = [sys.executable, "-m", "sparklog.broker.main", "--log-level", "WARNING"]
        words += ["--root", (self._folder / "log").as_uri(), "--broker-id", str(number)]
        words += ["--listener", "127.0.0.1:0"]
        for name, value in self._settings.items():
            words += ["--config", f"{name}={value}"]
        self._processes[number] = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)

    def _await(self, number: int, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if "listening on" in line:
                self.addresses[number] = line.rsplit(" ", 1)[1].strip()
                return
        raise AssertionError(f"broker {number} did not start. exit_code={process.wait(STOP_S)}")
