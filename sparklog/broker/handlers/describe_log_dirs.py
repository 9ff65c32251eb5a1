"""DescribeLogDirs (35): the size of what this broker leads. Its one log dir is the storage.

Sizes are of stored bytes; the storage tells no free space, so that is unknown (-1).
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import NO_THROTTLE
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.protocol.building import Answer

LOG_DIR: Final = "object-storage"
_NO_LAG: Final = 0
_UNKNOWN: Final = -1


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer for the partitions named; none named asks for all."""
    answer = Answer.to(request)
    image = node.metadata.image
    asked = (
        None
        if request.topics is None
        else {(t.topic, number) for t in request.topics for number in t.partitions}
    )
    told: dict[str, list[Any]] = {}
    for where, size in node.replicas.sizes().items():
        name = image.names.get(where.topic_id)
        if name is None or not (asked is None or (name, where.partition) in asked):
            continue
        told.setdefault(name, []).append(
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
            for name, parts in told.items()
        ),
        total_bytes=_UNKNOWN,
        usable_bytes=_UNKNOWN,
        is_cordoned=False,
    )
    return answer.response(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, results=(directory,)
    )
