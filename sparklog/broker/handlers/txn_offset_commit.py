"""TxnOffsetCommit (28): offsets that count if the transaction commits.

Source: KIP-98, KIP-447, KIP-890, KIP-1319.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import NO_THROTTLE
from sparklog.broker.handlers.committing import Committing
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.handlers.transactional import ASKED_MAX
from sparklog.broker.request import RequestContext
from sparklog.coordinator.effects import ProducerIdentity
from sparklog.coordinator.group_messages import NO_GENERATION, NO_MEMBER, MemberIdentity
from sparklog.coordinator.offset_messages import CommitRequest
from sparklog.coordinator.placing import GROUPS_TOPIC
from sparklog.core.errors import CoordinatorLoading
from sparklog.protocol.building import Answer

ADDS_SINCE: Final = 5
"""The first version whose clients leave it to the coordinator to add the offsets' partition."""
EPOCHS_SINCE: Final = 6
"""The first version for epochs of members of the newer protocol, and topic ids (KIP-1319)."""
CAN_ABORT_SINCE: Final = 4
"""The first version whose clients know TRANSACTION_ABORTABLE."""


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer with a code for every partition."""
    answer = Answer.to(request)
    committing = Committing(node.metadata.image, request.topics)
    member = MemberIdentity(
        getattr(request, "member_id", NO_MEMBER), getattr(request, "group_instance_id", None)
    )
    producer = ProducerIdentity(int(request.producer_id), int(request.producer_epoch))
    await committing.run(
        _Enlisted(node, request.transactional_id, producer, answer.version),
        CommitRequest(
            request.group_id,
            member,
            _generation(request),
            committing.offsets,
            producer=producer,
            knows_epochs=answer.version >= EPOCHS_SINCE,
        ),
    )
    return answer.response(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            answer.entity(
                "TxnOffsetCommitResponseTopic",
                name=getattr(topic, "name", None),
                topic_id=getattr(topic, "topic_id", None),
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


def _generation(request: Any) -> int:
    """Return the generation or the member's epoch; its field has a new name since version 6."""
    epoch = getattr(request, "generation_id_or_member_epoch", NO_GENERATION)
    return int(getattr(request, "generation_id", epoch))


class _Enlisted:
    """Commits, once the transaction has the partition of the group's offsets. Source: KIP-890."""

    def __init__(
        self, node: HandlerNode, transactional_id: str, producer: ProducerIdentity, version: int
    ) -> None:
        """Commit in the transaction of a producer, whose client speaks `version`."""
        self._node = node
        self._transactional_id = transactional_id
        self._producer = producer
        self._version = version

    async def commit(self, asked: CommitRequest) -> tuple[ErrorCode, ...]:
        """Commit offsets; return a code for each.

        Raises:
            SparklogError: nothing was committed.
        """
        groups, enlisting = self._node.groups, self._node.transactions.enlisting
        adds = self._version >= ADDS_SINCE
        if not (adds or enlisting.verifies):
            return await groups.commit(asked)
        partition = groups.partition_of(asked.group_id)
        where = GROUPS_TOPIC, partition
        verification = None
        for _ in range(ASKED_MAX):
            verification = groups.runtime.begin_verification(partition, self._producer)
            if verification is None:
                break
            codes = await enlisting.enlist(
                self._transactional_id, self._producer, (where,), adds=adds
            )
            refusal = enlisting.refusal(
                codes[where],
                adds=adds,
                can_abort=self._version >= CAN_ABORT_SINCE,
                busy=CoordinatorLoading,
            )
            if refusal is not None:
                raise refusal
            if not verification.is_over:
                break
        return await groups.commit(asked, verification)
