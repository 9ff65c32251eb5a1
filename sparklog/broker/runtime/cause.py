"""Causes in log lines: the request, or the metadata record, for which a broker does something.

A request that needs a task names itself for that task. The metadata log notes the causes of what it
appends, with the offsets. Each broker then applies the image, and what it changes has the offset as
its cause. So a line leads back to a request: from an offset to the line of the controller, and from
there to the client.

A task keeps the cause that it started with. Plain produce requests have no task, and no cause.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.frames import RequestHeader


@dataclass(frozen=True, slots=True)
class RequestCause:
    """A client's request."""

    header: RequestHeader
    client_host: str

    def __str__(self) -> str:
        """Return it as words. A client id is quoted, as it may have any characters."""
        header = self.header
        client = f"{header.client_id or ''!r}@{self.client_host}"
        return f"{Api(header.api_key).name} id={header.correlation_id} client={client}"


@dataclass(frozen=True, slots=True)
class MetadataCause:
    """A new image of the metadata."""

    end_offset: int
    """The end of the metadata log that the image shows."""

    def __str__(self) -> str:
        """Return it as words."""
        return f"metadata end_offset={self.end_offset}"


Cause = RequestCause | MetadataCause

_CAUSE: ContextVar[Cause | None] = ContextVar("cause", default=None)


def current_cause() -> Cause | None:
    """Return the cause of the current task; None if it has none."""
    return _CAUSE.get()


def set_cause(cause: Cause) -> None:
    """Give the current task a cause, until it ends."""
    _CAUSE.set(cause)


@contextmanager
def caused_by(cause: Cause | None) -> Iterator[None]:
    """Give what runs inside, and the tasks that it starts, a cause; None takes it away."""
    token = _CAUSE.set(cause)
    try:
        yield
    finally:
        _CAUSE.reset(token)


class CauseFilter(logging.Filter):
    """Gives each line of a log handler the field `cause`: empty, or a blank and the cause."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the field, and pass the line."""
        cause = _CAUSE.get()
        record.cause = "" if cause is None else f" cause=[{cause}]"
        return True
