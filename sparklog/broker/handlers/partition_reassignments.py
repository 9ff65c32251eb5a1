"""AlterPartitionReassignments (45), ListPartitionReassignments (46). Source: KIP-455."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import NO_THROTTLE, code_of, message_of, named_twice
from sparklog.broker.handlers.deciding import decide_each, refusing
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.handlers.partitions import partition_of, topic_of
from sparklog.broker.metadata_access import Decision
from sparklog.broker.request import RequestContext
from sparklog.cluster import reassignment
from sparklog.cluster.image import MetadataImage
from sparklog.cluster.records import Record
from sparklog.core.errors import InvalidReplicaAssignment, SparklogError
from sparklog.core.types import PartitionId
from sparklog.protocol.building import Answer

Key = tuple[str, int]


async def alter(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Begin to move replicas, or cancel where no replicas are given."""
    answer = Answer.to(request)
    image = node.metadata.image
    may_change = getattr(request, "allow_replication_factor_change", True)
    decisions: dict[Key, Decision] = {}
    for topic in request.topics:
        for wanted in topic.partitions:
            key = (topic.name, wanted.partition_index)
            where = partition_of(topic_of(image, topic), wanted.partition_index)
            if key in decisions:
                decisions[key] = refusing(named_twice("partition", f"{key[0]}-{key[1]}"))
            elif isinstance(where, SparklogError):
                decisions[key] = refusing(where)
            else:
                decisions[key] = partial(_moved, where, wanted.replicas, may_change)
    decided = await decide_each(node.metadata, decisions)
    return answer.response(
        throttle_time=NO_THROTTLE,
        allow_replication_factor_change=may_change,
        error_code=ErrorCode.none,
        error_message=None,
        responses=_results(answer, decisions, decided.refused),
    )


def _results(
    answer: Answer, decisions: Mapping[Key, Decision], refused: Mapping[Key, SparklogError]
) -> tuple[Any, ...]:
    told: dict[str, list[Any]] = {}
    for topic, number in decisions:
        error = refused.get((topic, number))
        told.setdefault(topic, []).append(
            answer.entity(
                "ReassignablePartitionResponse",
                partition_index=number,
                error_code=code_of(error),
                error_message=message_of(error),
            )
        )
    return tuple(
        answer.entity("ReassignableTopicResponse", name=name, partitions=tuple(results))
        for name, results in told.items()
    )


def _moved(
    where: PartitionId,
    replicas: tuple[int, ...] | None,
    may_change_factor: bool,
    image: MetadataImage,
) -> list[Record]:
    if replicas is None:
        return reassignment.cancel(image, where)
    state = image.partition(where)
    if state is not None and not may_change_factor:
        settled = len(state.replicas) - len(state.adding_replicas)
        if len(replicas) != settled:
            raise InvalidReplicaAssignment(
                "the request does not allow another number of replicas. "
                f"partition={where} replicas={settled} wanted={len(replicas)}"
            )
    return reassignment.reassign(image, where, replicas)


async def list_ongoing(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer with the partitions that move; none named asks for all."""
    answer = Answer.to(request)
    image = node.metadata.image
    asked = (
        None
        if request.topics is None
        else {(t.name, number) for t in request.topics for number in t.partition_indexes}
    )
    told: dict[str, list[Any]] = {}
    for move in reassignment.moves(image):
        name = image.names[move.where.topic_id]
        if asked is None or (name, move.where.partition) in asked:
            told.setdefault(name, []).append(
                answer.entity(
                    "OngoingPartitionReassignment",
                    partition_index=move.where.partition,
                    replicas=move.replicas,
                    adding_replicas=move.adding_replicas,
                    removing_replicas=move.removing_replicas,
                )
            )
    return answer.response(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        topics=tuple(
            answer.entity("OngoingTopicReassignment", name=name, partitions=tuple(moves))
            for name, moves in told.items()
        ),
    )
