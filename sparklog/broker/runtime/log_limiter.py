"""Saying seldom what happens often: a store that is away is met by every partition at once."""

from __future__ import annotations

import asyncio
import logging
from math import inf
from typing import Final

EVERY_S: Final = 5.0
"""Long enough that a log is readable, short enough that whoever looks sees that it goes on."""


class RateLimitedLog:
    """Something that may happen again and again, and is said at most every few seconds."""

    def __init__(self) -> None:
        """Let it be said at once the first time."""
        self._said_s = -inf
        self._unsaid = 0

    def warn(self, logger: logging.Logger, text: str, *args: object) -> None:
        """Log a warning, with how often it was not said before, or count it if one is recent."""
        self._say(logger, logging.WARNING, text, args)

    def error(self, logger: logging.Logger, text: str, *args: object) -> None:
        """Log an error in the same way."""
        self._say(logger, logging.ERROR, text, args)

    def _say(self, logger: logging.Logger, level: int, text: str, args: tuple[object, ...]) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._said_s < EVERY_S:
            self._unsaid += 1
            return
        logger.log(level, "%s unsaid_before=%d", text % args, self._unsaid)
        self._unsaid, self._said_s = 0, now_s
