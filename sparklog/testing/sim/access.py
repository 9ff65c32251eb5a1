"""Clients of the simulation that revoke a right of a reader, give it back, and see who obeys.

A broker may answer by ACLs that were revoked a moment ago: it has yet to read the metadata. Once
`BOUND_S` has passed since the revocation was confirmed, no broker may let the reader read, until
the grant is asked for. The time of an answer is the broker's: a fetch may wait for records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from sparklog.broker.runtime.request import RequestContext
from sparklog.core.types import TopicPartition
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request, build_request_part
from sparklog.security.acls import AclOperation, AclPermission, PatternType, ResourceType
from sparklog.testing.sim.clients import BACKOFF_S, ClientSide, SimConsumer
from sparklog.testing.virtual_loop import VirtualLoop

GUARDED_HOST: Final = "10.0.0.9"
"""The address of the reader: ACLs name it."""
BOUND_S: Final = 3.0
"""The longest time for which a broker that runs may use old ACLs. A new controller takes a session
of one second, and looks at the metadata log once a second."""
ACLS_VERSION: Final = 3
DENIED: Final = 29
CONFIGS: Final = (
    ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
    ("allow.everyone.if.no.acl.found", "true"),
)
"""Settings of brokers: who is not denied may do everything."""

Serve = Callable[[Any, RequestContext], Awaitable[Any]]


@dataclass(slots=True)
class AccessLog:
    """When the right was revoked and given back, and how brokers answered the reader."""

    loop: VirtualLoop
    revocations: list[tuple[float, float]] = field(default_factory=list)
    """Each from its confirmation to the request that ended it, in virtual seconds."""
    answers: list[tuple[float, bool]] = field(default_factory=list)
    """When a broker answered, and whether it let the reader read."""

    def observing(self, serve: Serve) -> Serve:
        """Return a handler that records its answers to the reader."""

        async def observed(request: Any, context: RequestContext) -> Any:
            response = await serve(request, context)
            if context.client_host == GUARDED_HOST and request.__api_key__ == Api.FETCH:
                codes = [int(part.error_code) for one in response.responses
                         for part in one.partitions]  # fmt: skip
                self.answers.append((self.loop.time(), DENIED not in codes))
            return response

        return observed

    def faults(self) -> list[str]:
        """Return answers by rights that were revoked more than `BOUND_S` ago."""
        return [
            f"answered at {at_s:.3f} by a right revoked from {revoked_s:.3f} to {granted_s:.3f}"
            for at_s, allowed in self.answers
            for revoked_s, granted_s in self.revocations
            if allowed and revoked_s + BOUND_S < at_s < granted_s
        ]


class AccessChanges:
    """Revokes the right, and gives it back, again and again.

    Each time another pattern denies the topic, since an old deletion may still be on its way.
    """

    def __init__(self, side: ClientSide, log: AccessLog, topic: str) -> None:
        """Change rights on `topic`."""
        self._side = side
        self._log = log
        self._topic = topic
        self._patterns = [(PatternType.LITERAL, topic)]
        self._patterns += [
            (PatternType.PREFIXED, topic[:length]) for length in range(1, len(topic) + 1)
        ]

    async def run(self) -> None:
        """Change rights for ever."""
        entropy, loop = self._side.entropy, self._log.loop
        every = self._entry(PatternType.LITERAL, self._topic, "*", AclOperation.ALL)
        await self._done(Api.CREATE_ACLS, "AclCreation", "creations",
                         {**every, "permission_type": AclPermission.ALLOW})  # fmt: skip
        turn = 0
        while True:
            pattern, name = self._patterns[turn % len(self._patterns)]
            turn += 1
            entry = self._entry(pattern, name, GUARDED_HOST, AclOperation.READ)
            denial = {**entry, "permission_type": AclPermission.DENY}
            await self._done(Api.CREATE_ACLS, "AclCreation", "creations", denial)
            revoked_s = loop.time()
            self._log.revocations.append((revoked_s, inf))
            await asyncio.sleep(BOUND_S * (1.3 + entropy.random()))
            self._log.revocations[-1] = revoked_s, loop.time()
            filters = {
                "resource_type_filter": ResourceType.TOPIC,
                "resource_name_filter": name,
                "pattern_type_filter": pattern,
                "principal_filter": "User:*",
                "host_filter": GUARDED_HOST,
                "operation": AclOperation.READ,
                "permission_type": AclPermission.DENY,
            }
            await self._done(Api.DELETE_ACLS, "DeleteAclsFilter", "filters", filters)
            await asyncio.sleep(BOUND_S * entropy.random())

    def _entry(
        self, pattern: PatternType, name: str, host: str, operation: AclOperation
    ) -> dict[str, Any]:
        return {
            "resource_type": ResourceType.TOPIC,
            "resource_name": name,
            "resource_pattern_type": pattern,
            "principal": "User:*",
            "host": host,
            "operation": operation,
        }

    async def _done(self, api: Api, part: str, field_name: str, values: dict[str, Any]) -> None:
        """Ask until a broker confirms the change."""
        plain = {name: int(v) if isinstance(v, int) else v for name, v in values.items()}
        one = build_request_part(api, ACLS_VERSION, part, **plain)
        request = build_request(api, ACLS_VERSION, **{field_name: (one,)})
        while True:
            answer = await self._side.ask_anybody(request)
            results = answer.results if api == Api.CREATE_ACLS else answer.filter_results
            code = int(results[0].error_code)
            if code == 0:
                return
            self._side.complain("change ACLs", code, results[0].error_message)
            await asyncio.sleep(BACKOFF_S)


class GuardedReader(SimConsumer):
    """Reads from the host whose right is revoked; it goes on after each denial."""

    async def _read(self, partition: TopicPartition) -> None:
        while True:
            leader = self._leaders.get(partition.partition)
            if leader is None:
                self._leaders = await self.side.leaders(self._topic)
                await asyncio.sleep(BACKOFF_S)
                continue
            answer = await self.side.ask(leader, self._request(partition), "guarded")
            found = None if answer is None else answer.responses[0].partitions[0]
            if found is None or int(found.error_code):
                self._leaders.pop(partition.partition, None)
                await asyncio.sleep(2 * BACKOFF_S)
                continue
            # The end, so that the next fetch waits.
            self.positions[partition] = int(found.high_watermark)
