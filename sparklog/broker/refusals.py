"""Batches of producers that were refused, so that what was sent after them is not taken first.

A producer has several batches on their way. When the first it ever sends to a partition is refused,
as the leader is not ready or too few brokers are in sync, and that passes before the second one
arrives, then a partition that does not know the producer would begin with the second; the first
would be out of order for ever when it is sent again, which clients take for lost data. So who was
refused is remembered until that batch comes again. Kept shortly and for so many only: what is
forgotten here is treated as Kafka treats it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from sparklog.core.errors import DataCorrupt, OutOfOrderSequence
from sparklog.core.types import NO_PRODUCER_ID, PartitionId
from sparklog.protocol.batch_header import NO_SEQUENCE, BatchHeader, BytesLike, parse_header

REFUSALS_MAX: Final = 10_000
KEPT_S: Final = 300.0
"""The longest default of a client's time to deliver (librdkafka's `message.timeout.ms`)."""


class _Key(NamedTuple):
    where: PartitionId
    producer_id: int
    producer_epoch: int


class _Refused(NamedTuple):
    base_sequence: int
    until_s: float


class Refusals:
    """What this broker refused of late. The event loop's only."""

    def __init__(self) -> None:
        """Begin with none."""
        self._refused: OrderedDict[_Key, _Refused] = OrderedDict()

    def __len__(self) -> int:
        """Return how many producers and partitions are remembered."""
        return len(self._refused)

    def note(self, where: PartitionId, data: BytesLike, now_s: float) -> None:
        """Take in that a batch was refused and not appended; the earliest of a producer counts."""
        try:
            header = parse_header(data)
        except DataCorrupt:
            return
        if header.producer_id == NO_PRODUCER_ID or header.base_sequence == NO_SEQUENCE:
            return
        key = _Key(where, header.producer_id, header.producer_epoch)
        before = self._refused.pop(key, None)
        first = header.base_sequence
        if before is not None and before.until_s > now_s:
            first = min(first, before.base_sequence)
        self._refused[key] = _Refused(first, now_s + KEPT_S)
        if len(self._refused) > REFUSALS_MAX:
            self._refused.popitem(last=False)

    def check(self, where: PartitionId, header: BatchHeader, now_s: float) -> None:
        """Refuse a batch of a producer not known here, if one before it was refused.

        Raises:
            OutOfOrderSequence: send the one before it first.
        """
        key = _Key(where, header.producer_id, header.producer_epoch)
        refused = self._refused.get(key)
        if refused is None:
            return
        if refused.until_s > now_s and header.base_sequence > refused.base_sequence:
            raise OutOfOrderSequence(
                "a batch before this one was refused, and has to come again first. "
                f"partition={where} producer_id={header.producer_id} "
                f"base_sequence={header.base_sequence} refused={refused.base_sequence}"
            )
        del self._refused[key]
