"""LeaderRecovery: a new leader flushes all records that may be committed, before it serves.

A broker that was in sync has all committed records. Any other broker first reads the write-ahead
logs of deposed leaders. It seals each of them, and reads it once for all partitions that the leader
led. Then it reads the end of the partition's own log, flushes the batches beyond that end, and
rebuilds the producers' states. After that, the partition depends only on its own log, and on this
leader's memory and write-ahead log.
  REPLICATION-RECOVERY-1: sealed logs are read first, the partition's own log after them (WAL.md 5)
  REPLICATION-RECOVERY-2: a leader serves only after it has flushed all batches that it found. So
      recovery never needs the write-ahead logs of two generations of leaders
  REPLICATION-RECOVERY-3: every step may be repeated: after an error of the store, recovery starts
      again from the present state of the storage
  REPLICATION-RECOVERY-4: the first object that an epoch itself puts into the log is its leader's
      fence. Recovery found all that deposed leaders flushed before it; a later flush of theirs
      conflicts with it. Nothing else stops them where memory alone may hold committed records, or
      where a leader died during its recovery
  REPLICATION-RECOVERY-5: if the epoch ends meanwhile, recovery stops at the next step. It has then
      changed only the log, and any leader would have flushed the same records
  REPLICATION-RECOVERY-6: recovery skips the write-ahead logs only if the metadata shows this
      broker in sync beside other brokers. By LEADER-STATE-2 it then has
      every committed record. An incarnation that lost its memory left every ISR when it was
      replaced

RecoveryQueue: the order of recoveries when a broker takes over many partitions. Clients wait for
the partitions that they write to. Partitions of internal topics may be many more and are mostly
empty, and their clients retry by themselves. So they get few slots while any other partition
recovers, and all slots afterwards.

`merged` (pure): the batches that a new leader has beyond the partition's own log, from sealed WALs
and its own replica's tail. The batches of one leader epoch are one sequence, and every copy is a
prefix of it. A leader begins only after all batches that it found are in the partition's own log.
So among batches at one offset the one with the highest epoch is right. A batch with a lower epoch
than the batch before it was never committed.
  REPLICATION-RECOVERY-7: the result continues the end of the log without gaps, and epochs never
      fall
  REPLICATION-RECOVERY-8: the result has all batches of the sealed logs; the tail only continues
      where they end
  REPLICATION-RECOVERY-9: windows that are read before their log is sealed save requests, and decide
      nothing: recovery lists the sealed log, and reads all that it does not have
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from sparklog.broker.partition.recovering import RecoveringPartition, damaged
from sparklog.broker.replication.flusher import draft_bytes_max
from sparklog.broker.runtime.environment import Environment, caught, shielded, spawn
from sparklog.broker.runtime.log_limiter import RateLimitedLog
from sparklog.core.backoff import Backoff
from sparklog.core.entropy import new_nonce
from sparklog.core.errors import DataCorrupt, Fenced, OutcomeUnknown, Unavailable
from sparklog.log.effects import Program
from sparklog.log.layout import WalLayout
from sparklog.log.manifest.refresh import refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.leader_append import flush_at, take_leadership
from sparklog.log.tail.producer_snapshot import load_producers
from sparklog.log.tail.producer_state import ProducerStates
from sparklog.log.tail.tail import Tail
from sparklog.log.tail.to_segment import build_flush
from sparklog.log.wal.objects import WalBatch, WalObject
from sparklog.log.wal.recovery import SealedTail, read_early, recover_batches, seal_and_read
from sparklog.protocol.records.header import parse_header


def merged(view: PartitionView, sealed: Sequence[WalBatch], tail: Tail) -> list[bytes]:
    """Return the batches from the end of `view` on that the new leader flushes to the log.

    Args:
        view: of the partition's own log, read after the sealed logs.
        sealed: from `recover_batches`.
        tail: of this broker's replica, as a follower or as the leader of earlier epochs.

    Raises:
        DataCorrupt: at one offset the tail has a later epoch than a sealed log.
    """
    batches = [batch.data for batch in sealed]
    end, epoch = view.end_offset, view.leader_epoch
    if sealed:
        last = parse_header(sealed[-1].data)
        end, epoch = last.end_offset, last.leader_epoch
        known = tail.epoch_at(last.base_offset)
        in_tail = tail.start_offset <= last.base_offset < tail.end_offset
        if in_tail and known > epoch:
            raise DataCorrupt(
                "a replica has records of a later leader than a sealed write-ahead log for the "
                f"same offset; run verify. partition={view.layout.folder} "
                f"offset={last.base_offset} epoch={epoch} epoch_in_replica={known}"
            )
        if not in_tail or known != epoch:
            return batches
    return [*batches, *_continued(tail, end, epoch)]


def _continued(tail: Tail, end: int, epoch: int) -> list[bytes]:
    """Return the tail's batches from `end` on, if one begins there and is not of an older epoch."""
    if not tail.start_offset <= end < tail.end_offset:
        return []
    batches = tail.batches(end, tail.end_offset)
    if not batches:
        return []
    first = parse_header(batches[0])
    return batches if first.base_offset == end and first.leader_epoch >= epoch else []


