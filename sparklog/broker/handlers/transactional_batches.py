"""Verifies the transactional batches of a Produce request before they are appended.

If a partition has no records of the transaction yet, its leader asks the coordinator; see
`broker.coordinator.transaction_services`. Requests of one producer ask one after the other, so
their batches are appended in order of arrival. Source: KIP-890.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from sparklog.broker.node.node import BrokerNode
from sparklog.coordinator.effects import ProducerIdentity
from sparklog.coordinator.transaction.state import Partition
from sparklog.core.errors import (
    DataCorrupt,
    InvalidProducerIdMapping,
    InvalidRequest,
    NotEnoughReplicas,
    SparklogError,
)
from sparklog.core.types import PartitionId
from sparklog.log.tail.producer_state import Verification
from sparklog.protocol.records.header import (
    TRANSACTIONAL_BIT,
    BatchHeader,
    BytesLike,
    has_attribute,
    parse_header,
)

ADDS_SINCE: Final = 12
"""The first version of Produce whose clients let the leaders add partitions to a transaction."""
CAN_ABORT_SINCE: Final = 11
"""The first version whose clients know TRANSACTION_ABORTABLE."""


ASKED_MAX: Final = 3
"""Attempts to verify. A marker that arrives meanwhile makes the answer invalid; it usually ends the
previous transaction."""


class NoTransactionalId(InvalidRequest):
    """The request has a transactional batch but no transactional id."""

    kafka_code = 53


class RequestedBatch(NamedTuple):
    """The transactional batches of one request."""

    transactional_id: str | None
    version: int
    headers: dict[PartitionId, BatchHeader]
    names: Mapping[PartitionId, Partition]


@dataclass(slots=True)
class VerifiedBatches:
    """The result of a verification."""

    verified: dict[PartitionId, tuple[int, Verification]] | None
    """None: verification is turned off."""
    refused: dict[PartitionId, SparklogError] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """Return True if a marker arrived while the coordinator was asked: verify again."""
        return any(one.is_over for _, one in (self.verified or {}).values())


def find(
    request: Any, batches: Mapping[PartitionId, BytesLike], names: Mapping[PartitionId, Partition]
) -> RequestedBatch | None:
    """Return the transactional batches of a Produce request, None when there are none."""
    headers: dict[PartitionId, BatchHeader] = {}
    for where, data in batches.items():
        if not has_attribute(data, TRANSACTIONAL_BIT):
            continue
        try:
            header = parse_header(data)
        except DataCorrupt:
            continue  # the batch check rejects it, with its own error
        if header.is_transactional and header.has_producer_id:
            headers[where] = header
    if not headers:
        return None
    return RequestedBatch(request.transactional_id, request.__version__, headers, names)


async def verify(node: BrokerNode, asked: RequestedBatch) -> VerifiedBatches:
    """Ask the coordinator about partitions without records of the transaction.

    The caller must append without an await after this returns.
    """
    producers = {ProducerIdentity(h.producer_id, h.producer_epoch) for h in asked.headers.values()}
    problem: SparklogError | None = None
    if asked.transactional_id is None:
        problem = NoTransactionalId("a transactional batch comes with a transactional id")
    elif len(producers) > 1:
        problem = InvalidProducerIdMapping("the batches of one request have one producer")
    if problem is not None:
        return VerifiedBatches({}, dict.fromkeys(asked.headers, problem))
    add_partitions = node.transactions.add_partitions_to_txn
    if not add_partitions.verifies and asked.version < ADDS_SINCE:
        return VerifiedBatches(None)
    (producer,) = producers
    checked = await _begin(node, asked, producer)
    if not checked.verified and not add_partitions.is_asking(producer.producer_id):
        return checked
    async with add_partitions.turn(producer.producer_id):
        for _ in range(ASKED_MAX):
            checked = await _begin(node, asked, producer)
            await _ask(node, asked, producer, checked)
            if not checked.is_over:
                break
    return checked


async def _begin(
    node: BrokerNode, asked: RequestedBatch, producer: ProducerIdentity
) -> VerifiedBatches:
    """Begin verifications for the partitions that need one."""
    verified: dict[PartitionId, tuple[int, Verification]] = {}
    checked = VerifiedBatches(verified)
    for where, header in asked.headers.items():
        try:
            found = await node.replicas.txn_markers.begin_verification(
                where, producer, header.base_sequence
            )
        except SparklogError as error:
            checked.refused[where] = error
            continue
        if found is not None:
            verified[where] = found
    return checked


async def _ask(
    node: BrokerNode,
    asked: RequestedBatch,
    producer: ProducerIdentity,
    checked: VerifiedBatches,
) -> None:
    """Ask about all partitions together; move those that the coordinator rejects to `refused`."""
    if not checked.verified:
        return
    assert asked.transactional_id is not None
    adds = asked.version >= ADDS_SINCE
    add_partitions = node.transactions.add_partitions_to_txn
    places = {asked.names[where]: where for where in checked.verified}
    codes = await add_partitions.add_or_verify(
        asked.transactional_id, producer, list(places), adds=adds
    )
    for partition, where in places.items():
        error = add_partitions.error_for(
            codes[partition],
            adds=adds,
            can_abort=asked.version >= CAN_ABORT_SINCE,
            busy=NotEnoughReplicas,
        )
        if error is not None:
            checked.refused[where] = error
            del checked.verified[where]
