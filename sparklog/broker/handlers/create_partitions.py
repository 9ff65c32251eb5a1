"""CreatePartitions (37)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from sparklog.broker.handlers.answering import NO_THROTTLE, error_fields, named_twice
from sparklog.broker.handlers.deciding import decide_apart, refusing
from sparklog.broker.handlers.leading import until_led
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.cluster import registry
from sparklog.cluster.records import Record
from sparklog.cluster.registry import ExistingTopics
from sparklog.protocol.building import Answer


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Grow every topic that can be; the others have their own errors."""
    answer = Answer.to(request)
    times = Counter(t.name for t in request.topics)
    topics = node.metadata.image.topics
    total = sum(
        max(0, t.count - topics[t.name].partitions) for t in request.topics if t.name in topics
    )
    decisions: dict[str, Callable[[ExistingTopics], list[Record]]] = {
        t.name: partial(_grow, node, t, total)
        if times[t.name] == 1
        else refusing(named_twice("topic", t.name))
        for t in request.topics
    }
    decided = await decide_apart(
        node.metadata, decisions, ExistingTopics, validate_only=request.validate_only
    )
    if not request.validate_only:
        grown = [name for name in decisions if name not in decided.refused]
        await until_led(node, grown, request.timeout)
    return answer.response(
        throttle_time=NO_THROTTLE,
        results=tuple(
            answer.entity(
                "CreatePartitionsTopicResult",
                name=name,
                **error_fields(decided.refused.get(name)),
            )
            for name in decisions
        ),
    )


def _grow(node: HandlerNode, wanted: Any, total: int, existing: ExistingTopics) -> list[Record]:
    registry.check_partitions_created(total)
    assignment = wanted.assignments
    return registry.add_partitions(
        existing.image,
        wanted.name,
        wanted.count,
        assignment=None if assignment is None else [tuple(a.broker_ids) for a in assignment],
        default_replication_factor=node.config.whole("default.replication.factor"),
        existing=existing,
    )
