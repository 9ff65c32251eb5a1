"""SharePartition: one share group in one partition, at the partition's leader.

It has the group's window of records in flight, as long as this broker leads the partition in one
epoch. Another leader, or the same one in a later epoch, begins with the stored state.
  SHARE-PARTITION-1: an acknowledgement is answered when the state is stored, not before
  SHARE-PARTITION-2: one write of the state is under way at a time; changes meanwhile go with the
      next one. So the stored state never goes back
  SHARE-PARTITION-3: after a write that failed the window may be ahead of the stored state, so it
      is dropped. Members acquire the records again: a record may come twice, and none is lost
  SHARE-PARTITION-4: the start offset that the reset policy has found is stored before the first
      record is delivered. Else a later leader could find a later one, and skip records

Times are ms of the loop's clock. Source: KIP-932; Kafka's `SharePartition`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from sparklog.broker.partition.leader import LeaderPartition
from sparklog.broker.runtime.deadline_timer import DeadlineTimer
from sparklog.broker.runtime.environment import TaskScope
from sparklog.broker.share.acquired_batches import DeliverableBatches
from sparklog.broker.share.state_client import ShareStateClient
from sparklog.coordinator.share.delivery_state import (
    NO_START_OFFSET,
    SharePartitionKey,
    ShareStateUpdate,
)
from sparklog.coordinator.share.in_flight import (
    Acknowledgement,
    AcquiredBatch,
    DeadLetters,
    DeliveryRules,
    InFlight,
    StateChange,
)
from sparklog.coordinator.share.settings import ShareGroupSettings
from sparklog.core.errors import NotServing, SparklogError

RECORDS_MAX: Final = 2**31 - 1


class AcknowledgementBatch(NamedTuple):
    """The answers of a member about records from `first_offset` on: lengths with their types."""

    first_offset: int
    types: Sequence[tuple[int, Acknowledgement]]


def now_ms() -> int:
    """Return the time of the loop's clock in ms."""
    return int(asyncio.get_running_loop().time() * 1000)


