"""ClosingLog: lines about connections that the broker ends, each kind once in a while.

Any remote party can make the broker end its connections, and must not fill the log by that. The
first event of a kind is a line at once. The broker counts the next ones, and logs one line with
their number after `EVERY_S`.

  CLOSING-LOG-1: a kind has at most one line in `EVERY_S`, and `KINDS_MAX` kinds are limited each
      for itself
  CLOSING-LOG-2: each event is in a line, or in the count of one
  CLOSING-LOG-3: a kind without new events is forgotten, so memory does not grow with time
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from sparklog.broker.runtime.log_limiter import EVERY_S

KINDS_MAX: Final = 100
"""Kinds that are limited each for itself; further ones share one limit."""
CLIENTS_COUNTED: Final = 1000
"""Different clients of one kind that are counted; a line then shows this number with a plus."""
_OTHERS: Final = "others"


@dataclass(slots=True)
class _Recent:
    """The events of one kind since its last line."""

    timer: asyncio.TimerHandle
    level: int
    count: int = 0
    clients: set[str] = field(default_factory=set)
    last: str = ""


class ClosingLog:
    """The lines of one broker. The event loop's only."""

    def __init__(self, logger: logging.Logger) -> None:
        """Log to `logger`."""
        self._logger = logger
        self._recent: dict[str, _Recent] = {}

    def __len__(self) -> int:
        """Return the number of kinds that have recent events."""
        return len(self._recent)

    def add(
        self,
        kind: str,
        text: str,
        client: str,
        level: int = logging.WARNING,
        error: BaseException | None = None,
    ) -> None:
        """Log an event, or count it after a recent one of its kind.

        Args:
            kind: what is limited; it must not have parts that a client chooses.
            text: the line.
            client: the client's address.
            level: the level of the line.
            error: has the traceback for the first line; None: there is none.
        """
        if kind not in self._recent and len(self._recent) >= KINDS_MAX:
            kind = _OTHERS
        recent = self._recent.get(kind)
        if recent is None:
            self._recent[kind] = _Recent(self._later(kind), level)
            self._logger.log(level, "%s", text, exc_info=error)
            return
        recent.count += 1
        recent.last = text
        if len(recent.clients) < CLIENTS_COUNTED:
            recent.clients.add(client)

    def close(self) -> None:
        """Log the counts now."""
        recent, self._recent = self._recent, {}
        for one in recent.values():
            one.timer.cancel()
            self._log_count(one)

    def _later(self, kind: str) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(EVERY_S, partial(self._end, kind))

    def _end(self, kind: str) -> None:
        recent = self._recent.pop(kind)
        if recent.count:
            self._log_count(recent)
            self._recent[kind] = _Recent(self._later(kind), recent.level)

    def _log_count(self, recent: _Recent) -> None:
        if not recent.count:
            return
        clients = len(recent.clients)
        plus = "+" if clients >= CLIENTS_COUNTED else ""
        self._logger.log(
            recent.level, "%s more=%d clients=%d%s", recent.last, recent.count, clients, plus
        )
