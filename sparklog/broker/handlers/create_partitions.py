"""CreatePartitions (37)."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from sparklog.broker.handlers.answering import NO_THROTTLE, error_fields, named_twice
from sparklog.broker.handlers.deciding import decide_each, refusing
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.metadata_access import Decision
from sparklog.broker.request import RequestContext
from sparklog.cluster import registry
from sparklog.cluster.image import MetadataImage
from sparklog.cluster.records import Record
from sparklog.protocol.building import Answer


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Grow every topic that can be; the others have their own errors."""
    answer = Answer.to(request)
    times = Counter(t.name for t in request.topics)
    decisions: dict[str, Decision] = {
        t.name: partial(_grow, node, t)
        if times[t.name] == 1
        else refusing(named_twice("topic", t.name))
        for t in request.topics
    }
    decided = await decide_each(node.metadata, decisions, validate_only=request.validate_only)
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


def _grow(node: HandlerNode, wanted: Any, image: MetadataImage) -> list[Record]:
    assignment = wanted.assignments
    return registry.add_partitions(
        image,
        wanted.name,
        wanted.count,
        assignment=None if assignment is None else [tuple(a.broker_ids) for a in assignment],
        default_replication_factor=node.config.whole("default.replication.factor"),
    )
