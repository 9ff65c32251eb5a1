"""RejectedBatches: remembers rejected batches, so that later ones are not appended before them.

A producer has several batches on their way. The broker may reject an earlier one, as the leader is
not ready or too few brokers are in sync. If that passes before a later batch arrives, the later one
comes ahead of it. The same happens when the earlier one waits at a broker that leads no more, and
sleeps or is cut off. The producer has then learned of the new leader meanwhile.

A partition that does not know the producer would begin with the later batch. Then the earlier one
is out of order for ever, and librdkafka takes it for written as soon as a later one is. Of a known
producer the later one is out of order. librdkafka then begins a new epoch. With that it writes once
more all batches that it has no answer for yet, in all partitions (its issue 4953). So the broker
does neither while the earlier one may come yet: it asks the producer to send the later one again.
A batch that was rejected for good is different. It does not come again as it is, and the batches
after it are out of order.

The broker may reject batches before it knows their topic. Other brokers name a new topic to
producers while this one has not read of it. Such batches are noted by the topic's name.
Entries are kept shortly, and their number is limited. The broker treats dropped ones as Kafka does.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from sparklog.core.errors import (
    DataCorrupt,
    NotServing,
    OutOfOrderSequence,
    SparklogError,
    UnknownTopicOrPartition,
)
from sparklog.core.types import NO_PRODUCER_ID, PartitionId
from sparklog.protocol.records.header import NO_SEQUENCE, BatchHeader, BytesLike, parse_header

REJECTED_MAX: Final = 10_000
KEPT_S: Final = 300.0
"""The longest default of a client's time to deliver (librdkafka's `message.timeout.ms`)."""
STRAGGLER_S: Final = 75.0
"""Time for a batch that waits elsewhere. Clients wait that long for an answer before they send it
again (librdkafka's `socket.timeout.ms` is 60 s, Kafka's `request.timeout.ms` 30 s)."""


def is_retried(error: SparklogError) -> bool:
    """Return True if producers send a batch again after this error.

    Producers take an unknown topic for one that this broker has not read of yet.
    """
    return error.retriable or isinstance(error, UnknownTopicOrPartition)


class _RejectedKey(NamedTuple):
    where: PartitionId
    producer_id: int
    producer_epoch: int


class _RejectedBatch(NamedTuple):
    base_sequence: int
    since_s: float
    is_retried: bool
    """Its producer was asked to send it again."""


class RejectedBatches:
    """The batches that this broker rejected of late. The event loop's only."""

    def __init__(self) -> None:
        """Begin with none."""
        self.rejected: OrderedDict[_RejectedKey, _RejectedBatch] = OrderedDict()
        """By producer and partition; empty, nearly always."""

    def note(self, where: PartitionId, data: BytesLike, now_s: float, *, is_retried: bool) -> None:
        """Record that a batch was rejected and not appended; the earliest of a producer counts."""
        try:
            header = parse_header(data)
        except DataCorrupt:
            return
        if header.producer_id == NO_PRODUCER_ID or header.base_sequence == NO_SEQUENCE:
            return
        key = _RejectedKey(where, header.producer_id, header.producer_epoch)
        before = self._kept(key, now_s) or _RejectedBatch(header.base_sequence, now_s, is_retried)
        if before.base_sequence < header.base_sequence:
            return
        since_s = before.since_s if before.base_sequence == header.base_sequence else now_s
        self.rejected[key] = _RejectedBatch(header.base_sequence, since_s, is_retried)
        if len(self.rejected) > REJECTED_MAX:
            self.rejected.popitem(last=False)

    def learn(self, named: PartitionId, where: PartitionId, header: BatchHeader) -> None:
        """Record the id of the topic for which a producer's batches were noted by name.

        Args:
            named: the partition, with the topic's name instead of its id.
            where: the same one with its id.
            header: a batch's of that producer.
        """
        who = header.producer_id, header.producer_epoch
        rejected = self.rejected.pop(_RejectedKey(named, *who), None)
        if rejected is not None:
            self.rejected.setdefault(_RejectedKey(where, *who), rejected)

    def check_ahead(
        self, where: PartitionId, header: BatchHeader, now_s: float, *, may_have_stragglers: bool
    ) -> None:
        """Refuse a batch that is ahead of one that is missing, while that may come yet.

        Args:
            where: the partition.
            header: the batch's; see `ProducerStates.is_ahead`.
            now_s: the time.
            may_have_stragglers: the missing one may still wait at an earlier leader.

        Raises:
            NotServing: send the one before it first, then this one again.
            OutOfOrderSequence: the one before it was rejected for good.
        """
        rejected = self._kept(_RejectedKey(where, header.producer_id, header.producer_epoch), now_s)
        first, since_s, is_retried = rejected or _RejectedBatch(header.base_sequence, now_s, True)
        facts = (
            f"partition={where} producer_id={header.producer_id} "
            f"producer_epoch={header.producer_epoch} base_sequence={header.base_sequence}"
        )
        if header.base_sequence > first and not is_retried:
            raise OutOfOrderSequence(f"a batch before this one was rejected; see why. {facts}")
        if header.base_sequence > first or (may_have_stragglers and now_s - since_s < STRAGGLER_S):
            raise NotServing(
                "a batch before this one is missing and may be on its way; send them again in "
                f"order. {facts}"
            )

    def settle(self, where: PartitionId, header: BatchHeader) -> None:
        """Handle a batch that is in order, or appended before; a rejected one after it counts."""
        key = _RejectedKey(where, header.producer_id, header.producer_epoch)
        rejected = self.rejected.get(key)
        if rejected is not None and header.base_sequence >= rejected.base_sequence:
            del self.rejected[key]

    def _kept(self, key: _RejectedKey, now_s: float) -> _RejectedBatch | None:
        rejected = self.rejected.get(key)
        if rejected is not None and now_s - rejected.since_s > KEPT_S:
            del self.rejected[key]
            return None
        return rejected