RECOVERIES_MAX: Final = 24
"""Recoveries at once; the same as the store's concurrent requests, since each mostly waits."""
INTERNAL_BESIDE_OTHERS: Final = 1
"""Internal partitions that recover at once while partitions of users recover."""
EARLY_LOGS_MAX: Final = 4
"""Write-ahead logs that are read before they are sealed."""
EARLY_BYTES_MAX: Final = 16 << 20
"""Bytes kept of each; recovery reads what else there is."""
EARLY_KEPT_S: Final = 10.0
"""Longer than a controller waits for a broker that it does not reach to show itself."""


class RecoveryQueue:
    """Places for concurrent recoveries. Not thread-safe: for the event loop only."""

    def __init__(self) -> None:
        """Begin with every slot free."""
        self._user_partitions = 0
        """Partitions of users that wait for recovery or recover."""
        self._granted = 0
        self._granted_internal = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._waiting_internal: deque[asyncio.Future[None]] = deque()

    @contextmanager
    def announce(self, *, internal: bool) -> Iterator[None]:
        """Announce that a partition is to recover, before it waits for anything."""
        self._user_partitions += not internal
        try:
            yield
        finally:
            self._user_partitions -= not internal
            self._grant()

    @asynccontextmanager
    async def slot(self, *, internal: bool) -> AsyncIterator[None]:
        """Wait for a slot, and return it afterwards."""
        await self._acquire(internal)
        try:
            yield
        finally:
            self._release(internal)

    async def _acquire(self, internal: bool) -> None:
        turn = asyncio.get_running_loop().create_future()
        (self._waiting_internal if internal else self._waiting).append(turn)
        self._grant()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._release(internal)
            raise

    def _release(self, internal: bool) -> None:
        self._granted -= 1
        self._granted_internal -= internal
        self._grant()

    def _grant(self) -> None:
        while self._waiting and self._granted < RECOVERIES_MAX:
            self._granted += _wake(self._waiting.popleft())
        most = INTERNAL_BESIDE_OTHERS if self._user_partitions else RECOVERIES_MAX
        while (
            self._waiting_internal
            and self._granted < RECOVERIES_MAX
            and self._granted_internal < most
        ):
            woken = _wake(self._waiting_internal.popleft())
            self._granted += woken
            self._granted_internal += woken


def _wake(turn: asyncio.Future[None]) -> bool:
    """Wake the recovery that waits; return False if it was cancelled."""
    if turn.done():
        return False
    turn.set_result(None)
    return True


Result = TypeVar("Result")

logger = logging.getLogger(__name__)

RETRY_FIRST_S = 0.1
RETRY_LONGEST_S = 5.0


@dataclass(frozen=True, slots=True)
class Recovered:
    """The state of a partition that is ready to serve."""

    view: PartitionView
    """Of the partition's own log; its end is the log end offset."""
    producers: ProducerStates


