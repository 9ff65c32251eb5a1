"""One produce request while it is answered: what it asks, what came of it, and who waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from sparklog.broker.led_partition import LedPartition
from sparklog.broker.purgatory import DelayedProduce
from sparklog.core.errors import NotServing, SparklogError, Unavailable
from sparklog.core.types import PartitionId
from sparklog.log.batch_check import CheckedBatch
from sparklog.log.producer_state import UNVERIFIED, Verification
from sparklog.log.reference_batch import ReferenceBatch
from sparklog.protocol.batch_header import BytesLike


class Produced(NamedTuple):
    """Where a batch was appended."""

    base_offset: int
    append_time_ms: int
    """-1 unless the topic's timestamps are LogAppendTime."""
    log_start_offset: int


ProduceResult = Produced | SparklogError
_GOOD: Final = frozenset({Produced})
Verified = Mapping[PartitionId, tuple[int, Verification]]
"""Leader epoch and verification of partitions that were asked about; see `Verification`."""


class ProduceJob:
    """See the module."""

    __slots__ = (
        "_verified",
        "acks",
        "batches",
        "deadline",
        "leaders",
        "references",
        "request",
        "results",
    )

    def __init__(
        self,
        batches: Mapping[PartitionId, BytesLike],
        acks: int,
        deadline: float,
        verified: Verified | None,
    ) -> None:
        """Answer a request by `deadline`, on the loop's clock."""
        self.batches = batches
        self.acks = acks
        self.deadline = deadline
        self.results: dict[PartitionId, ProduceResult] = {}
        self.references: dict[PartitionId, tuple[CheckedBatch, ReferenceBatch]] = {}
        """Reference batches that point at what is there; then there are no others."""
        self.leaders: dict[PartitionId, LedPartition] = {}
        """Who was asked to append."""
        self.request = DelayedProduce()
        self._verified = verified

    @property
    def has_failed(self) -> bool:
        """Say whether anything has an error."""
        return not _GOOD.issuperset(map(type, self.results.values()))

    @property
    def outcomes(self) -> list[ProduceResult]:
        """Return what became of each batch, in their order, once all have ended."""
        return [self.results[where] for where in self.batches]

    def verification(self, led: LedPartition) -> Verification | None:
        """Return what goes with a transactional batch.

        Raises:
            NotServing: it was verified with an earlier leader epoch; send it again.
        """
        if self._verified is None:
            return UNVERIFIED
        asked = self._verified.get(led.where)
        if asked is None:
            return None
        epoch, verification = asked
        if epoch != led.leader_epoch:
            raise NotServing(
                "the leader changed while the transaction was verified; send it again. "
                f"partition={led.where} leader_epoch={led.leader_epoch}"
            )
        return verification

    def end(self) -> None:
        """Note what became of partitions that were waited for, and of those that still are."""
        for where in self.request.waiting:
            self.results[where] = timed_out(where)
        self.results.update(self.request.failed)

    def fail_rest(self, error: Callable[[PartitionId], SparklogError]) -> None:
        """Give this error to every partition that has no result yet."""
        for where in self.batches:
            if where not in self.results:
                self.results[where] = error(where)


def size_of(batches: Mapping[PartitionId, CheckedBatch]) -> int:
    """Return the bytes of batches that are to be appended: those it takes of the budget."""
    return sum(batch.header.size_bytes for batch in batches.values())


def timed_out(where: PartitionId) -> Unavailable:
    """Return the error of a batch that was not acknowledged in time."""
    return Unavailable(
        "not acknowledged in time: the storage or a follower is slow; it may be committed yet, so "
        f"send it again with idempotence. partition={where}"
    )
