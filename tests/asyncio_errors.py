"""Errors that asyncio logs, such as a task whose exception nobody retrieves: any fails the suite.

In the test's process a handler gathers them; in the logs of broker processes they are looked for.
"""

from __future__ import annotations

import gc
import logging

import pytest

LOGGER = "asyncio"
IN_A_LOG = f"ERROR {LOGGER} "
"""How such a line looks in a broker's log."""


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


def lines_of(log: str) -> list[str]:
    """Return the lines of a process's log in which asyncio says that something is wrong."""
    return [line for line in log.splitlines() if IN_A_LOG in line]
