"""InitProducerId (22): an id and an epoch for an idempotent or transactional producer.

Source: KIP-98, KIP-360 (a producer continues after an error), KIP-588 (PRODUCER_FENCED).

AddPartitionsToTxn (24): adds partitions to a transaction.

Up to version 3 a producer asks; all its partitions are added, or none. From version 4 on the
leaders of partitions ask, for several producers at once. They may only verify that the transaction
has the partition. Source: KIP-98, KIP-890.

AddOffsetsToTxn (25): adds the offsets of a group to a transaction. Source: KIP-98.

EndTxn (26): commits or aborts. The response follows the decision; the markers come later.

From version 5 on every end raises the producer's epoch, and the response has the new epoch.
Source: KIP-98, KIP-890.

TxnOffsetCommit (28): commits offsets that are valid only if the transaction commits.

Source: KIP-98, KIP-447, KIP-890, KIP-1319.

WriteTxnMarkers (27): a coordinator ends transactions in partitions that this broker leads.

An administrator may abort a transaction that its coordinator does not end. Only brokers may commit
one, or end one in an internal topic. Source: KIP-98, KIP-664.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.coordinator.internal_topics import InternalTopic
from sparklog.broker.handlers.brokers_only import check_broker
from sparklog.broker.handlers.group_offsets import OffsetCommitRequest
from sparklog.broker.handlers.request_parts import partition_of, topic_of
from sparklog.broker.handlers.responses import NO_THROTTLE, code_of
from sparklog.broker.handlers.transactional_batches import ASKED_MAX
from sparklog.broker.node.node import BrokerNode
from sparklog.broker.runtime.request import RequestContext
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.coordinator.effects import ProducerIdentity
from sparklog.coordinator.internal_topics import GROUPS_TOPIC, partition_for
from sparklog.coordinator.messages import NO_GENERATION, NO_MEMBER, CommitRequest, MemberIdentity
from sparklog.coordinator.transaction.shard import WriteMarkers
from sparklog.coordinator.transaction.state import Partition
from sparklog.coordinator.transaction.transaction import (
    EPOCH_BUMP_SINCE,
    EndTransaction,
    InitProducer,
)
from sparklog.core.errors import (
    ClusterAuthorizationFailed,
    CoordinatorLoading,
    InvalidRequest,
    ProducerFenced,
    SparklogError,
)
from sparklog.core.topic_names import CLOSED_TOPICS
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import ResponseBuilder

logger = logging.getLogger(__name__)

NO_ID: Final = -1
FENCED_SINCE: Final = 4
"""The first version whose clients know PRODUCER_FENCED."""
_MILLISECOND: Final = timedelta(milliseconds=1)


async def init_producer_id(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return a producer id and an epoch.

    Without a transactional id both are new, also for a producer that had others before.
    """
    answer = ResponseBuilder.to(request)
    try:
        if request.transactional_id is None:
            identity = ProducerIdentity(await node.producer_ids.take(), 0)
        else:
            asked = InitProducer(
                request.transactional_id,
                request.transaction_timeout // _MILLISECOND,
                _expected(request),
            )
            identity = await node.transactions.coordinator.init_producer(asked)
    except SparklogError as error:
        logger.info("no producer id: %s", error)
        return _refused(answer, fenced_code(error, answer.version >= FENCED_SINCE))
    return answer.response(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
    )


def fenced_code(error: SparklogError, is_known: bool) -> ErrorCode:
    """Return the code of an error, for a client that may not know PRODUCER_FENCED."""
    if isinstance(error, ProducerFenced) and not is_known:
        return ErrorCode.invalid_producer_epoch
    return code_of(error)


def _expected(request: Any) -> ProducerIdentity | None:
    """Return the id and epoch that a producer continues with, or None if it has none."""
    expected = ProducerIdentity(
        int(getattr(request, "producer_id", NO_ID)), int(getattr(request, "producer_epoch", NO_ID))
    )
    if expected == (NO_ID, NO_ID):
        return None
    if NO_ID in expected:
        raise InvalidRequest(f"producer id and epoch go together. {expected}")
    return expected


def _refused(answer: ResponseBuilder, code: ErrorCode) -> Any:
    return answer.response(
        throttle_time=NO_THROTTLE, error_code=code, producer_id=NO_ID, producer_epoch=NO_ID
    )


BATCHED_SINCE: Final = 4
ADD_PARTITIONS_TO_TXN_FENCED_SINCE: Final = 2

Codes = Mapping[Partition, ErrorCode]


