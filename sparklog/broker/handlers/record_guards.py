"""Guards of requests that write and read records, and of those about transactions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from sparklog.broker.handlers.access import access_of
from sparklog.broker.handlers.guards import (
    DENIED,
    Gate,
    GuardedCall,
    ItemCheck,
    topic_resource,
)
from sparklog.broker.handlers.refusals import ITSELF, ItemList, refused, same
from sparklog.broker.handlers.topic_guards import describable
from sparklog.broker.runtime.request import CloseConnection
from sparklog.core.errors import SparklogError
from sparklog.protocol.api_keys import Api
from sparklog.protocol.records.header import TRANSACTIONAL_BIT, has_attribute
from sparklog.security.acls import AclOperation, ResourceType

BATCHED_SINCE: Final = 4
"""The first version of AddPartitionsToTxn for several transactions, which brokers alone send."""
PRODUCED: Final = ItemList(
    "topic_data",
    "responses",
    same("name", "topic_id"),
    ItemList("partition_data", "partition_responses", same("index")),
)
ADDED: Final = ItemList(
    "v3_and_below_topics",
    "results_by_topic_v3_and_below",
    same("name"),
    ItemList("partitions", "results_by_partition", {"partition_index": ITSELF}),
)
_WRITTEN: Final = ItemCheck(
    AclOperation.WRITE, topic_resource, (PRODUCED,), passes_unknown_ids=True
)
_ADDED: Final = ItemCheck(AclOperation.WRITE, topic_resource, (ADDED,))
WRITES_TRANSACTION: Final = Gate(
    AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id"
)
_NO_ACKS: Final = 0


async def produce(call: GuardedCall) -> Any:
    """Append to the topics that the client may write to.

    Raises:
        CloseConnection: the client wants no answer, and may not write to a topic.
    """
    request = call.request
    if _has_transactional(request) and not _writes_transaction(call):
        error = DENIED[ResourceType.TRANSACTIONAL_ID]
        if request.acks == _NO_ACKS:
            raise _closed(error)
        return refused(request, error, (PRODUCED,))
    if request.acks != _NO_ACKS:
        return await _WRITTEN.run(call)
    errors = _WRITTEN.errors(call, request.topic_data)
    left = tuple(t for t, error in zip(request.topic_data, errors, strict=True) if error is None)
    response = await call.proceed(replace(request, topic_data=left)) if left else None
    denied = next((error for error in errors if error is not None), None)
    if denied is not None:
        raise _closed(denied)
    return response


def _has_transactional(request: Any) -> bool:
    """Return whether a batch is transactional; a transactional id alone needs no right."""
    return any(
        has_attribute(part.records or b"", TRANSACTIONAL_BIT)
        for topic in request.topic_data
        for part in topic.partition_data
    )


def _writes_transaction(call: GuardedCall) -> bool:
    return call.request.transactional_id is not None and WRITES_TRANSACTION.opens(call)


def _closed(error: SparklogError) -> CloseConnection:
    return CloseConnection(f"produce is not allowed, and its producer wants no answer: {error}")


async def fetch(call: GuardedCall) -> Any:
    """Read the topics that the client may read. A session may name topics of earlier requests.

    The rights are the newest ones, also after the request has waited for records.
    """
    access, acls = call.access, call.image.acls

    def may_read(name: str, partitions: int) -> bool:
        nonlocal access, acls
        newest = call.node.metadata.image.acls
        if newest is not acls:
            access, acls = access_of(call.node, call.context, Api.FETCH) or access, newest
        return access.may(AclOperation.READ, ResourceType.TOPIC, name, references=partitions)

    return await call.proceed(may_read=may_read)


async def shared_records(call: GuardedCall) -> Any:
    """Share records of topics that the client may read, in a group that it may read."""
    group_id = call.request.group_id or ""
    if not call.access.may(AclOperation.READ, ResourceType.GROUP, group_id):
        return refused(call.request, DENIED[ResourceType.GROUP])

    def may_read(name: str) -> bool:
        return call.access.may(AclOperation.READ, ResourceType.TOPIC, name)

    return await call.proceed(may_read=may_read)


async def add_partitions_to_txn(call: GuardedCall) -> Any:
    """Add partitions of topics that the client may write to, or none of them."""
    request = call.request
    if request.__version__ >= BATCHED_SINCE:
        return await call.proceed()
    name = request.v3_and_below_transactional_id
    if not call.access.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        return refused(request, DENIED[ResourceType.TRANSACTIONAL_ID], (ADDED,))
    errors = _ADDED.errors(call, request.v3_and_below_topics)
    asked = zip(request.v3_and_below_topics, errors, strict=True)
    denied = frozenset(topic.name for topic, error in asked if error is not None)
    return await call.proceed(denied=denied)


async def init_producer_id(call: GuardedCall) -> Any:
    """Give a producer id to a client that may write: in a transaction, or to any topic at all."""
    request, access = call.request, call.access
    if request.transactional_id is None:
        may = access.may_on_cluster(AclOperation.IDEMPOTENT_WRITE, filters=True)
        kind = ResourceType.CLUSTER
        may = may or access.may_write_some_topic()
    else:
        kind = ResourceType.TRANSACTIONAL_ID
        may = access.may(AclOperation.WRITE, kind, request.transactional_id)
    return await call.proceed() if may else refused(request, DENIED[kind])


def described_transactions(call: GuardedCall, response: Any) -> Any:
    """Hide topics of transactions that the client may not describe."""
    names = {topic.topic for one in response.transaction_states for topic in one.topics}
    seen = describable(call.access, names)
    return replace(
        response,
        transaction_states=tuple(
            replace(one, topics=tuple(topic for topic in one.topics if topic.topic in seen))
            for one in response.transaction_states
        ),
    )


def listed_transactions(call: GuardedCall, response: Any) -> Any:
    """Show the transactional ids that the client may describe."""
    may, kind = call.access.may, ResourceType.TRANSACTIONAL_ID
    return replace(
        response,
        transaction_states=tuple(
            one
            for one in response.transaction_states
            if may(AclOperation.DESCRIBE, kind, one.transactional_id, filters=True)
        ),
    )
