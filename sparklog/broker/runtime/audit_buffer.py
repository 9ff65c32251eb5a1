"""Audit buffer: decisions of the authorizer, and failed logins, that wait for the audit topic.

The request path adds an event and goes on. It never waits for the topic. The buffer is bounded. It
counts the events that do not fit, in a metric and in a line of the log.

An event becomes a record. Its key is the principal, and its value is one JSON object:

- `version`: 1, and `event`: `ACCESS`.
- `time_ms`: the time of the decision, in milliseconds since the Unix epoch.
- `broker_id`: the broker that decided.
- `principal`: `User:alice`, for example.
- `host`, `listener`, `client_id`: the client's address, listener and client id. An id may be null.
- `request`: Kafka's name of the API, such as `Produce`.
- `operation`: `WRITE`, for example.
- `resource_type`, `pattern_type`, `resource_name`: `Topic`, `LITERAL` and a name, for example.
- `references`: the number of times that the request names the resource.
- `allowed`: true or false.
- `rule`: the ACL or the rule behind the decision.

Readers ignore fields that they do not know. A client chooses most texts, so each has at most
`TEXT_CHARS_MAX` characters, the rule `RULE_CHARS_MAX`. `failed_logins.py` has the fields of failed
logins.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from typing import Final, NamedTuple

from sparklog.broker.runtime.failed_logins import (
    FailedLoginEvent,
    FailedLogins,
    encode_failed_login,
)
from sparklog.broker.runtime.log_limiter import RateLimitedLog
from sparklog.broker.runtime.metrics import BrokerMetrics
from sparklog.broker.runtime.request import RequestContext
from sparklog.core.clock import Clock
from sparklog.core.config.broker import BrokerConfig
from sparklog.core.errors import InvalidConfig
from sparklog.protocol.api_keys import Api
from sparklog.security.acls import AclOperation, ResourceType
from sparklog.security.authorizer import Decision

logger = logging.getLogger(__name__)

EVENTS_MAX: Final = 10_000
"""Events that wait; with the texts of usual requests some 5 MiB."""
TEXT_CHARS_MAX: Final = 300
RULE_CHARS_MAX: Final = 1000
SCHEMA_VERSION: Final = 1
ACCESS: Final = "ACCESS"
OFF: Final = logging.CRITICAL + 1
LEVELS: Final = {"OFF": OFF, "INFO": logging.INFO, "DEBUG": logging.DEBUG}
"""Levels of Kafka's authorizer logger: INFO for denied operations, DEBUG for allowed ones too.
Failed logins are denied."""
TYPE_NAMES: Final = {
    one: "".join(word.capitalize() for word in one.name.split("_")) for one in ResourceType
}
"""Kafka's names of resource types: `Topic`, `TransactionalId` and so on."""


class AuditEvent(NamedTuple):
    """One decision; texts are cut already."""

    time_ms: int
    principal: str
    host: str
    listener: str
    client_id: str | None
    api: int
    operation: AclOperation
    resource_type: ResourceType
    resource_name: str
    references: int
    allowed: bool
    rule: str


class AuditBuffer:
    """One broker's. The event loop's only."""

    def __init__(self, config: BrokerConfig, clock: Clock, metrics: BrokerMetrics) -> None:
        """Begin empty.

        Raises:
            InvalidConfig: an audit without an authorizer has nothing to record.
        """
        name = config.text("sparklog.audit.level")
        self.level = LEVELS[name]
        """Decisions of this level and of higher ones are recorded; `OFF` is above all."""
        if self.level != OFF and not config.text("authorizer.class.name"):
            raise InvalidConfig(
                "an audit records decisions of the authorizer: set authorizer.class.name, or "
                f"sparklog.audit.level=OFF. sparklog.audit.level={name}"
            )
        self._clock = clock
        self._metrics = metrics
        self._events: deque[AuditEvent | FailedLoginEvent] = deque()
        self._failed_logins = FailedLogins(clock, self._append)
        self._arrived = asyncio.Event()
        self._lost = RateLimitedLog()

    def __len__(self) -> int:
        """Return the number of events that wait, and of sources whose failed logins gather."""
        return len(self._events) + len(self._failed_logins)

    def add(
        self,
        client: RequestContext,
        api: int,
        decision: Decision,
        operation: AclOperation,
        resource_type: ResourceType,
        resource_name: str,
        references: int,
    ) -> None:
        """Record a decision, or count it as lost if too many wait."""
        client_id = client.client_id
        self._append(
            AuditEvent(
                self._clock.now_ms(),
                str(client.principal)[:TEXT_CHARS_MAX],
                client.client_host,
                client.listener,
                None if client_id is None else client_id[:TEXT_CHARS_MAX],
                api,
                operation,
                resource_type,
                resource_name[:TEXT_CHARS_MAX],
                references,
                decision.allowed,
                decision.rule[:RULE_CHARS_MAX],
            )
        )

    def failed_login(self, listener: str, mechanism: str, reason: str, host: str) -> None:
        """Count a failed login or TLS handshake of a client's address."""
        if self.level <= logging.INFO:
            self._failed_logins.add(listener, mechanism, reason, host)

    def flush_logins(self) -> None:
        """Record the failed logins that gather, at the end of a broker."""
        self._failed_logins.flush()

    def _append(self, event: AuditEvent | FailedLoginEvent) -> None:
        if len(self._events) >= EVENTS_MAX:
            self.lose(1, "the buffer is full")
            return
        self._events.append(event)
        self._arrived.set()

    def lose(self, count: int, why: str) -> None:
        """Count records that never reach the topic, and log that."""
        self._metrics.audit_lost(count)
        lost = self._metrics.audit_records_lost
        self._lost.warn(logger, "audit records were lost: %s lost_so_far=%d", why, lost)

    async def wait(self) -> None:
        """Wait until an event waits."""
        while not self._events:
            self._arrived.clear()
            await self._arrived.wait()

    def take(self, most: int) -> list[AuditEvent | FailedLoginEvent]:
        """Return up to `most` events, the oldest first. The buffer forgets them."""
        return [self._events.popleft() for _ in range(min(most, len(self._events)))]


def encode_event(event: AuditEvent | FailedLoginEvent, broker_id: int) -> tuple[bytes, bytes]:
    """Return the key and the value of an event's record."""
    if isinstance(event, FailedLoginEvent):
        return encode_failed_login(event, broker_id)
    fields = {
        "version": SCHEMA_VERSION,
        "event": ACCESS,
        "time_ms": event.time_ms,
        "broker_id": broker_id,
        "principal": event.principal,
        "host": event.host,
        "listener": event.listener,
        "client_id": event.client_id,
        "request": Api(event.api).label,
        "operation": event.operation.name,
        "resource_type": TYPE_NAMES[event.resource_type],
        "pattern_type": "LITERAL",
        "resource_name": event.resource_name,
        "references": event.references,
        "allowed": event.allowed,
        "rule": event.rule,
    }
    return event.principal.encode(errors="replace"), json.dumps(fields).encode()