async def add_partitions_to_txn(
    node: BrokerNode,
    request: Any,
    context: RequestContext,
    denied: frozenset[str] = frozenset(),
) -> Any:
    """Return a code for every partition. The client may not write to the topics in `denied`."""
    answer = ResponseBuilder.to(request)
    if answer.version < BATCHED_SINCE:
        codes = await _add_all(node, answer, request, CLOSED_TOPICS | denied)
        return answer.response(
            throttle_time=NO_THROTTLE,
            results_by_topic_v3_and_below=_topics(answer, request.v3_and_below_topics, codes),
        )
    try:
        check_broker(node, context, Api.ADD_PARTITIONS_TO_TXN.label)
    except ClusterAuthorizationFailed as refused:
        return answer.response(
            throttle_time=NO_THROTTLE, error_code=code_of(refused), results_by_transaction=()
        )
    results = await asyncio.gather(*(_one(node, one) for one in request.transactions))
    return answer.response(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        results_by_transaction=tuple(
            answer.entity(
                "AddPartitionsToTxnResult",
                transactional_id=asked.transactional_id,
                topic_results=_topics(answer, asked.topics, codes),
            )
            for asked, codes in zip(request.transactions, results, strict=True)
        ),
    )


async def _add_all(
    node: BrokerNode, answer: ResponseBuilder, request: Any, denied: frozenset[str]
) -> Codes:
    """Add a producer's partitions if all of them exist and no topic is denied."""
    partitions = _partitions(request.v3_and_below_topics)
    missing = {
        p: code
        for p, code in _missing(node.metadata.image, request.v3_and_below_topics, denied)
        if code is not ErrorCode.none
    }
    if missing:
        untried = dict.fromkeys(partitions, ErrorCode.operation_not_attempted)
        return {**untried, **missing}
    producer = ProducerIdentity(
        int(request.v3_and_below_producer_id), int(request.v3_and_below_producer_epoch)
    )
    try:
        await node.transactions.coordinator.add_partitions(
            request.v3_and_below_transactional_id, producer, partitions, 0, waits=True
        )
    except SparklogError as error:
        return dict.fromkeys(
            partitions, fenced_code(error, answer.version >= ADD_PARTITIONS_TO_TXN_FENCED_SINCE)
        )
    return dict.fromkeys(partitions, ErrorCode.none)


async def _one(node: BrokerNode, asked: Any) -> Codes:
    """Add or verify one producer's partitions on behalf of their leader."""
    coordinator = node.transactions.coordinator
    producer = ProducerIdentity(int(asked.producer_id), int(asked.producer_epoch))
    partitions = _partitions(asked.topics)
    try:
        if asked.verify_only:
            found = await coordinator.verify(asked.transactional_id, producer, partitions)
            absent = ErrorCode.transaction_abortable
            return {p: ErrorCode.none if p in found else absent for p in partitions}
        await coordinator.add_partitions(
            asked.transactional_id, producer, partitions, EPOCH_BUMP_SINCE, waits=False
        )
    except SparklogError as error:
        return dict.fromkeys(partitions, code_of(error))
    return dict.fromkeys(partitions, ErrorCode.none)


def _partitions(topics: Any) -> list[Partition]:
    return [(topic.name, int(number)) for topic in topics for number in topic.partitions]


def _missing(
    image: MetadataImage, topics: Any, denied: frozenset[str]
) -> Iterable[tuple[Partition, ErrorCode]]:
    for asked in topics:
        topic = topic_of(image, asked)
        for number in asked.partitions:
            where = partition_of(topic, int(number))
            code = code_of(where if isinstance(where, SparklogError) else None)
            if asked.name in denied:  # as Kafka does; its clients expect no other code
                code = ErrorCode.topic_authorization_failed
            yield (asked.name, int(number)), code


def _topics(answer: ResponseBuilder, topics: Any, codes: Codes) -> tuple[Any, ...]:
    return tuple(
        answer.entity(
            "AddPartitionsToTxnTopicResult",
            name=topic.name,
            results_by_partition=tuple(
                answer.entity(
                    "AddPartitionsToTxnPartitionResult",
                    partition_index=number,
                    partition_error_code=codes[topic.name, int(number)],
                )
                for number in topic.partitions
            ),
        )
        for topic in topics
    )


ADD_OFFSETS_TO_TXN_FENCED_SINCE: Final = 2


