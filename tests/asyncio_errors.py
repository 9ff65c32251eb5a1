"""Errors that asyncio logs, such as an exception of a task that is never read: any fails the suite.

In the test's process a handler gathers them. The harness searches the logs of broker processes, and
those of Spark's executors, in which brokers run as tasks.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import IO

import pytest

LOGGER = "asyncio"
IN_A_LOG = f"ERROR {LOGGER} "
"""Beginning of such a line in a broker's log."""
PHRASES = (
    IN_A_LOG,
    " exception was never retrieved",
    " was destroyed but it is pending!",
    " was never awaited",
    "ResourceWarning: unclosed ",
)
"""A line with one of these is an error. Python itself prints the last two, through `warnings`."""


class Gathered(logging.Handler):
    """Gathers what is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    def taken(self) -> list[str]:
        """Return the lines since the last call."""
        lines, self.lines = self.lines, []
        return lines


class AsyncioErrors:
    """A plugin: a test during or before whose teardown asyncio logs an error fails."""

    def __init__(self) -> None:
        self.gathered = Gathered()
        logging.getLogger(LOGGER).addHandler(self.gathered)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> None:
        if nextitem is None:
            gc.collect()  # a task in a cycle is complained of when it is collected
        lines = self.gathered.taken()
        if lines:
            pytest.fail("asyncio logged errors in this test or one before: " + "\n".join(lines))


class OpenLogs:
    """Log files of other processes. They are opened at once, so they outlive their folders.

    A launcher that ends in good order removes its folder, with the logs of all executors in it.
    """

    def __init__(self) -> None:
        self._files: dict[Path, IO[str]] = {}

    def open(self, paths: Iterable[Path]) -> None:
        """Open the files that exist and are not open yet."""
        for path in paths:
            if path not in self._files and path.is_file():
                self._files[path] = path.open(encoding="utf-8", errors="replace")

    @property
    def paths(self) -> list[Path]:
        """Return the files that were opened."""
        return sorted(self._files)

    def close(self) -> dict[str, list[str]]:
        """Close the files, and return by path the lines that asyncio has to complain of."""
        found: dict[str, list[str]] = {}
        for path, file in self._files.items():
            with file:
                if lines := lines_of(file.read()):
                    found[str(path)] = lines
        self._files.clear()
        return found


def lines_of(log: str) -> list[str]:
    """Return the lines of a process's log in which asyncio says that something is wrong."""
    return [line for line in log.splitlines() if any(phrase in line for phrase in PHRASES)]