class LeaderRecovery:
    """Recovers partitions, many at a time."""

    def __init__(self, environment: Environment) -> None:
        """Read and write through `environment`."""
        self._environment = environment
        self._queue = RecoveryQueue()
        self._sealed: dict[str, asyncio.Task[SealedTail | Exception]] = {}
        self._recoveries: Counter[str] = Counter()
        """For each sealed log, the number of running recoveries that may need it."""
        self._early: dict[WalLayout, asyncio.Task[dict[int, WalObject]]] = {}
        self._suspected: dict[int, WalLayout] = {}
        """By broker id: the newest log that was read early. None is read twice."""
        self._interrupted = RateLimitedLog()

    async def read_early(self, layout: WalLayout) -> None:
        """Read the log of a broker that may be dead, and keep it a while for `recover`.

        Other brokers take time to find out whether it is dead. Recovery would read then.
        """
        if self._suspected.get(layout.broker_id) == layout or len(self._early) == EARLY_LOGS_MAX:
            return
        self._suspected[layout.broker_id] = layout
        reading = self._early[layout] = spawn(self._run(read_early(layout, EARLY_BYTES_MAX)))
        try:
            await asyncio.sleep(EARLY_KEPT_S)
        finally:
            reading.cancel()
            del self._early[layout]

    async def recover(self, role: RecoveringPartition) -> Recovered | None:
        """Recover a partition; return None if its epoch ended or the log has a later epoch.

        Retries while the store does not respond. Retries seldom if the log is damaged, because the
        operator may repair it.
        """
        self._recoveries.update(role.wals)
        try:
            return await self._recover(role)
        finally:
            self._recoveries.subtract(role.wals)
            for name in role.wals:
                if not self._recoveries[name]:
                    # No other recovery needs this log.
                    del self._recoveries[name]
                    reading = self._sealed.pop(name, None)
                    if reading is not None:
                        reading.cancel()

    async def _recover(self, role: RecoveringPartition) -> Recovered | None:
        backoff = Backoff(RETRY_FIRST_S, RETRY_LONGEST_S)
        while role.live:
            try:
                with self._queue.announce(internal=role.is_internal):
                    return await self._attempt(role)
            except Fenced as error:
                logger.warning("deposed while recovering partition=%s %s", role.where, error)
                return None
            except (Unavailable, OutcomeUnknown) as error:
                text = "recovery interrupted partition=%s %s"
                self._interrupted.warn(logger, text, role.where, error)
            except DataCorrupt as error:
                before, role.damage = role.damage, damaged(role.layout, error)
                if str(before) != str(role.damage):  # log a damage once, not at each retry
                    logger.exception("recovery is impossible: %s", role.damage)
                backoff.skip_to_longest()
            await asyncio.wait([role.ended], timeout=backoff.next_s())
        return None

    async def _attempt(self, role: RecoveringPartition) -> Recovered | None:
        wals = () if role.has_all_committed else role.wals
        tails = await asyncio.gather(*map(self._sealed_tail, wals))
        async with self._queue.slot(internal=role.is_internal):
            view = await self._run(refresh(PartitionView(role.layout)))
            _check_newest(view, role)
            _check_joined(view, role)
            batches = merged(view, recover_batches(tails, view), role.held.tail)
            while batches and role.live:
                view = await self._flush(role, view, batches)
                batches = _batches_from(batches, view.end_offset)
            return await self._fence_and_load(role, view) if role.live else None

    async def _fence_and_load(
        self, role: RecoveringPartition, view: PartitionView
    ) -> Recovered | None:
        """Put the fence at the end of `view`, and load the producers' states meanwhile."""
        nonce = new_nonce(self._environment.entropy)
        now_ms = self._environment.clock.now_ms()
        loading = spawn(self._run(load_producers(view, now_ms)))
        try:
            fenced = await self._run(take_leadership(view, role.leader_epoch, nonce))
            producers = await loading
        finally:
            loading.cancel()
        if fenced.end_offset > view.end_offset:  # a deposed leader flushed before the fence
            producers = await self._run(load_producers(fenced, now_ms))
        return Recovered(fenced, producers) if role.live else None

    async def _flush(
        self, role: RecoveringPartition, view: PartitionView, batches: list[bytes]
    ) -> PartitionView:
        """Flush a segment's worth of `batches`, which begin at the end of `view`."""
        nonce = new_nonce(self._environment.entropy)
        draft = await self._environment.unfold(
            draft_bytes_max(batches, role.rules),
            None,
            lambda: build_flush(
                role.layout,
                batches,
                nonce,
                codec=role.rules.codec,
                level=role.rules.zstd_level,
                indexes_keys=role.rules.indexes_keys,
            ),
        )
        if not role.live:
            return view
        return await self._run(flush_at(view, draft, role.leader_epoch))

    async def _sealed_tail(self, name: str) -> SealedTail:
        """Seal and read a write-ahead log, once for all present recoveries that need it."""
        reading = self._sealed.get(name)
        if reading is None or (reading.done() and _failed(reading)):
            broker_id, _, incarnation = name.partition("-")
            layout = WalLayout(int(broker_id), incarnation)
            nonce = new_nonce(self._environment.entropy)
            reading = spawn(caught(self._seal_and_read(layout, nonce)))
            reading.add_done_callback(_log_lost_batches)
            self._sealed[name] = reading
        return await shielded(reading)

    async def _seal_and_read(self, layout: WalLayout, nonce: str) -> SealedTail:
        early, known = self._early.get(layout), None
        if early is not None:
            await asyncio.wait([early])
            if not early.cancelled() and early.exception() is None:
                known = early.result()
        return await self._run(seal_and_read(layout, nonce, known))

    async def _run(self, program: Program[Result]) -> Result:
        return await self._environment.store.run(program)


