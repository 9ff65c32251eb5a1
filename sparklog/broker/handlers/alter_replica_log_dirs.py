"""AlterReplicaLogDirs (34): move replicas between directories. A broker here has one: the storage.

Source: KIP-113.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import NO_THROTTLE
from sparklog.broker.handlers.describe_log_dirs import LOG_DIR
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.protocol.building import Answer


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer with a code for every partition: replicas are where they are, or cannot be moved."""
    answer = Answer.to(request)
    image = node.metadata.image
    held = {(image.names.get(w.topic_id), w.partition) for w in node.replicas.sizes()}

    def code_of(path: str, topic: str, number: int) -> ErrorCode:
        if path != LOG_DIR:
            return ErrorCode.log_dir_not_found
        found = (topic, number) in held
        return ErrorCode.none if found else ErrorCode.replica_not_available

    return answer.response(
        throttle_time=NO_THROTTLE,
        results=tuple(
            answer.entity(
                "AlterReplicaLogDirTopicResult",
                topic_name=topic.name,
                partitions=tuple(
                    answer.entity(
                        "AlterReplicaLogDirPartitionResult",
                        partition_index=number,
                        error_code=code_of(directory.path, topic.name, int(number)),
                    )
                    for number in topic.partitions
                ),
            )
            for directory in request.dirs
            for topic in directory.topics
        ),
    )
