"""One produce request while it is answered: its batches, results and waiting acknowledgement.

Before batches are appended, `check_all` checks their bytes, and `reference_checks` those of
references.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from sparklog.broker.partition.leader import LeaderPartition
from sparklog.broker.partition.purgatory import DelayedProduce
from sparklog.core.errors import NotServing, SparklogError, Unavailable
from sparklog.core.types import PartitionId
from sparklog.log.tail.batch_validator import BatchRules, CheckedBatch, LoopTime, check_batch
from sparklog.log.tail.producer_state import UNVERIFIED, Verification
from sparklog.log.tail.references import ReferenceBatch
from sparklog.protocol.records.header import BytesLike
from sparklog.protocol.records.schema_check import NO_SCHEMAS, KnownSchemas


class ProducedPartition(NamedTuple):
    """The place of an appended batch."""

    base_offset: int
    append_time_ms: int
    """-1 unless the topic's timestamps are LogAppendTime."""
    log_start_offset: int


ProduceResult = ProducedPartition | SparklogError
_GOOD: Final = frozenset({ProducedPartition})
Verified = Mapping[PartitionId, tuple[int, Verification]]
"""Leader epoch and verification of partitions that were asked about; see `Verification`."""


class CheckedReferences(NamedTuple):
    """A reference batch whose objects were looked at, and the rules that this followed."""

    batch: CheckedBatch
    content: ReferenceBatch
    rules: BatchRules


class ProduceRequest:
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
        verified: Verified | None = None,
    ) -> None:
        """Answer a request by `deadline`, on the loop's clock."""
        self.batches = batches
        self.acks = acks
        self.deadline = deadline
        self.results: dict[PartitionId, ProduceResult] = {}
        self.references: dict[PartitionId, CheckedReferences] = {}
        """Reference batches that point at what is there; then there are no others."""
        self.leaders: dict[PartitionId, LeaderPartition] = {}
        """The leaders that were asked to append."""
        self.request = DelayedProduce()
        self._verified = verified

    @property
    def has_failed(self) -> bool:
        """Say whether anything has an error."""
        return not _GOOD.issuperset(map(type, self.results.values()))

    @property
    def outcomes(self) -> list[ProduceResult]:
        """Return what became of each batch, in their order, once all have ended."""
        return list(map(self.results.__getitem__, self.batches))

    def verification(self, led: LeaderPartition) -> Verification | None:
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


def timed_out(where: PartitionId) -> Unavailable:
    """Return the error of a batch that was not acknowledged in time."""
    return Unavailable(
        "not acknowledged in time: the storage or a follower is slow; it may be committed yet, so "
        f"send it again with idempotence. partition={where}"
    )


CHECKED_INLINE_BYTES: Final = 1 << 20
"""Up to this size a request is checked on the event loop: 0.2 ms of checksums, and as much for its
records."""
UNFOLDED_INLINE_BYTES: Final = 256 << 10
"""So much is decompressed there for a request: 0.1 ms with lz4 and zstd, below 1 ms with gzip."""


def check_all(
    work: list[tuple[BytesLike, BatchRules]],
    now_ms: int,
    loop_time: LoopTime | None = None,
    known: KnownSchemas = NO_SCHEMAS,
) -> list[CheckedBatch | SparklogError]:
    """Return each batch with its records looked at, or why it is refused.

    Args:
        work: batches and the rules of their topics.
        now_ms: the time.
        loop_time: what is left for all of it while an event loop waits; None: none does.
        known: the schemas of the registry.

    Raises:
        NeedsTime: that does not do; give the work to a thread.
    """
    outcomes: list[CheckedBatch | SparklogError] = []
    for records, rules in work:
        try:
            outcomes.append(check_batch(records, rules, now_ms, loop_time=loop_time, known=known))
        except SparklogError as error:
            outcomes.append(without_frames(error))
    return outcomes


def without_frames(error: SparklogError) -> SparklogError:
    """Return a refusal that no longer holds the decompressed records it was raised beside.

    Refusals are remembered; their tracebacks would keep every frame's local variables.
    """
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