class SharePartition:
    """See the module. For the event loop only."""

    def __init__(
        self,
        key: SharePartitionKey,
        led: LeaderPartition,
        states: ShareStateClient,
        tasks: TaskScope,
        *,
        settings: Callable[[], ShareGroupSettings],
        reset: Callable[[LeaderPartition, ShareGroupSettings], Awaitable[int]],
        bury: Callable[[SharePartition, Sequence[DeadLetters]], None],
        idle: Callable[[SharePartition], None],
    ) -> None:
        """Begin without a state: see `load`.

        Args:
            key: the group and the partition.
            led: the partition, in one leader epoch.
            states: reads and writes the stored state.
            tasks: the scope of this incarnation's tasks.
            settings: returns the group's settings.
            reset: finds the start offset by the group's reset policy.
            bury: called with records that need a dead letter.
            idle: called when all changes are written.
        """
        self.key = key
        self.led = led
        self.window = InFlight(0)
        self.failure: SparklogError | None = None
        """Why the window is dropped, if it is."""
        self.retired = False
        """True once no member has a session: the next one begins with the stored state, which an
        administrator may have changed. Until then the window only waits for dead letters."""
        self._states = states
        self._tasks = tasks
        self._settings = settings
        self._reset = reset
        self._bury = bury
        self._idle = idle
        self._state_epoch = 0
        self._loaded: asyncio.Event | None = None
        self._changes: list[StateChange] = []
        self._writers: list[asyncio.Future[None]] = []
        self._all_written = asyncio.Event()
        self._all_written.set()
        self._timer = DeadlineTimer(self._expire)
        self._waiting: dict[asyncio.Event, None] = {}

    @property
    def live(self) -> bool:
        """Return whether the window holds: this broker leads, and has dropped nothing."""
        return self.failure is None and self.led.live

    @property
    def is_writing(self) -> bool:
        """Return whether changes are not stored yet."""
        return not self._all_written.is_set()

    async def written(self) -> None:
        """Wait until all changes are stored, or the window is dropped."""
        await self._all_written.wait()

    @property
    def is_behind_log(self) -> bool:
        """Return whether the log has lost the next record: its start has moved."""
        return self.window.next_offset < self.led.log_start_offset

    def resigned(self) -> NotServing:
        """Return the error of members once another broker leads the partition."""
        return NotServing(
            f"another broker leads the partition now; refresh metadata. partition={self.key}"
        )

    @property
    def rules(self) -> DeliveryRules:
        """Return the group's rules for deliveries, as they are now."""
        found = self._settings()
        return DeliveryRules(
            found.lock_ms, found.count_max, found.records_max, bool(found.dead_letter_topic)
        )

    @property
    def may_acquire(self) -> bool:
        """Return whether there may be a record for a member."""
        window = self.window
        if window.next_offset < window.end_offset:
            return True
        return window.end_offset - window.start_offset < self.rules.records_max

    async def load(self) -> None:
        """Read the stored state, once.

        Raises:
            SparklogError: the state cannot be read; try again.
        """
        if self._loaded is None:
            self._loaded = asyncio.Event()
            self._tasks.start(self._load(self._loaded), f"load share state {self.key}")
        await self._loaded.wait()
        self.check_live()

    def follow_log_start(self) -> None:
        """Archive what the log has lost, and give up what was delivered too often."""
        change = self.window.move_start(self.led.log_start_offset)
        given_up = self.window.give_up(self.rules)
        self._store(change)
        self._store(given_up)

    def acquire(
        self, member_id: str, offset: int, found: DeliverableBatches, records: int, *, strict: bool
    ) -> list[AcquiredBatch]:
        """Acquire records for a member from batches that were read from `offset` on.

        Args:
            member_id: the member.
            offset: where the read began.
            found: the batches.
            records: the number of records that the member wants.
            strict: `record_limit`: never more records than that. Else whole batches.
        """
        rules, change = self.rules, StateChange()
        for first, last in found.skipped:
            skipped = self.window.skip(first, last, rules)
            change.batches += skipped.batches
            change.moved |= skipped.moved
        acquired: list[AcquiredBatch] = []
        if found.batches:
            last = found.last_offset(offset, RECORDS_MAX if strict else records)
            most = records if strict else RECORDS_MAX
            acquired = self.window.acquire(member_id, offset, last, most, rules, now_ms())
        self._store(change)
        self._set_timer()
        return acquired

    async def acknowledge(self, member_id: str, batches: Sequence[AcknowledgementBatch]) -> None:
        """Apply a member's answers, all or none; return when the state is stored.

        Raises:
            InvalidRecordState: the member has not acquired a record. Nothing was changed.
            SparklogError: the state was not stored, as far as is known.
        """
        self.check_live()
        for batch in batches:
            length = sum(one for one, _ in batch.types)
            last = batch.first_offset + length - 1
            self.window.check_acquired(member_id, batch.first_offset, last)
        written: asyncio.Future[None] | None = None
        for batch in batches:
            change = self.window.acknowledge(
                member_id, batch.first_offset, batch.types, self.rules, now_ms()
            )
            written = self._store(change) or written
        self._set_timer()
        if written is not None:
            await written

    def release(self, member_id: str) -> None:
        """Release all that a member has acquired."""
        self._store(self.window.release(member_id, self.rules))
        self._set_timer()

    def buried(self, letters: DeadLetters) -> None:
        """Archive records whose dead letters are written."""
        if self.live:
            self._store(self.window.buried(letters.first_offset, letters.last_offset))

    def wake(self, event: asyncio.Event) -> None:
        """Set `event` at each change after which there may be a record for a member."""
        self._waiting[event] = None

    def forget(self, event: asyncio.Event) -> None:
        """Set `event` no more."""
        self._waiting.pop(event, None)

    def check_live(self) -> None:
        """Raise unless the window holds.

        Raises:
            NotServing: another broker leads the partition.
            SparklogError: the window was dropped.
        """
        if self.failure is not None:
            raise self.failure
        if not self.led.live:
            raise self.resigned()

    def drop(self, why: SparklogError) -> None:
        """Drop the window; members that wait for a write get `why`."""
        if self.failure is not None:
            return
        self.failure = why
        self._timer.cancel()
        writers, self._writers, self._changes = self._writers, [], []
        for waiting in writers:
            _fail(waiting, why)
        self._wake_all()

    async def _load(self, loaded: asyncio.Event) -> None:
        try:
            state = await self._states.read(self.key, self.led.leader_epoch)
            self._state_epoch = state.state_epoch
            start = state.start_offset
            if start == NO_START_OFFSET:
                start = await self._reset(self.led, self._settings())
            self.window = InFlight(start, state.batches)
            if state.start_offset == NO_START_OFFSET:
                written = self._store(StateChange(moved=True))
                if written is not None:
                    await written
            self.follow_log_start()
        except SparklogError as error:
            self.drop(error)
        finally:
            loaded.set()

    def _store(self, change: StateChange) -> asyncio.Future[None] | None:
        """Write a change with the next write; return what ends with it, or None."""
        if change.dead and self.rules.buries:
            self._bury(self, change.dead)
        if not change:
            return None
        self._wake_all()
        self._changes.append(change)
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._writers.append(waiting)
        if not self.is_writing:
            self._all_written.clear()
            self._tasks.start(self._write_all(), f"write share state {self.key}")
        return waiting

    async def _write_all(self) -> None:
        try:
            while self._changes and self.live:
                await self._write_next()
        finally:
            self._all_written.set()
            if not self.live:
                self.drop(self.resigned())
            self._idle(self)

    async def _write_next(self) -> None:
        changes, self._changes = self._changes, []
        writers, self._writers = self._writers, []
        try:
            await self._states.write(self._update(changes))
        except (SparklogError, asyncio.CancelledError) as error:
            self._writers = writers + self._writers
            self.drop(error if isinstance(error, SparklogError) else self.resigned())
            if not isinstance(error, SparklogError):
                raise
        else:
            for waiting in writers:
                if not waiting.done():
                    waiting.set_result(None)

    def _update(self, changes: Sequence[StateChange]) -> ShareStateUpdate:
        """Return the states that the records of some changes have now."""
        ranges = sorted((b.first_offset, b.last_offset) for one in changes for b in one.batches)
        window, batches, at = self.window, [], self.window.start_offset
        for first, last in ranges:
            batches += window.stored_between(max(first, at), last)
            at = max(at, last + 1)
        return ShareStateUpdate(
            self.key,
            self._state_epoch,
            self.led.leader_epoch,
            window.start_offset,
            tuple(batches),
            window.complete_count,
        )

    def _expire(self, due_by_s: float) -> None:
        if self.live:
            self._store(self.window.expire(self.rules, int(due_by_s * 1000)))
            self._set_timer()

    def _set_timer(self) -> None:
        deadline_ms = self.window.next_deadline_ms
        if deadline_ms is not None and self.live:
            self._timer.set_no_later(deadline_ms / 1000)

    def _wake_all(self) -> None:
        for event in self._waiting:
            event.set()


def _fail(waiting: asyncio.Future[None], why: SparklogError) -> None:
    if not waiting.done():
        waiting.set_exception(why)
        waiting.exception()  # the member may be gone
