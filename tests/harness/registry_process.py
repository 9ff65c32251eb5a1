"""A server of the command line, such as a schema registry, in a process of its own."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

URL = re.compile(r"http://\S+")


class ServingProcess:
    """A command that prints its URL and serves until a signal."""

    def __init__(self, *words: str) -> None:
        command = [sys.executable, "-m", "sparklog.cli", *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)

    def url(self) -> str:
        assert self.process.stdout is not None
        found = URL.search(self.process.stdout.readline().decode())
        assert found is not None
        return found[0]

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)  # to one that has ended it does nothing
        code = self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


class RegistryProcess(ServingProcess):
    """`sparklog registry --serve` over a root or behind brokers."""

    def __init__(self, *where: str) -> None:
        super().__init__("registry", "--serve", *where, "--port", "0")