async def add_offsets_to_txn(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Add the partition that stores the group's offsets."""
    answer = ResponseBuilder.to(request)
    producer = ProducerIdentity(int(request.producer_id), int(request.producer_epoch))
    code = ErrorCode.none
    try:
        groups = InternalTopic.of(GROUPS_TOPIC, node.config)
        topic = await groups.ensure(node.metadata, node.environment)
        offsets = (GROUPS_TOPIC, partition_for(request.group_id, topic.partitions))
        await node.transactions.coordinator.add_partitions(
            request.transactional_id, producer, (offsets,), 0, waits=True
        )
    except SparklogError as error:
        code = fenced_code(error, answer.version >= ADD_OFFSETS_TO_TXN_FENCED_SINCE)
    return answer.response(throttle_time=NO_THROTTLE, error_code=code)


END_TXN_FENCED_SINCE: Final = 2
EPOCH_BUMP_VERSION: Final = 5
NO_IDENTITY: Final = ProducerIdentity(-1, -1)


async def end_txn(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return the result as soon as the outcome is decided."""
    answer = ResponseBuilder.to(request)
    asked = EndTransaction(
        request.transactional_id,
        ProducerIdentity(int(request.producer_id), int(request.producer_epoch)),
        bool(request.committed),
        EPOCH_BUMP_SINCE if answer.version >= EPOCH_BUMP_VERSION else 0,
    )
    code, identity = ErrorCode.none, NO_IDENTITY
    try:
        identity = await node.transactions.coordinator.end(asked)
    except SparklogError as error:
        code = fenced_code(error, answer.version >= END_TXN_FENCED_SINCE)
    return answer.response(
        throttle_time=NO_THROTTLE,
        error_code=code,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
    )


ADDS_SINCE: Final = 5
"""The first version whose clients let the coordinator add the partition of the offsets."""
EPOCHS_SINCE: Final = 6
"""The first version with member epochs of the consumer protocol, and topic ids (KIP-1319)."""
CAN_ABORT_SINCE: Final = 4
"""The first version whose clients know TRANSACTION_ABORTABLE."""


async def txn_offset_commit(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return a code for every partition."""
    answer = ResponseBuilder.to(request)
    committing = OffsetCommitRequest(node.metadata.image, request.topics)
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
    """Return the generation or the member epoch; the field has another name from version 6 on."""
    epoch = getattr(request, "generation_id_or_member_epoch", NO_GENERATION)
    return int(getattr(request, "generation_id", epoch))


class _Enlisted:
    """Commits after the transaction has the partition of the group's offsets. Source: KIP-890."""

    def __init__(
        self, node: BrokerNode, transactional_id: str, producer: ProducerIdentity, version: int
    ) -> None:
        """Commit in the transaction of a producer whose client uses `version`."""
        self._node = node
        self._transactional_id = transactional_id
        self._producer = producer
        self._version = version

    async def commit(self, asked: CommitRequest) -> tuple[ErrorCode, ...]:
        """Commit offsets; return a code for each.

        Raises:
            SparklogError: nothing was committed.
        """
        groups, add_partitions = self._node.groups, self._node.transactions.add_partitions_to_txn
        adds = self._version >= ADDS_SINCE
        if not (adds or add_partitions.verifies):
            return await groups.commit(asked)
        partition = groups.partition_of(asked.group_id)
        where = GROUPS_TOPIC, partition
        verification = None
        for _ in range(ASKED_MAX):
            verification = groups.runtime.begin_verification(partition, self._producer)
            if verification is None:
                break
            codes = await add_partitions.add_or_verify(
                self._transactional_id, self._producer, (where,), adds=adds
            )
            error = add_partitions.error_for(
                codes[where],
                adds=adds,
                can_abort=self._version >= CAN_ABORT_SINCE,
                busy=CoordinatorLoading,
            )
            if error is not None:
                raise error
            if not verification.is_over:
                break
        return await groups.commit(asked, verification)


async def write_txn_markers(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return a code for every partition as soon as all markers are committed."""
    answer = ResponseBuilder.to(request)
    wanted, refused = [], []
    for marker in request.markers:
        whole = _wanted(marker)
        closed = _closed(node, whole, context)
        wanted.append(whole._replace(partitions=whole.partitions - closed.keys()))
        refused.append(closed)
    written = await node.transactions.writer.write(wanted)
    results = [{**codes, **closed} for codes, closed in zip(written, refused, strict=True)]
    return answer.response(
        markers=tuple(
            answer.entity(
                "WritableTxnMarkerResult",
                producer_id=marker.producer_id,
                topics=tuple(
                    answer.entity(
                        "WritableTxnMarkerTopicResult",
                        name=topic.name,
                        partitions=tuple(
                            answer.entity(
                                "WritableTxnMarkerPartitionResult",
                                partition_index=number,
                                error_code=codes[topic.name, int(number)],
                            )
                            for number in topic.partition_indexes
                        ),
                    )
                    for topic in marker.topics
                ),
            )
            for marker, codes in zip(request.markers, results, strict=True)
        ),
    )


def _closed(
    node: BrokerNode, wanted: WriteMarkers, context: RequestContext
) -> dict[Partition, ErrorCode]:
    """Return the partitions in which the sender may not end this transaction, with the code."""
    names = {topic for topic, _ in wanted.partitions}
    ask_broker = names if wanted.is_commit else names & CLOSED_TOPICS
    if not ask_broker:
        return {}
    try:
        check_broker(node, context, Api.WRITE_TXN_MARKERS.label)
    except ClusterAuthorizationFailed as refused:
        return {p: code_of(refused) for p in wanted.partitions if p[0] in ask_broker}
    return {}


def _wanted(marker: Any) -> WriteMarkers:
    return WriteMarkers(
        "",
        ProducerIdentity(int(marker.producer_id), int(marker.producer_epoch)),
        bool(marker.transaction_result),
        frozenset((t.name, int(number)) for t in marker.topics for number in t.partition_indexes),
        int(marker.coordinator_epoch),
        int(getattr(marker, "transaction_version", 0)),
    )
