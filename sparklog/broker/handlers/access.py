"""The rights of the client that sent a request, and Kafka's audit log of each decision.

The audit log is the logger `kafka.authorizer.logger`, in Kafka's words. A denied operation that the
client asked for is logged at INFO, an allowed one at DEBUG. A check that only filters a listing is
logged at TRACE, which is below DEBUG. A client chooses names and their number, so the lines of one
request are limited, and so is the name in a line. Source: StandardAuthorizerData of Kafka 4.4.
"""

from __future__ import annotations

import logging
from typing import Final

from sparklog.broker.node.node import BrokerNode
from sparklog.broker.runtime.audit_buffer import TYPE_NAMES, AuditBuffer
from sparklog.broker.runtime.metrics import BrokerMetrics
from sparklog.broker.runtime.request import RequestContext
from sparklog.core.terminal_text import printable
from sparklog.protocol.api_keys import Api
from sparklog.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from sparklog.security.authorizer import Authorizer, Decision

TRACE: Final = 5
LINES_MAX: Final = 1000
"""Lines of one request; the last one says that there are more."""
NAME_CHARS_MAX: Final = 300
"""Characters of a name that a line shows. A topic's name has at most 249."""
audit: Final = logging.getLogger("kafka.authorizer.logger")


class Access:
    """Decides about the operations of one request. It uses the ACLs that are in force now."""

    __slots__ = (
        "_api",
        "_authorizer",
        "_buffer",
        "_context",
        "_host",
        "_lines",
        "_metrics",
        "_principal",
    )

    def __init__(
        self,
        authorizer: Authorizer,
        context: RequestContext,
        api: int,
        metrics: BrokerMetrics,
        buffer: AuditBuffer,
    ) -> None:
        """Decide for the sender of a request; `metrics` counts, and `buffer` records decisions."""
        self._authorizer = authorizer
        self._buffer = buffer
        self._context = context
        self._metrics = metrics
        self._principal = context.principal
        self._host = context.client_host
        self._api = api
        self._lines = 0

    def may(
        self,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        references: int = 1,
        filters: bool = False,
    ) -> bool:
        """Return whether the client may do an operation, and log the decision.

        Args:
            operation: the operation.
            resource_type: the type of the resource.
            name: the name of the resource.
            references: the number of times that the request names the resource.
            filters: the check shortens a listing, or another check decides if this one denies.
        """
        decision = self._authorizer.authorize(
            self._principal, self._host, operation, resource_type, name
        )
        self._metrics.authorized(allowed=decision.allowed)
        level = logging.DEBUG if decision.allowed else TRACE if filters else logging.INFO
        if audit.isEnabledFor(level):
            self._log(level, decision, operation, resource_type, name, references)
        if level >= self._buffer.level:
            self._buffer.add(
                self._context, self._api, decision, operation, resource_type, name, references
            )
        return decision.allowed

    def allows(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Return the same without a line in the audit log. Cost: one look-up in a dictionary."""
        decision = self._authorizer.authorize(
            self._principal, self._host, operation, resource_type, name
        )
        self._metrics.authorized(allowed=decision.allowed)
        return decision.allowed

    def may_on_cluster(self, operation: AclOperation, *, filters: bool = False) -> bool:
        """Return whether the client may do an operation on the cluster."""
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME, filters=filters)

    def may_write_some_topic(self) -> bool:
        """Return whether the client may write to at least one topic, which may not exist yet."""
        return self._authorizer.authorize_by_resource_type(
            self._principal, self._host, AclOperation.WRITE, ResourceType.TOPIC
        )

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """Return the operations that the client may do as bits: bit 3 is `READ`, and so on."""
        return self._authorizer.authorized_operations(
            self._principal, self._host, resource_type, name
        )

    def _log(
        self,
        level: int,
        decision: Decision,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        references: int,
    ) -> None:
        self._lines += 1
        if self._lines >= LINES_MAX:
            if self._lines == LINES_MAX:
                self._write(level, f"Principal = {self._principal}: more lines are left out")
            return
        shown = name if len(name) <= NAME_CHARS_MAX else f"{name[:NAME_CHARS_MAX]}…"
        line = (
            f"Principal = {self._principal} is {'Allowed' if decision.allowed else 'Denied'} "
            f"operation = {operation.name} from host = {self._host} "
            f"on resource = {TYPE_NAMES[resource_type]}:LITERAL:{shown} "
            f"for request = {Api(self._api).label} with resourceRefCount = {references} "
            f"based on rule {decision.rule}"
        )
        self._write(level, line)

    def _write(self, level: int, line: str) -> None:
        audit.log(level, "%s", printable(line).replace("\n", r"\x0a"))


def access_of(node: BrokerNode, context: RequestContext, api: int) -> Access | None:
    """Return the rights of a client; None for a broker, and while brokers have no authorizer."""
    authorizer = node.authorization.current(node.metadata.image)
    if authorizer is None or node.is_broker(context):
        return None
    return Access(authorizer, context, api, node.metrics, node.audit)


def audits_allowed(buffer: AuditBuffer) -> bool:
    """Return whether the audit log or the audit topic takes allowed operations."""
    return audit.isEnabledFor(logging.DEBUG) or buffer.level <= logging.DEBUG
