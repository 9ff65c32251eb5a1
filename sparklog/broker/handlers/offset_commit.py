"""OffsetCommit (8): how far a group has read. Also for consumers that are no members.

Source: KIP-98; KIP-848 (member epochs from version 9), KIP-1102 (topic ids from version 10).
"""

from __future__ import annotations

from typing import Any, Final

from sparklog.broker.handlers.answering import NO_THROTTLE
from sparklog.broker.handlers.committing import Committing
from sparklog.broker.handlers.groups import member_of, milliseconds
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.coordinator.offset_messages import NO_RETENTION, CommitRequest
from sparklog.protocol.building import Answer

EPOCHS_SINCE: Final = 9
"""The first version for members of groups of the newer protocol."""


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer with a code for every partition."""
    answer = Answer.to(request)
    committing = Committing(node.metadata.image, request.topics)
    retention = getattr(request, "retention_time", None)
    await committing.run(
        node.groups,
        CommitRequest(
            request.group_id,
            member_of(request),
            int(getattr(request, "generation_id_or_member_epoch", -1)),
            committing.offsets,
            NO_RETENTION if retention is None else milliseconds(retention),
            knows_epochs=answer.version >= EPOCHS_SINCE,
        ),
    )
    return answer.response(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            answer.entity(
                "OffsetCommitResponseTopic",
                name=getattr(topic, "name", None),
                topic_id=getattr(topic, "topic_id", None),
                partitions=tuple(
                    answer.entity(
                        "OffsetCommitResponsePartition", partition_index=number, error_code=code
                    )
                    for number, code in codes
                ),
            )
            for topic, codes in committing.codes()
        ),
    )
