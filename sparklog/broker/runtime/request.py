"""What a handler knows about a request besides its message."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Protocol

from sparklog.core.errors import SparklogError
from sparklog.security.principal import ANONYMOUS, Principal

BROKERS_CLIENT: Final = "broker-"
"""Brokers introduce themselves so to each other, with their id behind it."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The sender of a request."""

    client_id: str | None = None
    client_host: str = ""
    """The peer's IP address, or '' within one process."""
    principal: Principal = ANONYMOUS
    listener: str = ""
    """The name of the listener that the connection came to, or '' within one process."""


INTERNAL: Final = RequestContext()
"""A request a broker makes to itself."""
UNTHROTTLED: Final = timedelta(0)


@dataclass(frozen=True, slots=True)
class NoResponse:
    """What a handler returns whose client wants no answer, and is not listened to for a while."""

    throttle_time: timedelta


class Reply(Protocol):
    """Takes the answer to one request, once, from whoever answers without a task."""

    def answer(self, frame: bytearray, throttle: timedelta = UNTHROTTLED) -> None:
        """Send this; for so long the client is not listened to."""
        ...

    def go_on(self, work: Coroutine[Any, Any, Any]) -> None:
        """Send the response entity that `work` returns, as any request's."""
        ...


class CloseConnection(SparklogError):
    """The answer is to hang up: a producer that wants no answer learns of an error this way."""


class ExpectedClose(CloseConnection):
    """A close that is no news: the broker asked for it itself. It is logged at DEBUG."""
