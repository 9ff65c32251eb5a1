"""One produce request while it is answered: its batches, results and waiting acknowledgement.

Before batches are appended, it checks their bytes and the objects that references name.

Rule PRODUCE-5 is kept here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from sparklog.broker.partition.leader import LeaderPartition
from sparklog.broker.partition.purgatory import DelayedProduce
from sparklog.broker.partition.recovering import Find
from sparklog.broker.runtime.environment import Environment
from sparklog.core.errors import InvalidRecord, NotServing, SparklogError, Unavailable
from sparklog.core.types import PartitionId
from sparklog.log.tail.batch_validator import (
    BatchRules,
    CheckedBatch,
    LoopTime,
    check_batch,
    check_reference,
)
from sparklog.log.tail.producer_state import UNVERIFIED, Verification
from sparklog.log.tail.references import TEXT_BYTES_MAX, ReferenceBatch, check_references
from sparklog.protocol.records.header import REFERENCE_BIT, BytesLike, has_attribute
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
        self.references: dict[PartitionId, tuple[CheckedBatch, ReferenceBatch]] = {}
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
REFERENCES_CHECKED_AT_ONCE: Final = 16
"""Partitions of one request whose objects are looked at side by side."""


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
            outcomes.append(_without_frames(error))
    return outcomes


def _without_frames(error: SparklogError) -> SparklogError:
    """Return a refusal that no longer holds the decompressed records it was raised beside.

    Refusals are remembered; their tracebacks would keep every frame's local variables.
    """
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


class ReferenceChecks:
    """Looks whether reference batches point at what is as they say."""

    def __init__(self, environment: Environment, find: Find) -> None:
        """Look in the folders of the partitions that `find` returns."""
        self._environment = environment
        self._find = find

    async def check(self, job: ProduceRequest) -> None:
        """Note what the references of a request say, or why they are refused."""
        lanes = asyncio.Semaphore(REFERENCES_CHECKED_AT_ONCE)

        async def check(where: PartitionId, data: BytesLike) -> None:
            try:
                async with asyncio.timeout_at(job.deadline):
                    job.references[where] = await self._opened(where, data, lanes)
            except TimeoutError:
                job.results[where] = timed_out(where)
            except SparklogError as error:
                job.results[where] = _without_frames(error)

        await asyncio.gather(*(check(where, data) for where, data in job.batches.items()))

    async def _opened(
        self, where: PartitionId, data: BytesLike, lanes: asyncio.Semaphore
    ) -> tuple[CheckedBatch, ReferenceBatch]:
        if not has_attribute(data, REFERENCE_BIT):
            raise InvalidRecord("reference batches come in requests of their own")
        role = self._find(where)
        now_ms = self._environment.clock.now_ms()
        async with lanes:
            opened = await self._environment.unfold(
                2 * TEXT_BYTES_MAX, None, check_reference, data, role.rules.batches, now_ms
            )
            await self._environment.store.run(check_references(role.layout, opened[1]))
        return opened
