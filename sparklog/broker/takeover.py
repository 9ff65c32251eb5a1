"""What a new leader does before it serves: bring all that may be committed into the log on storage.

Who was in sync holds all that is committed. Anybody else reads deposed leaders' write-ahead logs,
which are sealed, once for all partitions they led. Then the partition's own log is looked at, what
goes beyond it is flushed, and producers' states are rebuilt. After that nothing depends on any
write-ahead log or memory but this leader's.
  K1  sealed logs are read first, the partition's own log after them (WAL.md 5)
  K2  nothing is served before everything found is flushed, so recovery never needs two generations
  K3  every step may be repeated: after an error of the store all is done again from what is there
  K4  the first that an epoch itself puts into the log is its leader's fence. What deposed leaders
      still flush after it meets the fence; what they flushed before it was found. Where memory
      alone may hold what is committed, or a leader died while it recovered, nothing else would tell
      them that it is too late
  K5  an epoch that ended meanwhile stops at the next step and changes nothing but the log, where
      what it flushed is what any leader would have
  K6  write-ahead logs are left unread only by whom the metadata shows in sync beside others: by
      L2 of `cluster.leadership` nothing was committed that it did not have, and an incarnation that
      lost its memory left every ISR when it was replaced
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass
from typing import TypeVar

from sparklog.broker.damage import damaged
from sparklog.broker.environment import Environment
from sparklog.broker.flusher import draft_bytes_max
from sparklog.broker.merged_tails import merged
from sparklog.broker.recovering_partition import RecoveringPartition
from sparklog.broker.recovery_order import RecoveryOrder
from sparklog.broker.repeated import Repeated
from sparklog.broker.task_scope import spawn
from sparklog.core.entropy import new_nonce
from sparklog.core.errors import DataCorrupt, Fenced, OutcomeUnknown, Unavailable
from sparklog.log.effects import Protocol
from sparklog.log.flush import flush_at
from sparklog.log.layout import WalLayout
from sparklog.log.led import take_lead
from sparklog.log.producer_snapshot import load_producers
from sparklog.log.producer_state import ProducerStates
from sparklog.log.recover import SealedTail, recover_batches, seal_and_read
from sparklog.log.refresh import refresh
from sparklog.log.view import PartitionView
from sparklog.log.wire_segment import draft_batches
from sparklog.protocol.batch_header import parse_header

Result = TypeVar("Result")

logger = logging.getLogger(__name__)

RETRY_FIRST_S = 0.1
RETRY_LONGEST_S = 5.0


@dataclass(frozen=True, slots=True)
class Recovered:
    """A partition that is ready to be served."""

    view: PartitionView
    """Its end is the end of the log."""
    producers: ProducerStates


class Takeover:
    """Recovers partitions, many at a time."""

    def __init__(self, environment: Environment) -> None:
        """Read and write through `environment`."""
        self._environment = environment
        self._order = RecoveryOrder()
        self._sealed: dict[str, asyncio.Task[SealedTail]] = {}
        self._users: Counter[str] = Counter()
        """How many recoveries go on that may need a sealed log."""
        self._interrupted = Repeated()

    async def recover(self, role: RecoveringPartition) -> Recovered | None:
        """Recover a partition; None when its epoch ended, or a later one is in the log already.

        Waits for a store that does not answer. What is damaged is tried again too, seldom: somebody
        may mend it.
        """
        self._users.update(role.wals)
        try:
            return await self._recover(role)
        finally:
            self._users.subtract(role.wals)
            for name in role.wals:
                if not self._users[name]:
                    # Nobody is left who needs what was read.
                    del self._users[name]
                    reading = self._sealed.pop(name, None)
                    if reading is not None:
                        reading.cancel()

    async def _recover(self, role: RecoveringPartition) -> Recovered | None:
        wait_s = RETRY_FIRST_S
        while role.live:
            try:
                with self._order.wanting(internal=role.is_internal):
                    return await self._attempt(role)
            except Fenced as error:
                logger.warning("deposed while recovering partition=%s %s", role.where, error)
                return None
            except (Unavailable, OutcomeUnknown) as error:
                told = "recovery interrupted partition=%s %s"
                self._interrupted.warn(logger, told, role.where, error)
            except DataCorrupt as error:
                before, role.damage = role.damage, damaged(role.layout, error)
                if str(before) != str(role.damage):  # tried again and again: said once
                    logger.exception("recovery is impossible: %s", role.damage)
                wait_s = RETRY_LONGEST_S
            await asyncio.wait([role.ended], timeout=wait_s)
            wait_s = min(2 * wait_s, RETRY_LONGEST_S)
        return None

    async def _attempt(self, role: RecoveringPartition) -> Recovered | None:
        wals = () if role.has_all else role.wals
        tails = await asyncio.gather(*map(self._sealed_tail, wals))
        async with self._order.place(internal=role.is_internal):
            view = await self._run(refresh(PartitionView(role.layout)))
            _check_newest(view, role)
            _check_joined(view, role)
            batches = merged(view, recover_batches(tails, view), role.held.tail)
            while batches and role.live:
                view = await self._flush(role, view, batches)
                batches = _beyond(batches, view.end_offset)
            return await self._led(role, view) if role.live else None

    async def _led(self, role: RecoveringPartition, view: PartitionView) -> Recovered | None:
        """Put the fence at the end of `view`, and meanwhile see what producers came to."""
        nonce = new_nonce(self._environment.entropy)
        now_ms = self._environment.clock.now_ms()
        loading = spawn(self._run(load_producers(view, now_ms)))
        try:
            marked = await self._run(take_lead(view, role.leader_epoch, nonce))
            producers = await loading
        finally:
            loading.cancel()
        if marked.end_offset > view.end_offset:  # a deposed leader's flush came before
            producers = await self._run(load_producers(marked, now_ms))
        return Recovered(marked, producers) if role.live else None

    async def _flush(
        self, role: RecoveringPartition, view: PartitionView, batches: list[bytes]
    ) -> PartitionView:
        """Flush a segment's worth of `batches`, which begin at the end of `view`."""
        nonce = new_nonce(self._environment.entropy)
        draft = await self._environment.unfold(
            draft_bytes_max(batches, role.rules),
            None,
            lambda: draft_batches(
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
        """Read a sealed log once for all who need it now."""
        reading = self._sealed.get(name)
        if reading is None or (reading.done() and (reading.cancelled() or reading.exception())):
            broker_id, _, incarnation = name.partition("-")
            layout = WalLayout(int(broker_id), incarnation)
            nonce = new_nonce(self._environment.entropy)
            reading = spawn(self._run(seal_and_read(layout, nonce)))
            reading.add_done_callback(_read)
            self._sealed[name] = reading
        return await asyncio.shield(reading)

    async def _run(self, protocol: Protocol[Result]) -> Result:
        return await self._environment.store.run(protocol)


def _check_newest(view: PartitionView, role: RecoveringPartition) -> None:
    if view.leader_epoch > role.leader_epoch:
        raise Fenced(
            "a later leader has written to the partition's log; do not serve it. "
            f"partition={role.where} leader_epoch={role.leader_epoch} "
            f"epoch_in_log={view.leader_epoch}"
        )


def _check_joined(view: PartitionView, role: RecoveringPartition) -> None:
    """Look whether what this broker holds joins the log, if nothing else is looked at (K6)."""
    tail = role.held.tail
    if role.has_all and tail.start_offset > view.end_offset:
        role.has_all = False
        raise Unavailable(
            "what was replicated does not join the partition's log; deposed leaders' logs are read "
            f"as well. partition={role.where} log_end_offset={view.end_offset} "
            f"tail_start_offset={tail.start_offset}"
        )


def _beyond(batches: list[bytes], end_offset: int) -> list[bytes]:
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


def _read(reading: asyncio.Task[SealedTail]) -> None:
    """Say, once for all who wanted to know, what a log has lost; take note of an error."""
    if reading.cancelled() or reading.exception() is not None:
        return
    tail = reading.result()
    if tail.broken_at is not None:
        logger.error(
            "an object of a write-ahead log that was not forced to the disk is torn or gone, as "
            "after a power cut with wal.fsync=false: what was acknowledged from there on and not "
            "flushed is lost unless the log was cleared by now. object=%s",
            tail.layout.key(tail.broken_at),
        )
