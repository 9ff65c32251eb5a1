"""GatheredNotes: one INFO line for an event of many partitions, and the details at DEBUG.

A change of the metadata can concern thousands of partitions at once. One line each would hide all
other lines of the log.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Final

GATHER_S: Final = 0.25
"""Time in which partitions gather: recoveries of one take-over end one after the other."""

NAMED: Final = 5
"""Most partitions that a line names."""


@dataclass(slots=True)
class _Gathered:
    """The partitions with one kind of note since the last line."""

    count: int = 0
    first_epoch: int = 0
    last_epoch: int = 0
    named: list[str] = field(default_factory=list)

    def line(self, what: str) -> str:
        noun = "partition" if self.count == 1 else "partitions"
        epochs = f"{self.first_epoch}"
        if self.last_epoch != self.first_epoch:
            epochs += f"..{self.last_epoch}"
        names = ", ".join(self.named)
        more = self.count - len(self.named)
        rest = f" and {more:,} more" if more else ""
        return f"{what} {self.count:,} {noun} epoch {epochs}: {names}{rest}"


class GatheredNotes:
    """Gathers notes about partitions, and logs one line for each kind of note."""

    def __init__(self, logger: logging.Logger) -> None:
        """Gather for `logger`."""
        self._logger = logger
        self._gathered: dict[str, _Gathered] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, what: str, topic: str, partition: int, epoch: int, details: str = "") -> None:
        """Record a note about a partition in a leader epoch; `what` is its kind, as "leading"."""
        self._logger.debug("%s partition=%s-%d epoch=%d%s", what, topic, partition, epoch, details)
        found = self._gathered.get(what)
        if found is None:
            found = self._gathered[what] = _Gathered(first_epoch=epoch, last_epoch=epoch)
        found.count += 1
        found.first_epoch = min(found.first_epoch, epoch)
        found.last_epoch = max(found.last_epoch, epoch)
        if len(found.named) < NAMED:
            found.named.append(f"{topic}-{partition}")
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHER_S, self.log)

    def log(self) -> None:
        """Log the gathered notes now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        gathered, self._gathered = self._gathered, {}
        for what, found in gathered.items():
            self._logger.info("%s", found.line(what))
