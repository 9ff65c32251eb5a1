"""Fetch (1): read batches, for consumers and for followers.

Every fetch is a full one: a client that asks for a session is told there is none (session id 0),
and names its partitions each time. Source: KIP-74, KIP-227, KIP-320, KIP-516.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.fetching import FetchAt, Fetched, FetchSpec
from sparklog.broker.handlers.answering import NO_THROTTLE, code_of, leader_hints, named_twice
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.handlers.partitions import partition_of, topic_of
from sparklog.broker.request import RequestContext
from sparklog.cluster.image import MetadataImage
from sparklog.core.errors import Fenced, NotServing, SparklogError
from sparklog.core.types import PartitionId
from sparklog.protocol.building import Answer

MILLISECOND: Final = timedelta(milliseconds=1)
NO_SESSION: Final = 0
CONSUMER: Final = -1
LEADER_HINTS_SINCE: Final = 16
DIVERGENCE_SINCE: Final = 12
_UNKNOWN: Final = -1


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Read what there is, or wait for it; every partition has its own error."""
    answer = Answer.to(request)
    if getattr(request, "session_id", NO_SESSION) != NO_SESSION:
        return answer.response(
            throttle_time=NO_THROTTLE,
            error_code=ErrorCode.fetch_session_id_not_found,
            session_id=NO_SESSION,
            responses=(),
        )
    image = node.metadata.image
    asked: dict[PartitionId, FetchAt] = {}
    places: list[list[PartitionId | SparklogError]] = []
    for topic_asked in request.topics:
        topic = topic_of(image, topic_asked)
        found = []
        for part in topic_asked.partitions:
            where = partition_of(topic, part.partition)
            if isinstance(where, PartitionId) and where in asked:
                where = named_twice("partition", str(where))
            elif isinstance(where, PartitionId):
                asked[where] = _at(part)
            found.append(where)
        places.append(found)
    spec = _spec(node, request, asked)
    fetched = await node.replicas.fetch(spec) if asked else {}
    return _response(answer, node.metadata.image, request, places, fetched)


def _spec(node: HandlerNode, request: Any, asked: dict[PartitionId, FetchAt]) -> FetchSpec:
    replica = getattr(request, "replica_state", None)
    return FetchSpec(
        replica_id=request.replica_id if replica is None else replica.replica_id,
        replica_epoch=_UNKNOWN if replica is None else replica.replica_epoch,
        max_wait_ms=max(0, request.max_wait // MILLISECOND),
        min_bytes=max(0, request.min_bytes),
        max_bytes=min(max(0, request.max_bytes), node.config.whole("fetch.max.bytes")),
        isolation=request.isolation_level,
        partitions=asked,
    )


def _at(part: Any) -> FetchAt:
    return FetchAt(
        offset=part.fetch_offset,
        max_bytes=max(0, part.partition_max_bytes),
        current_leader_epoch=getattr(part, "current_leader_epoch", _UNKNOWN),
        last_fetched_epoch=getattr(part, "last_fetched_epoch", _UNKNOWN),
    )


def _response(
    answer: Answer,
    image: MetadataImage,
    request: Any,
    places: list[list[PartitionId | SparklogError]],
    fetched: Any,
) -> Any:
    leaders: set[int] = set()
    responses = []
    for asked, found in zip(request.topics, places, strict=True):
        parts = []
        for part, where in zip(asked.partitions, found, strict=True):
            outcome = where if isinstance(where, SparklogError) else fetched[where]
            if isinstance(outcome, Fetched):
                parts.append(_read(answer, part.partition, outcome))
            else:
                hint = _hint(answer, image, where, outcome, leaders)
                parts.append(_failed(answer, part.partition, outcome, hint))
        responses.append(
            answer.entity(
                "FetchableTopicResponse",
                topic=getattr(asked, "topic", None),
                topic_id=getattr(asked, "topic_id", None),
                partitions=tuple(parts),
            )
        )
    endpoints = leader_hints(answer, "NodeEndpoint", image, leaders) if leaders else ()
    return answer.response(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        session_id=NO_SESSION,
        responses=tuple(responses),
        **({"node_endpoints": endpoints} if endpoints else {}),
    )


def _read(answer: Answer, number: int, fetched: Fetched) -> Any:
    more: dict[str, Any] = {}
    if fetched.diverging is not None and answer.version >= DIVERGENCE_SINCE:
        more["diverging_epoch"] = answer.entity(
            "EpochEndOffset",
            epoch=fetched.diverging.leader_epoch,
            end_offset=fetched.diverging.end_offset,
        )
    aborted = fetched.aborted
    batches = fetched.batches
    return answer.entity(
        "PartitionData",
        partition_index=number,
        error_code=ErrorCode.none,
        high_watermark=fetched.high_watermark,
        last_stable_offset=fetched.last_stable_offset,
        log_start_offset=fetched.log_start_offset,
        aborted_transactions=None
        if aborted is None
        else tuple(
            answer.entity("AbortedTransaction", producer_id=producer_id, first_offset=offset)
            for producer_id, offset in aborted
        ),
        records=batches[0] if len(batches) == 1 else b"".join(batches),
        **more,
    )


def _failed(answer: Answer, number: int, error: SparklogError, hint: dict[str, Any]) -> Any:
    return answer.entity(
        "PartitionData",
        partition_index=number,
        error_code=code_of(error),
        high_watermark=_UNKNOWN,
        aborted_transactions=None,
        records=b"",
        **hint,
    )


def _hint(
    answer: Answer,
    image: MetadataImage,
    where: PartitionId | SparklogError,
    error: SparklogError,
    leaders: set[int],
) -> dict[str, Any]:
    """Say who leads a partition that is led elsewhere. Source: KIP-951."""
    if answer.version < LEADER_HINTS_SINCE or not isinstance(where, PartitionId):
        return {}
    state = image.partition(where)
    if state is None or not isinstance(error, NotServing | Fenced):
        return {}
    leaders.add(state.leader)
    return {
        "current_leader": answer.entity(
            "LeaderIdAndEpoch", leader_id=state.leader, leader_epoch=state.leader_epoch
        )
    }
