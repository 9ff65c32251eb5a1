"""Answering produce requests: check, append to the tail and the WAL, wait for what `acks` says.

  PRODUCE-1: batches of one partition are appended in the order of the calls. A request takes its
      place in a partition's order before it awaits anything, and keeps it until the append. If no
      request is in that order and nothing is awaited, it appends at once
  PRODUCE-2: nothing is appended to a partition that is led no more: asked again after every await
  PRODUCE-3: acks=all succeeds when the partition's high watermark got there while it was led in
      the very epoch of the append. Any other outcome is an error, never success. In the same way,
      acks=1 succeeds when the write-ahead log or one in-sync follower has the batch. So nothing is
      acknowledged that only this process's memory holds
  PRODUCE-4: memory is taken before the append, and given back at once for what is not appended
  PRODUCE-5: a reference batch is looked at in the store before its partition's order is taken, so
      that no other request waits for that. Its own order is not promised: `reference_checks`
  PRODUCE-6: an earlier batch of the same producer may still arrive: this broker rejected it, here
      or before (`refused`), or it waits at an earlier leader. A later batch is then neither
      appended nor rejected as out of order
  PRODUCE-7: clients take errors of sequence, epoch or transaction for fatal. A leader returns such
      an error only if it still led after it found the error. A leader that slept may be deposed
      and know too little
  PRODUCE-8: a record with an unknown schema is refused only after a look at the registry's topic,
      which began after the record arrived. The partition's order is held meanwhile

Per batch: one check, one copy; per request neither a task nor a timer, as a rule: `begin`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from sparklog.broker.partition.leader import LeaderPartition
from sparklog.broker.partition.purgatory import ProducePurgatory, wake
from sparklog.broker.partition.recovering import RECOVERY_WAIT_MAX_S, Find, RecoveringPartition
from sparklog.broker.produce.reference_checks import ReferenceChecks
from sparklog.broker.produce.rejected_batches import RejectedBatches, is_retried
from sparklog.broker.produce.request import (
    CHECKED_INLINE_BYTES,
    UNFOLDED_INLINE_BYTES,
    ProducedPartition,
    ProduceRequest,
    ProduceResult,
    Verified,
    check_all,
    timed_out,
)
from sparklog.broker.produce.schema_topic import SchemaTopic
from sparklog.broker.runtime.environment import Environment
from sparklog.broker.runtime.memory_budget import MemoryBudget
from sparklog.broker.runtime.metadata_access import MetadataAccess
from sparklog.broker.runtime.metrics import BrokerMetrics
from sparklog.core.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    NotServing,
    OutOfOrderSequence,
    SparklogError,
    Unavailable,
    UnknownSchema,
)
from sparklog.core.types import PartitionId
from sparklog.log.tail.batch_validator import BatchRules, CheckedBatch, LoopTime, NeedsTime
from sparklog.protocol.records.header import REFERENCE_BIT, BatchHeader, BytesLike, has_attribute
from sparklog.protocol.records.unfolded_size import unfolded_bytes_max

ACKS_ALL = -1
ACKS_NONE = 0
ACKS_LEADER = 1
JUDGED = (OutOfOrderSequence, InvalidProducerEpoch, InvalidTxnState)
"""Errors that a leader returns because of what it knows of a producer."""
LOOK_S = 1.0
"""Time for a look at the metadata, also when the request's own is up."""


