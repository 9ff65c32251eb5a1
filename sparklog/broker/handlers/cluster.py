"""ElectLeaders (43): elects preferred leaders, or any leader for partitions without one.

Every broker is a clean leader here, because storage holds all acknowledged records. So an unclean
election does only what the controller does anyway. Source: KIP-183, KIP-460.

AlterPartitionReassignments (45), ListPartitionReassignments (46). Source: KIP-455.

DescribeLogDirs (35): the sizes of the partitions that this broker leads. Its one log dir is the
storage.

Sizes count stored bytes. The storage does not report its free space, so that is unknown (-1).

BrokerHeartbeat (63): brokers send it to the controller. Source: KIP-631.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.brokers_only import check_broker
from sparklog.broker.handlers.request_parts import decide_each, partition_of, refusing, topic_of
from sparklog.broker.handlers.responses import NO_THROTTLE, code_of, message_of, named_twice
from sparklog.broker.node.node import BrokerNode
from sparklog.broker.runtime.metadata_access import Decision
from sparklog.broker.runtime.request import RequestContext
from sparklog.cluster.controller import election, reassignment
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import NO_LEADER, Record
from sparklog.core.errors import (
    ClusterAuthorizationFailed,
    ElectionNotNeeded,
    InvalidReplicaAssignment,
    SparklogError,
    Unavailable,
    UnknownTopicOrPartition,
)
from sparklog.core.types import PartitionId
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import ResponseBuilder

PREFERRED = 0


class EligibleLeadersNotAvailable(Unavailable):
    """No live broker may lead the partition: try again when one is live."""

    kafka_code = 83


async def elect_leaders(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Elect leaders for the named partitions, or for all if the request names none.

    For all, the response leaves out the partitions that need no election.
    """
    answer = ResponseBuilder.to(request)
    image = node.metadata.image
    asks_all = request.topic_partitions is None
    asked = _every(image) if asks_all else _named(request)
    preferred = getattr(request, "election_type", PREFERRED) == PREFERRED
    decisions = {key: _decision(image, key, preferred) for key in asked}
    decided = await decide_each(node.metadata, decisions)
    by_topic: dict[str, list[Any]] = {}
    for topic, number in decisions:
        error: SparklogError | None = decided.refused.get((topic, number))
        if asks_all and isinstance(error, ElectionNotNeeded):
            continue
        by_topic.setdefault(topic, []).append(
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
            for topic, results in by_topic.items()
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


Key = tuple[str, int]


async def alter(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Begin to move replicas; cancel the move of a partition without given replicas."""
    answer = ResponseBuilder.to(request)
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
    answer: ResponseBuilder, decisions: Mapping[Key, Decision], refused: Mapping[Key, SparklogError]
) -> tuple[Any, ...]:
    by_topic: dict[str, list[Any]] = {}
    for topic, number in decisions:
        error = refused.get((topic, number))
        by_topic.setdefault(topic, []).append(
            answer.entity(
                "ReassignablePartitionResponse",
                partition_index=number,
                error_code=code_of(error),
                error_message=message_of(error),
            )
        )
    return tuple(
        answer.entity("ReassignableTopicResponse", name=name, partitions=tuple(results))
        for name, results in by_topic.items()
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


async def list_ongoing(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return the reassignments in progress, of the named partitions or of all."""
    answer = ResponseBuilder.to(request)
    image = node.metadata.image
    asked = (
        None
        if request.topics is None
        else {(t.name, number) for t in request.topics for number in t.partition_indexes}
    )
    by_topic: dict[str, list[Any]] = {}
    for move in reassignment.moves(image):
        name = image.names[move.where.topic_id]
        if asked is None or (name, move.where.partition) in asked:
            by_topic.setdefault(name, []).append(
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
            for name, moves in by_topic.items()
        ),
    )


LOG_DIR: Final = "object-storage"
_NO_LAG: Final = 0
_UNKNOWN: Final = -1


async def describe_log_dirs(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return the sizes of the named partitions, or of all."""
    answer = ResponseBuilder.to(request)
    image = node.metadata.image
    asked = (
        None
        if request.topics is None
        else {(t.topic, number) for t in request.topics for number in t.partitions}
    )
    by_topic: dict[str, list[Any]] = {}
    for where, size in node.replicas.sizes().items():
        name = image.names.get(where.topic_id)
        if name is None or not (asked is None or (name, where.partition) in asked):
            continue
        by_topic.setdefault(name, []).append(
            answer.entity(
                "DescribeLogDirsPartition",
                partition_index=where.partition,
                partition_size=size,
                offset_lag=_NO_LAG,
                is_future_key=False,
            )
        )
    directory = answer.entity(
        "DescribeLogDirsResult",
        error_code=ErrorCode.none,
        log_dir=LOG_DIR,
        topics=tuple(
            answer.entity("DescribeLogDirsTopic", name=name, partitions=tuple(parts))
            for name, parts in by_topic.items()
        ),
        total_bytes=_UNKNOWN,
        usable_bytes=_UNKNOWN,
        is_cordoned=False,
    )
    return answer.response(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, results=(directory,)
    )


async def broker_heartbeat(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return the controller's response, or NOT_CONTROLLER if this broker is not the controller."""
    try:
        check_broker(node, context, Api.BROKER_HEARTBEAT.label)
    except ClusterAuthorizationFailed as refused:
        return _refused(request, code_of(refused))
    answer = await node.broker_heartbeat(request)
    if answer is None:
        return _refused(request, ErrorCode.not_controller)
    return ResponseBuilder.to(request).response(
        throttle_time=NO_THROTTLE,
        error_code=answer.error_code,
        is_caught_up=answer.is_caught_up,
        is_fenced=answer.is_fenced,
        should_shut_down=answer.should_shut_down,
    )


def _refused(request: Any, code: ErrorCode) -> Any:
    return ResponseBuilder.to(request).response(
        throttle_time=NO_THROTTLE,
        error_code=code,
        is_caught_up=False,
        is_fenced=False,
        should_shut_down=False,
    )
