"""RateLimitedLog: logs a frequent event seldom.

When the store does not respond, all partitions meet that error at once.
"""

from __future__ import annotations

import asyncio
import logging
import re
from math import inf
from typing import Final

EVERY_S: Final = 5.0
"""Least time between two lines: the log stays readable, and an operator sees that it continues."""
_VARIABLE: Final = re.compile(r"[.:=0-9]")
"""Marks the end of the part of a message that is the same for each event of its kind."""


def kind_of(message: str) -> str:
    """Return the part of a message that has no values: what stands before the first of them."""
    return _VARIABLE.split(message, maxsplit=1)[0]


class RateLimitedLog:
    """One kind of event, logged at most once in `EVERY_S` seconds."""

    def __init__(self) -> None:
        """Log the first event at once."""
        self._logged_s = -inf
        self._suppressed = 0

    def warn(self, logger: logging.Logger, text: str, *args: object) -> None:
        """Log a warning with the number of suppressed ones, or suppress it after a recent one."""
        self._log(logger, logging.WARNING, text, args)

    def error(self, logger: logging.Logger, text: str, *args: object) -> None:
        """Log an error in the same way."""
        self._log(logger, logging.ERROR, text, args)

    def _log(self, logger: logging.Logger, level: int, text: str, args: tuple[object, ...]) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._logged_s < EVERY_S:
            self._suppressed += 1
            return
        logger.log(level, "%s suppressed_before=%d", text % args, self._suppressed)
        self._suppressed, self._logged_s = 0, now_s
