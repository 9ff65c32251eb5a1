"""One request of a connection and, in time, its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from sparklog.broker.request import UNTHROTTLED
from sparklog.protocol.messages import RequestHeader


class Owner(Protocol):
    """The connection that a request came over; see `broker.connection`."""

    def start_task(self, exchange: Exchange, work: Coroutine[Any, Any, Any]) -> None:
        """Answer with the response entity that `work` returns."""
        ...

    def throttle(self, time: timedelta) -> None:
        """Start nothing more for so long."""
        ...

    def finished(self, exchange: Exchange) -> None:
        """Take in that a request's answer is there, or that it gets none."""
        ...


@dataclass(slots=True, eq=False)
class Exchange:
    """A request and, in time, its answer. A `Reply`."""

    owner: Owner
    header: RequestHeader
    request: Any
    """An entity, or a `PlainProduce` that has not been begun."""
    size: int
    started_s: float = 0.0
    task: asyncio.Task[None] | None = None
    done: bool = False
    told: bytearray | None = None
    """The answer; None when done: the client wants none."""

    def answer(self, frame: bytearray, throttle: timedelta = UNTHROTTLED) -> None:
        """Send this when those before it have gone."""
        self.told = frame
        if throttle:
            self.owner.throttle(throttle)
        self.owner.finished(self)

    def go_on(self, work: Coroutine[Any, Any, Any]) -> None:
        """Send the response entity that `work` returns."""
        self.owner.start_task(self, work)
