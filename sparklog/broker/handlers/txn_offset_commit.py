"""TxnOffsetCommit (28): offsets that count if the transaction commits. Source: KIP-98, 447."""

from __future__ import annotations

from typing import Any

from sparklog.broker.handlers.answering import NO_THROTTLE
from sparklog.broker.handlers.committing import Committing
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.coordinator.effects import ProducerIdentity
from sparklog.coordinator.group_messages import NO_GENERATION, NO_MEMBER, MemberIdentity
from sparklog.coordinator.offset_messages import CommitRequest
from sparklog.protocol.building import Answer


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer with a code for every partition."""
    answer = Answer.to(request)
    committing = Committing(node.metadata.image, request.topics)
    member = MemberIdentity(
        getattr(request, "member_id", NO_MEMBER), getattr(request, "group_instance_id", None)
    )
    await committing.run(
        node.groups,
        CommitRequest(
            request.group_id,
            member,
            int(getattr(request, "generation_id", NO_GENERATION)),
            committing.offsets,
            producer=ProducerIdentity(int(request.producer_id), int(request.producer_epoch)),
        ),
    )
    return answer.response(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            answer.entity(
                "TxnOffsetCommitResponseTopic",
                name=topic.name,
                partitions=tuple(
                    answer.entity(
                        "TxnOffsetCommitResponsePartition", partition_index=number, error_code=code
                    )
                    for number, code in codes
                ),
            )
            for topic, codes in committing.codes()
        ),
    )
