"""FailedLogins: logins and TLS handshakes that failed, counted by source for the audit topic.

A client that guesses passwords fails a thousand times a second. So the audit topic gets no record
of each: a source has one record for each `GATHER_S`, with a count. A record's key is the principal,
`User:ANONYMOUS`, and its value is one JSON object:

- `version`: 1, and `event`: `FAILED_LOGIN`.
- `time_ms`, `last_time_ms`: the times of the first and of the last failure, in milliseconds since
  the Unix epoch.
- `broker_id`, `listener`: where it failed.
- `principal`: `User:ANONYMOUS`, since no login proved a name.
- `host`: the client's address; `*` for those beyond `SOURCES_MAX`, which share a record.
- `mechanism`: of SASL, or `TLS` for a handshake. It is empty if the client did not come so far.
- `failures`: their number.
- `allowed`: false.
- `reason`: the reason of the last one. It may name the user that the client claimed to be.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from sparklog.broker.runtime.log_limiter import kind_of
from sparklog.core.clock import Clock
from sparklog.security.principal import ANONYMOUS

GATHER_S: Final = 5.0
"""The time for which failures of a source gather."""
SOURCES_MAX: Final = 1000
"""Sources that are counted each for itself in that time."""
OTHER_HOSTS: Final = "*"
REASON_CHARS_MAX: Final = 300
FAILED_LOGIN: Final = "FAILED_LOGIN"
VERSION: Final = 1


class FailedLoginEvent(NamedTuple):
    """The failures of one source in a while; texts are cut already."""

    time_ms: int
    last_time_ms: int
    host: str
    listener: str
    mechanism: str
    failures: int
    reason: str


@dataclass(slots=True)
class _Source:
    first_ms: int
    last_ms: int = 0
    count: int = 0
    reason: str = ""


class FailedLogins:
    """One broker's. The event loop's only."""

    def __init__(self, clock: Clock, done: Callable[[FailedLoginEvent], None]) -> None:
        """Give each source's failures to `done`, once they have gathered."""
        self._clock = clock
        self._done = done
        self._sources: dict[tuple[str, str, str, str], _Source] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return the number of sources whose failures gather."""
        return len(self._sources)

    def add(self, listener: str, mechanism: str, reason: str, host: str) -> None:
        """Count a failure; reasons that differ in values only are of one source."""
        key = (listener, mechanism, kind_of(reason), host)
        if key not in self._sources and len(self._sources) >= SOURCES_MAX:
            key = (listener, mechanism, "", OTHER_HOSTS)
        now_ms = self._clock.now_ms()
        source = self._sources.get(key)
        if source is None:
            source = self._sources[key] = _Source(now_ms)
        source.count += 1
        source.last_ms = now_ms
        source.reason = reason[:REASON_CHARS_MAX]
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHER_S, self.flush)

    def flush(self) -> None:
        """Give what has gathered to `done` now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        sources, self._sources = self._sources, {}
        for (listener, mechanism, _, host), one in sources.items():
            self._done(
                FailedLoginEvent(
                    one.first_ms, one.last_ms, host, listener, mechanism, one.count, one.reason
                )
            )


def encode_failed_login(event: FailedLoginEvent, broker_id: int) -> tuple[bytes, bytes]:
    """Return the key and the value of an event's record."""
    principal = str(ANONYMOUS)
    fields = {
        "version": VERSION,
        "event": FAILED_LOGIN,
        "broker_id": broker_id,
        "principal": principal,
        **event._asdict(),
        "allowed": False,
    }
    return principal.encode(), json.dumps(fields).encode()
