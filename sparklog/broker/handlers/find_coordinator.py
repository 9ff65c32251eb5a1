"""FindCoordinator (10): which broker a group, or a transactional id, belongs to.

The first one who asks makes the internal topic. Who asks while a leader is elected is answered when
there is one: told that there is none, librdkafka would ask again after half a second, and a new
leader is there after a tenth. Source: KIP-98, KIP-699 (several keys).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import NO_THROTTLE, code_of, message_of
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.internal_topics import InternalTopic
from sparklog.broker.request import RequestContext
from sparklog.cluster.image import Broker, Topic
from sparklog.cluster.records import NO_LEADER
from sparklog.coordinator.placing import GROUPS_TOPIC, TRANSACTIONS_TOPIC, partition_for
from sparklog.core.errors import (
    CoordinatorNotAvailable,
    InvalidRequest,
    SparklogError,
)
from sparklog.protocol.building import Answer

TOPICS: Final = {0: GROUPS_TOPIC, 1: TRANSACTIONS_TOPIC}
"""The topic that holds the state of each kind of key."""
MANY_SINCE: Final = 4
"""The first version with several keys."""
GROUP: Final = 0
ELECTED_WITHIN_S: Final = 0.3
"""Time within which a dead leader has been replaced, where storage answers quickly. What its client
asked on the same connection waits as well, so it is not longer."""
Found = dict[str, Broker | SparklogError]
"""Who coordinates each key, or why nobody does."""


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer with the broker that coordinates each key."""
    answer = Answer.to(request)
    many = answer.version >= MANY_SINCE
    keys = request.coordinator_keys if many else (request.key,)
    kind = int(getattr(request, "key_type", GROUP))
    try:
        topic = await _topic(node, kind)
    except SparklogError as error:
        found: Found = dict.fromkeys(keys, error)
    else:
        found = await _coordinators(node, topic, keys)
    if many:
        return answer.response(
            throttle_time=NO_THROTTLE,
            coordinators=tuple(
                answer.entity("Coordinator", key=key, error_message=_message(who), **_place(who))
                for key, who in found.items()
            ),
        )
    who = found[request.key]
    return answer.response(throttle_time=NO_THROTTLE, error_message=_message(who), **_place(who))


async def _topic(node: HandlerNode, kind: int) -> Topic:
    name = TOPICS.get(kind)
    if name is None:
        raise InvalidRequest(f"no such kind of coordinator is known here. key_type={kind}")
    return await InternalTopic.of(name, node.config).ensure(node.metadata, node.environment)


async def _coordinators(node: HandlerNode, topic: Topic, keys: Sequence[str]) -> Found:
    """Return who coordinates each key, after the news of a death and for a while of an election."""

    def look() -> Found:
        return {key: _coordinator(node, topic, key) for key in keys}

    found = look()
    if any(isinstance(who, Broker) and who.broker_id != node.broker_id for who in found.values()):
        await node.sight.hear()
        found = look()
    with suppress(TimeoutError):
        async with asyncio.timeout(ELECTED_WITHIN_S):
            while any(isinstance(who, SparklogError) for who in found.values()):
                await node.metadata.beyond(node.metadata.image.end_offset)
                found = look()
    return found


def _coordinator(node: HandlerNode, topic: Topic, key: str) -> Broker | SparklogError:
    image = node.sight.for_clients(node.metadata.image)
    topic = image.topics.get(topic.name, topic)
    partition = partition_for(key, topic.partitions)
    leader = topic.partition_states[partition].leader
    broker = None if leader == NO_LEADER else image.brokers.get(leader)
    if broker is None or broker.fenced:
        return CoordinatorNotAvailable(
            "nobody leads the coordinator's partition now; try again. "
            f"topic={topic.name} partition={partition}"
        )
    return broker


def _place(who: Broker | SparklogError) -> dict[str, Any]:
    if isinstance(who, SparklogError):
        return {"error_code": code_of(who), "node_id": -1, "host": "", "port": -1}
    return {
        "error_code": ErrorCode.none,
        "node_id": who.broker_id,
        "host": who.host,
        "port": who.port,
    }


def _message(who: Broker | SparklogError) -> str | None:
    return message_of(who) if isinstance(who, SparklogError) else None
