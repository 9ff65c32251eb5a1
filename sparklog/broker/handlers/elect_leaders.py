"""ElectLeaders (43): back to the preferred leaders, or any leader where there is none.

Every broker is a clean leader here, since storage holds what was acknowledged; so the unclean kind
of election only does what the controller does anyway. Source: KIP-183, KIP-460.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import NO_THROTTLE, code_of, message_of
from sparklog.broker.handlers.deciding import decide_each, refusing
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.metadata_access import Decision
from sparklog.broker.request import RequestContext
from sparklog.cluster import election
from sparklog.cluster.image import MetadataImage
from sparklog.cluster.records import NO_LEADER, Record
from sparklog.core.errors import (
    ElectionNotNeeded,
    SparklogError,
    Unavailable,
    UnknownTopicOrPartition,
)
from sparklog.core.types import PartitionId
from sparklog.protocol.building import Answer

PREFERRED = 0


class EligibleLeadersNotAvailable(Unavailable):
    """No live broker may lead the partition: try again when one is there."""

    kafka_code = 83


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Elect for the partitions named; none named asks for all, and tells of those that changed."""
    answer = Answer.to(request)
    image = node.metadata.image
    asks_all = request.topic_partitions is None
    asked = _every(image) if asks_all else _named(request)
    preferred = getattr(request, "election_type", PREFERRED) == PREFERRED
    decisions = {key: _decision(image, key, preferred) for key in asked}
    decided = await decide_each(node.metadata, decisions)
    told: dict[str, list[Any]] = {}
    for topic, number in decisions:
        error: SparklogError | None = decided.refused.get((topic, number))
        if asks_all and isinstance(error, ElectionNotNeeded):
            continue
        told.setdefault(topic, []).append(
            answer.entity(
                "PartitionResult",
                partition_id=number,
                error_code=code_of(error),
                error_message=message_of(error),
            )
        )
    return answer.response(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        replica_election_results=tuple(
            answer.entity("ReplicaElectionResult", topic=topic, partition_result=tuple(results))
            for topic, results in told.items()
        ),
    )


def _every(image: MetadataImage) -> list[tuple[str, int]]:
    return [(t.name, number) for t in image.topics.values() for number in range(t.partitions)]


def _named(request: Any) -> list[tuple[str, int]]:
    return [(t.topic, number) for t in request.topic_partitions for number in t.partitions]


def _decision(image: MetadataImage, key: tuple[str, int], preferred: bool) -> Decision:
    name, number = key
    topic = image.topics.get(name)
    if topic is None:
        return refusing(UnknownTopicOrPartition(f"no such topic. topic={name}"))
    where = PartitionId(topic.topic_id, number)
    return partial(_prefer if preferred else _elect_any, where)


def _prefer(where: PartitionId, image: MetadataImage) -> list[Record]:
    return election.prefer(image, where)


def _elect_any(where: PartitionId, image: MetadataImage) -> list[Record]:
    state = image.partition(where)
    if state is None:
        raise UnknownTopicOrPartition(f"no such partition. partition={where}")
    if state.leader != NO_LEADER:
        raise ElectionNotNeeded(f"it has a leader. partition={where} leader={state.leader}")
    records = election.elect_unled(image, [(where, state)])
    if not records:
        raise EligibleLeadersNotAvailable(f"no broker can lead it now. partition={where}")
    return records
