"""What is looked at before batches are appended: bytes, and the objects that references name.

Rule B5 of `producing` is kept here.
"""

from __future__ import annotations

import asyncio
from typing import Final

from sparklog.broker.environment import Environment
from sparklog.broker.produce_job import ProduceJob, timed_out
from sparklog.broker.recovering_partition import Find
from sparklog.core.errors import InvalidRecord, SparklogError
from sparklog.core.types import PartitionId
from sparklog.log.batch_check import (
    BatchRules,
    CheckedBatch,
    LoopTime,
    check_batch,
    check_reference,
)
from sparklog.log.reference_batch import TEXT_BYTES_MAX, ReferenceBatch, check_references
from sparklog.protocol.batch_header import (
    ATTRIBUTES_AT,
    HEADER_BYTES,
    REFERENCE_BIT,
    BytesLike,
)

CHECKED_INLINE_BYTES: Final = 1 << 20
"""Up to this size a request is checked on the event loop: 0.2 ms of checksums, and as much of a
look at its records."""
UNFOLDED_INLINE_BYTES: Final = 256 << 10
"""So much is decompressed there for a request: 0.1 ms with lz4 and zstd, below 1 ms with gzip."""
REFERENCES_CHECKED_AT_ONCE: Final = 16
"""Partitions of one request whose objects are looked at side by side."""


def is_reference(records: BytesLike) -> bool:
    """Say whether a request's records begin as a reference batch does."""
    return len(records) >= HEADER_BYTES and bool(records[ATTRIBUTES_AT] << 8 & REFERENCE_BIT)


def check_all(
    work: list[tuple[BytesLike, BatchRules]], now_ms: int, loop_time: LoopTime | None = None
) -> list[CheckedBatch | SparklogError]:
    """Return each batch with its records looked at, or why it is refused.

    Args:
        work: batches and the rules of their topics.
        now_ms: the time.
        loop_time: what is left for all of it while an event loop waits; None: none does.

    Raises:
        NeedsTime: that does not do; give the work to a thread.
    """
    outcomes: list[CheckedBatch | SparklogError] = []
    for records, rules in work:
        try:
            outcomes.append(check_batch(records, rules, now_ms, loop_time=loop_time))
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

    async def check(self, job: ProduceJob) -> None:
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
        if not is_reference(data):
            raise InvalidRecord("reference batches come in requests of their own")
        role = self._find(where)
        now_ms = self._environment.clock.now_ms()
        async with lanes:
            opened = await self._environment.unfold(
                2 * TEXT_BYTES_MAX, None, check_reference, data, role.rules.batches, now_ms
            )
            await self._environment.store.run(check_references(role.layout, opened[1]))
        return opened