def _check_newest(view: PartitionView, role: RecoveringPartition) -> None:
    if view.leader_epoch > role.leader_epoch:
        raise Fenced(
            "a later leader has written to the partition's log; do not serve it. "
            f"partition={role.where} leader_epoch={role.leader_epoch} "
            f"epoch_in_log={view.leader_epoch}"
        )


def _check_joined(view: PartitionView, role: RecoveringPartition) -> None:
    """Raise if the tail leaves a gap where recovery relies on it (REPLICATION-RECOVERY-6)."""
    tail = role.held.tail
    if role.has_all_committed and tail.start_offset > view.end_offset:
        role.has_all_committed = False
        raise Unavailable(
            "a gap is between the partition's log and this replica; recovery reads the write-ahead "
            f"logs as well. partition={role.where} log_end_offset={view.end_offset} "
            f"tail_start_offset={tail.start_offset}"
        )


def _batches_from(batches: list[bytes], end_offset: int) -> list[bytes]:
    """Return the batches from `end_offset` on.

    Raises:
        DataCorrupt: the log ends inside one of them.
    """
    for at, batch in enumerate(batches):
        header = parse_header(batch)
        if header.end_offset > end_offset:
            if header.base_offset < end_offset:
                raise DataCorrupt(
                    "the partition's log ends inside a batch of its leaders; run verify. "
                    f"log_end_offset={end_offset} base_offset={header.base_offset}"
                )
            return batches[at:]
    return []


def _failed(reading: asyncio.Task[SealedTail | Exception]) -> bool:
    return reading.cancelled() or isinstance(reading.result(), Exception)


def _log_lost_batches(reading: asyncio.Task[SealedTail | Exception]) -> None:
    """Log, once per sealed log, the batches that it lost."""
    tail = None if reading.cancelled() else reading.result()
    if isinstance(tail, SealedTail) and tail.broken_at is not None:
        logger.error(
            "a write-ahead log has a torn or missing object, as after a power cut with "
            "wal.fsync=false: records acknowledged from there on and not flushed are lost, "
            "unless the log was cleared by now. object=%s",
            tail.layout.key(tail.broken_at),
        )
