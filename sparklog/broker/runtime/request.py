"""RequestContext: the sender of a request, which handlers get beside the message."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Protocol

from sparklog.core.errors import SparklogError
from sparklog.security.principal import ANONYMOUS, Principal

BROKERS_CLIENT: Final = "broker-"
"""Prefix of the client id that brokers use among each other; their id follows it."""


class ConnectionEnd:
    """Calls functions when a client's connection is gone: what it held is for others then."""

    def __init__(self) -> None:
        """Call nothing yet."""
        self._calls: dict[Hashable, Callable[[], None]] = {}

    def call(self, key: Hashable, function: Callable[[], None]) -> None:
        """Call `function` at the end, in place of an earlier one of the same key."""
        self._calls[key] = function

    def happened(self) -> None:
        """Call all functions: the connection is gone."""
        calls, self._calls = self._calls, {}
        for function in calls.values():
            function()


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The sender of a request."""

    client_id: str | None = None
    client_host: str = ""
    """The peer's IP address, or '' within one process."""
    principal: Principal = ANONYMOUS
    listener: str = ""
    """The name of the listener that the connection came to, or '' within one process."""
    by_token: bool = False
    """True if the client logged in by a delegation token of the principal."""
    connection: ConnectionEnd | None = field(default=None, compare=False, repr=False)
    """The end of the client's connection; None within one process."""

    @property
    def creator(self) -> str:
        """Return the principal to record as the creator of a topic; empty without a login."""
        return "" if self.principal == ANONYMOUS else str(self.principal)


INTERNAL: Final = RequestContext()
"""The sender of a request that a broker makes to itself."""
UNTHROTTLED: Final = timedelta(0)


@dataclass(frozen=True, slots=True)
class NoResponse:
    """The result of a handler whose client wants no response."""

    throttle_time: timedelta
    """Time for which the broker does not read from the client."""


class Reply(Protocol):
    """Sends the response to one request, once, for a handler that runs without a task."""

    def answer(self, frame: bytearray, throttle: timedelta = UNTHROTTLED) -> None:
        """Send a response frame, then read nothing from the client for `throttle`."""
        ...

    def go_on(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run `work` as a task and send the response entity that it returns."""
        ...


class CloseConnection(SparklogError):
    """Close the connection instead of a response: with acks=0 it reports an error to producers."""


class ExpectedClose(CloseConnection):
    """A close that this broker requested itself; it is logged at DEBUG."""