class ProduceService:
    """Answers produce requests of one broker."""

    def __init__(
        self,
        environment: Environment,
        find: Find,
        metadata: MetadataAccess,
        budget: MemoryBudget,
        metrics: BrokerMetrics,
        schemas: SchemaTopic,
    ) -> None:
        """Append to the partitions that `find` returns; `schemas` has those of the registry."""
        self._schemas = schemas
        self._environment = environment
        self._metadata = metadata
        self._find = find
        self._budget = budget
        self._metrics = metrics
        self._rejected_batches = RejectedBatches()
        self._references = ReferenceChecks(environment, find, schemas)
        self._waits = ProducePurgatory()
        self._loop = asyncio.get_running_loop()

    @property
    def waiting(self) -> int:
        """Return how many requests wait for their acknowledgement now."""
        return len(self._waits)

    def begin(
        self,
        batches: Mapping[PartitionId, BytesLike],
        acks: int,
        timeout_ms: int,
        ended: Callable[[ProduceRequest], None],
    ) -> bool:
        """Append as `produce` does, if nothing has to be waited for; else do nothing: False.

        The append nearly always has nothing to wait for; the acknowledgement may wait after it.
        `ended` gets the job when the acknowledgement came, soon or at once, or its time is over. It
        ends the job, and has `finish` called if the job has failed.
        """
        job = ProduceRequest(batches, acks, self._loop.time() + timeout_ms / 1000)
        if not self._append_at_once(job):
            return False
        if job.request.waiting:
            self._waits.add(job.request, job.deadline, partial(ended, job))
        else:
            ended(job)
        return True

    async def finish(self, job: ProduceRequest) -> None:
        """Make sure of what a job that has ended came to (PRODUCE-7)."""
        if job.has_failed:
            await self._judge_again(job)

    async def produce(
        self,
        batches: Mapping[PartitionId, BytesLike],
        acks: int,
        timeout_ms: int,
        verified: Verified | None = None,
    ) -> dict[PartitionId, ProduceResult]:
        """Append each partition's one batch, and wait for what `acks` says (PRODUCE-3)."""
        job = ProduceRequest(batches, acks, self._loop.time() + timeout_ms / 1000, verified)
        refers = any(has_attribute(records, REFERENCE_BIT) for records in batches.values())
        if refers or not self._append_at_once(job):
            await self._append_in_turn(job, refers=refers)
        if job.request.waiting:
            await self._wait(job)
        job.end()
        await self.finish(job)
        return job.results

    def refused(self, where: PartitionId, data: BytesLike, error: SparklogError) -> None:
        """Remember a batch that is not appended, before anything else is awaited (PRODUCE-6).

        Args:
            where: its partition; of a topic that is not known yet, with what the producer calls it.
            data: the batch.
            error: the error that its producer gets.
        """
        now_s = asyncio.get_running_loop().time()
        self._rejected_batches.note(where, data, now_s, is_retried=is_retried(error))

    def _append_at_once(self, job: ProduceRequest) -> bool:
        """Append if nothing has to be waited for, as is nearly always so; False if something has.

        Nothing is awaited here, so no other request comes in between, and no turn is taken
        (PRODUCE-1, PRODUCE-2). The batches are no references.
        """
        leaders: dict[PartitionId, LeaderPartition] = {}
        work: list[tuple[BytesLike, BatchRules]] = []
        size_bytes, validates = 0, False
        for where, records in job.batches.items():
            try:
                role = self._find(where)
                if isinstance(role, RecoveringPartition) or role.append_queue.tickets:
                    return False
                role.check_open()
            except SparklogError:
                return False
            leaders[where] = role
            rules = role.rules.batches
            work.append((records, rules))
            validates = validates or rules.value_schemas or rules.key_schemas
            size_bytes += len(records)
        if size_bytes > CHECKED_INLINE_BYTES:
            return False
        outcomes = self._checked_at_once(work)
        if outcomes is None or (validates and self._needs_look(work, outcomes)):
            return False
        if not self._budget.try_take(size_bytes):
            return False
        job.leaders = leaders
        checked = self._accepted(job, leaders, outcomes)
        if len(checked) < len(leaders):
            self._budget.give_back(size_bytes - _size_of(checked))
        self._append_all(job, checked)
        if job.has_failed:
            self._note_refused(job)
        return True

    async def _append_in_turn(self, job: ProduceRequest, *, refers: bool) -> None:
        """Append when those that came before have, and what has to be waited for is there."""
        deadline = job.deadline
        if refers:
            await self._references.check(job)
        roles = self._roles(job)
        turns = [role.append_queue.take() for role in roles.values()]
        try:
            for turn in turns:
                if not turn.has_turn:
                    async with asyncio.timeout_at(deadline):
                        await turn.wait_turn()
            await self._append(job, roles)
        except TimeoutError:
            job.fail_rest(timed_out)
        finally:
            for turn in turns:
                turn.end()
            self._note_refused(job)

    def _roles(
        self, job: ProduceRequest
    ) -> dict[PartitionId, LeaderPartition | RecoveringPartition]:
        """Return what leads each partition. Those that recover are waited for if all do."""
        roles: dict[PartitionId, LeaderPartition | RecoveringPartition] = {}
        for where in job.batches:
            if where in job.results:
                continue
            try:
                roles[where] = self._find(where)
            except SparklogError as error:
                job.results[where] = error
        recovering = [w for w, role in roles.items() if isinstance(role, RecoveringPartition)]
        if len(recovering) < len(roles):
            for where in recovering:
                job.results[where] = roles.pop(where).not_ready_error()  # type: ignore[union-attr]
        return roles

    def _note_refused(self, job: ProduceRequest) -> None:
        """Remember what was not appended, before anything else is awaited (PRODUCE-6)."""
        for where, result in job.results.items():
            if isinstance(result, SparklogError):
                self.refused(where, job.batches[where], result)

    async def _judge_again(self, job: ProduceRequest) -> None:
        """Look whether what refused a producer still leads (PRODUCE-7)."""
        refused = [w for w, r in job.results.items() if isinstance(r, JUDGED) and w in job.leaders]
        if not refused or job.acks == ACKS_NONE:
            return
        doubt: SparklogError | None = None
        try:
            now_s = asyncio.get_running_loop().time()
            async with asyncio.timeout_at(max(job.deadline, now_s + LOOK_S)):
                await self._metadata.catch_up()
        except TimeoutError:
            doubt = timed_out(refused[0])
        except SparklogError as error:
            doubt = error
        for where in refused:
            if not job.leaders[where].live:
                job.results[where] = NotServing(
                    f"another broker leads the partition now; refresh metadata. partition={where}"
                )
            elif doubt is not None:
                job.results[where] = doubt

    async def _append(
        self,
        job: ProduceRequest,
        roles: Mapping[PartitionId, LeaderPartition | RecoveringPartition],
    ) -> None:
        """Append all that may be; their order is held meanwhile."""
        for role in roles.values():
            if isinstance(role, RecoveringPartition):
                left_s = job.deadline - asyncio.get_running_loop().time()
                await role.wait_ended(max(0.0, min(left_s, RECOVERY_WAIT_MAX_S)))
        leaders = job.leaders = self._leaders(job, roles)
        checked = await self._checked(job, leaders)
        size_bytes = _size_of(checked)
        if checked and not self._budget.try_take(size_bytes):
            try:
                left_s = job.deadline - asyncio.get_running_loop().time()
                await self._budget.take(size_bytes, max(0.0, left_s))
            except Unavailable as error:
                for where in checked:
                    job.results[where] = error
                return
        self._append_all(job, checked)

    def _leaders(
        self,
        job: ProduceRequest,
        roles: Mapping[PartitionId, LeaderPartition | RecoveringPartition],
    ) -> dict[PartitionId, LeaderPartition]:
        leaders: dict[PartitionId, LeaderPartition] = {}
        for where in roles:
            try:
                role = self._find(where)
                if isinstance(role, RecoveringPartition):
                    raise role.not_ready_error()
                role.check_open()
                leaders[where] = role
            except SparklogError as error:
                job.results[where] = error
        return leaders

    async def _checked(
        self, job: ProduceRequest, leaders: Mapping[PartitionId, LeaderPartition]
    ) -> dict[PartitionId, CheckedBatch]:
        if job.references:
            return self._checked_references(job, leaders)
        work = [(job.batches[where], led.rules.batches) for where, led in leaders.items()]
        outcomes = await self._outcomes(job, work)
        if self._needs_look(work, outcomes):
            error = await self._look(job)
            if error is None:
                outcomes = await self._outcomes(job, work)
            else:
                outcomes = [error if isinstance(o, UnknownSchema) else o for o in outcomes]
        return self._accepted(job, leaders, outcomes)

    def _checked_references(
        self, job: ProduceRequest, leaders: Mapping[PartitionId, LeaderPartition]
    ) -> dict[PartitionId, CheckedBatch]:
        """Return the batches whose topics have had the same settings since their check."""
        checked: dict[PartitionId, CheckedBatch] = {}
        for where, led in leaders.items():
            found = job.references[where]
            if led.rules.batches == found.rules:
                checked[where] = found.batch
            else:
                job.results[where] = Unavailable(
                    "the topic's settings changed during the check; send the batch again. "
                    f"partition={where}"
                )
        return checked

    async def _outcomes(
        self, job: ProduceRequest, work: list[tuple[BytesLike, BatchRules]]
    ) -> Sequence[CheckedBatch | SparklogError]:
        """Check batches where that holds up nothing else."""
        outcomes: Sequence[CheckedBatch | SparklogError] | None = None
        if sum(len(records) for records, _ in work) <= CHECKED_INLINE_BYTES:
            outcomes = self._checked_at_once(work)
        if outcomes is not None:
            return outcomes
        now_ms = self._environment.clock.now_ms()
        unfolded = max(
            unfolded_bytes_max(data, rules.decompressed_bytes_max) for data, rules in work
        )
        left_s = max(0.0, job.deadline - asyncio.get_running_loop().time())
        try:
            return await self._environment.unfold(
                unfolded, left_s, check_all, work, now_ms, None, self._schemas.known
            )
        except Unavailable as error:
            return [error] * len(work)

    def _needs_look(
        self,
        work: list[tuple[BytesLike, BatchRules]],
        outcomes: Sequence[CheckedBatch | SparklogError],
    ) -> bool:
        """Return True if the registry may have other schemas by now, and that matters here."""
        if not any(rules.needs_schemas for _, rules in work):
            return False
        return self._schemas.is_old or any(isinstance(o, UnknownSchema) for o in outcomes)

    async def _look(self, job: ProduceRequest) -> SparklogError | None:
        """Look for new schemas; return why that failed."""
        try:
            async with asyncio.timeout_at(job.deadline):
                await self._schemas.look()
        except TimeoutError:
            return timed_out(next(iter(job.batches)))
        except SparklogError as error:
            return error
        return None

    def _checked_at_once(
        self, work: list[tuple[BytesLike, BatchRules]]
    ) -> list[CheckedBatch | SparklogError] | None:
        """Check batches on the event loop; None if that would hold it up."""
        try:
            now_ms, loop_time = self._environment.clock.now_ms(), LoopTime(UNFOLDED_INLINE_BYTES)
            return check_all(work, now_ms, loop_time, self._schemas.known)
        except NeedsTime:
            return None

    def _accepted(
        self,
        job: ProduceRequest,
        leaders: Mapping[PartitionId, LeaderPartition],
        outcomes: Sequence[CheckedBatch | SparklogError],
    ) -> dict[PartitionId, CheckedBatch]:
        """Return the batches that their checks passed, and note why the others were refused."""
        checked: dict[PartitionId, CheckedBatch] = {}
        for where, outcome in zip(leaders, outcomes, strict=True):
            if isinstance(outcome, SparklogError):
                job.results[where] = outcome
                self._metrics.produce_failed(leaders[where].layout.topic)
            else:
                checked[where] = outcome
        return checked

    def _append_all(self, job: ProduceRequest, checked: Mapping[PartitionId, CheckedBatch]) -> None:
        """Append what was checked, and has its memory. Nothing is awaited."""
        now_ms = self._environment.clock.now_ms()
        for where, batch in checked.items():
            self._append_one(job, job.leaders[where], batch, now_ms)

    def _append_one(
        self, job: ProduceRequest, led: LeaderPartition, batch: CheckedBatch, now_ms: int
    ) -> None:
        where, topic = led.where, led.layout.topic
        size_bytes = batch.header.size_bytes
        try:
            led.check_open()
            if job.acks == ACKS_ALL:
                led.leadership.check_enough()
            self._check_order(led, batch.header)
            if where in job.references:
                found = job.references[where]
                verification = job.verification(led)
                appended = led.append_references(*found[:2], now_ms, verification)
            else:
                appended = led.append(batch, now_ms, job.verification(led))
        except SparklogError as error:
            self._budget.give_back(size_bytes)
            self._metrics.produce_failed(topic)
            job.results[where] = error
            return
        if appended.repeated:
            self._budget.give_back(size_bytes)
        else:
            self._metrics.produced(topic, batch.header.last_offset_delta + 1, size_bytes)
        job.results[where] = ProducedPartition(
            appended.base_offset, appended.append_time_ms, led.log_start_offset
        )
        if job.acks == ACKS_ALL:
            led.wait_committed(appended.end_offset, job.request)
        elif job.acks == ACKS_LEADER:
            led.wait_copied(appended.end_offset, job.request)

    def _check_order(self, led: LeaderPartition, header: BatchHeader) -> None:
        """Have a batch sent again that comes ahead of one that may come yet (PRODUCE-6)."""
        if self._rejected_batches.rejected:
            named = PartitionId(led.layout.topic, led.where.partition)
            self._rejected_batches.learn(named, led.where, header)
        if led.producers.is_ahead(header):
            now_s = asyncio.get_running_loop().time()
            self._rejected_batches.check_ahead(
                led.where, header, now_s, may_have_stragglers=led.may_have_stragglers(now_s)
            )
        elif self._rejected_batches.rejected:
            self._rejected_batches.settle(led.where, header)

    async def _wait(self, job: ProduceRequest) -> None:
        done = asyncio.get_running_loop().create_future()
        self._waits.add(job.request, job.deadline, partial(wake, done))
        try:
            await done
        finally:
            job.request.give_up()


def _size_of(batches: Mapping[PartitionId, CheckedBatch]) -> int:
    """Return the bytes of batches that are to be appended: those they take of the budget."""
    return sum(batch.header.size_bytes for batch in batches.values())
