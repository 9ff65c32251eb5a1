"""InFlight: the records of one partition that a share group has begun to deliver. Pure.

The records from the start offset to the end offset have a state each. Neighbours in one state are
one run, so a member that acknowledges whole batches costs no work per record.

  IN-FLIGHT-1: each record is in one state. A record before the start offset is finished; the first
      record at the start offset is not, unless the window is empty
  IN-FLIGHT-2: AVAILABLE is left for ACQUIRED only, or for ARCHIVED when the log start moves or the
      record cannot be delivered. ACQUIRED goes to any state. ACKNOWLEDGED and ARCHIVED stay
  IN-FLIGHT-3: one member has an acquired record. Others cannot acknowledge, release or renew it
  IN-FLIGHT-4: the delivery count of a record rises when it is acquired, and only then. A record
      whose count is at the limit is archived in place of a release
  IN-FLIGHT-5: the window has at most `records_max` records
  IN-FLIGHT-6: a state that was stored and replayed equals this one, but for acquired records: they
      are available, with the count as of their last change
  IN-FLIGHT-7: a group with a dead letter topic archives a record that it gives up only when its
      dead letter is written. Until then the record is ACQUIRED by no member. It is stored as
      available with a count at the limit, so the next leader finds it by `give_up`

Times are ms. Source: KIP-932; Kafka's `SharePartition`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from sparklog.coordinator.share.delivery_state import DeliveryState, StateBatch
from sparklog.coordinator.share.errors import InvalidRecordState

NOBODY: Final = ""
NEVER_MS: Final = -1
_FINISHED: Final = frozenset({DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED})


class Acknowledgement(IntEnum):
    """The answer of a member about a record, by Kafka's numbers."""

    GAP = 0
    """The log has no such record."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    """The member needs more time."""


class Run(NamedTuple):
    """Neighbouring records in one state; both offsets are included."""

    first: int
    last: int
    state: DeliveryState
    delivery_count: int
    """Deliveries so far."""
    member_id: str = NOBODY
    """The member that has acquired the records."""
    deadline_ms: int = NEVER_MS
    """When its lock expires."""

    def cut(self, first: int, last: int) -> Run:
        """Return the part of the run from `first` to `last`."""
        return self._replace(first=max(first, self.first), last=min(last, self.last))

    def continues(self, before: Run) -> bool:
        """Return True if this run and the one before it can be one."""
        return before.last + 1 == self.first and before[2:] == self[2:]


class AcquiredBatch(NamedTuple):
    """Records that a member gets; both offsets are included."""

    first_offset: int
    last_offset: int
    delivery_count: int


class DeadLetters(NamedTuple):
    """Records that the group gives up; both offsets are included."""

    first_offset: int
    last_offset: int
    delivery_count: int
    rejected: bool
    """True if a member rejected them; else they were delivered too often."""


@dataclass(slots=True)
class StateChange:
    """A change to store, and the records that the group has given up with it."""

    batches: list[StateBatch] = field(default_factory=list)
    dead: list[DeadLetters] = field(default_factory=list)
    moved: bool = False
    """True if the start offset has changed."""

    def __bool__(self) -> bool:
        """Return True if there is anything to store."""
        return bool(self.batches) or self.moved


@dataclass(frozen=True, slots=True)
class DeliveryRules:
    """A group's settings for deliveries."""

    lock_ms: int
    """`share.record.lock.duration.ms`."""
    count_max: int
    """`share.delivery.count.limit`."""
    records_max: int
    """`share.partition.max.record.locks`."""
    buries: bool = False
    """The group has a dead letter topic."""


class InFlight:
    """The window of one share group in one partition; see the module."""

    def __init__(self, start_offset: int, batches: Iterable[StateBatch] = ()) -> None:
        """Begin with a stored state, in which no record is acquired."""
        self.start_offset = start_offset
        """The first record that is not finished."""
        self._runs: list[Run] = []
        at = start_offset
        for batch in batches:
            if batch.last_offset < at:
                continue
            if batch.first_offset > at:
                self._runs.append(Run(at, batch.first_offset - 1, DeliveryState.AVAILABLE, 0))
            first = max(at, batch.first_offset)
            self._runs.append(Run(first, batch.last_offset, batch.state, batch.delivery_count))
            at = batch.last_offset + 1
        self._settle(StateChange())

    @property
    def end_offset(self) -> int:
        """Return the offset after the last record that was delivered or skipped."""
        return self._runs[-1].last + 1 if self._runs else self.start_offset

    @property
    def runs(self) -> Sequence[Run]:
        """Return the states from the start offset to the end offset, without a hole."""
        return self._runs

    @property
    def next_offset(self) -> int:
        """Return the first offset that a member may acquire."""
        for run in self._runs:
            if run.state is DeliveryState.AVAILABLE:
                return run.first
        return self.end_offset

    @property
    def next_deadline_ms(self) -> int | None:
        """Return when the first lock expires, or None."""
        deadlines = (run.deadline_ms for run in self._runs if run.deadline_ms != NEVER_MS)
        return min(deadlines, default=None)

    @property
    def complete_count(self) -> int:
        """Return the number of finished records beyond the start offset."""
        return sum(run.last - run.first + 1 for run in self._runs if run.state in _FINISHED)

    def count_of(self, state: DeliveryState) -> int:
        """Return the number of records in a state, between start and end offset."""
        return sum(run.last - run.first + 1 for run in self._runs if run.state is state)

    def acquire(
        self,
        member_id: str,
        first: int,
        last: int,
        records_max: int,
        rules: DeliveryRules,
        now_ms: int,
    ) -> list[AcquiredBatch]:
        """Acquire available records from `first` to `last`, which the log has.

        Offsets that the log lacks are acquired as well; a member acknowledges them as gaps.
        """
        first = max(first, self.start_offset)
        self._extend(first, last, rules)
        found: list[AcquiredBatch] = []
        left = records_max
        for run in self._between(first, last):
            if left <= 0:
                break
            if run.state is not DeliveryState.AVAILABLE:
                continue
            most = min(left, _batch_max(run, rules))
            taken = run.cut(run.first, run.first + most - 1)
            if found and _is_last_try(taken, rules):
                break  # the last try of a record goes out alone
            self._put(
                taken._replace(
                    state=DeliveryState.ACQUIRED,
                    delivery_count=taken.delivery_count + 1,
                    member_id=member_id,
                    deadline_ms=now_ms + rules.lock_ms,
                )
            )
            found.append(AcquiredBatch(taken.first, taken.last, taken.delivery_count + 1))
            left -= most
            if most < run.last - run.first + 1 or _is_last_try(taken, rules):
                break
        self._settle(StateChange())
        return found

    def acknowledge(
        self,
        member_id: str,
        first: int,
        types: Sequence[tuple[int, Acknowledgement]],
        rules: DeliveryRules,
        now_ms: int,
    ) -> StateChange:
        """Apply a member's answers about records from `first` on: lengths with their types.

        Raises:
            InvalidRecordState: the member has not acquired one of them. Nothing was changed.
        """
        last = first + sum(length for length, _ in types) - 1
        self.check_acquired(member_id, first, last)
        change, at = StateChange(), first
        for length, kind in types:
            until = at + length - 1
            for run in self._between(max(at, self.start_offset), until):
                self._decide(run, kind, rules, now_ms, change)
            at = until + 1
        self._settle(change)
        return change

    def check_acquired(self, member_id: str, first: int, last: int) -> None:
        """Check that a member has acquired the records from `first` to `last`.

        Raises:
            InvalidRecordState: the member has not acquired one of them.
        """
        if first < self.start_offset or last >= self.end_offset or last < first:
            raise InvalidRecordState(
                "records outside of the window cannot be acknowledged. "
                f"offsets={first}-{last} window={self.start_offset}-{self.end_offset}"
            )
        for run in self._between(first, last):
            if run.state is not DeliveryState.ACQUIRED or run.member_id != member_id:
                raise InvalidRecordState(
                    "the member has not acquired the records, or no longer. "
                    f"offsets={run.first}-{run.last} state={run.state.name}"
                )

    def release(self, member_id: str, rules: DeliveryRules) -> StateChange:
        """Release all that a member has; it has left, or its connection was lost."""
        return self._release([r for r in self._runs if r.member_id == member_id], rules)

    def expire(self, rules: DeliveryRules, now_ms: int) -> StateChange:
        """Release the records whose locks have expired."""
        locked = (run for run in self._runs if run.deadline_ms != NEVER_MS)
        return self._release([run for run in locked if run.deadline_ms <= now_ms], rules)

    def give_up(self, rules: DeliveryRules) -> StateChange:
        """Give up available records that were delivered as often as the limit allows.

        There are some after a change of leader (IN-FLIGHT-7), or when the limit was lowered.
        """
        available = [run for run in self._runs if run.state is DeliveryState.AVAILABLE]
        return self._release([r for r in available if r.delivery_count >= rules.count_max], rules)

    def buried(self, first: int, last: int) -> StateChange:
        """Archive records from `first` to `last` whose dead letters are written."""
        change = StateChange()
        for run in self._between(max(first, self.start_offset), last):
            if run.state is DeliveryState.ACQUIRED and run.member_id == NOBODY:
                self._finish(run, DeliveryState.ARCHIVED, change)
        self._settle(change)
        return change

    def skip(self, first: int, last: int, rules: DeliveryRules) -> StateChange:
        """Archive available records from `first` to `last`: the log has no records for members.

        The window may end before `last`; then the rest follows when it has moved.
        """
        change = StateChange()
        while self._runs or not first <= self.start_offset <= last:
            start = self.start_offset
            self._extend(max(first, start), last, rules)
            for run in self._between(max(first, start), last):
                if run.state is DeliveryState.AVAILABLE:
                    self._finish(run, DeliveryState.ARCHIVED, change)
            self._settle(change)
            if self.start_offset == start or self.start_offset > last:
                return change
        self.start_offset, change.moved = last + 1, True
        return change

    def move_start(self, log_start_offset: int) -> StateChange:
        """Archive what the log has lost: all before its start."""
        change = StateChange()
        if log_start_offset <= self.start_offset:
            return change
        kept = [run.cut(log_start_offset, run.last) for run in self._runs]
        self._runs = [run for run in kept if run.first <= run.last]
        self.start_offset, change.moved = log_start_offset, True
        self._settle(change)
        return change

    def stored_between(self, first: int, last: int) -> list[StateBatch]:
        """Return the states from `first` to `last` as they are stored; see `stored`."""
        return [_stored(run) for run in self._between(first, last)] if first <= last else []

    def stored(self) -> tuple[StateBatch, ...]:
        """Return the whole state as it is stored; acquired records are available (IN-FLIGHT-6)."""
        return tuple(_stored(run) for run in self._runs)

    def _decide(
        self,
        run: Run,
        kind: Acknowledgement,
        rules: DeliveryRules,
        now_ms: int,
        change: StateChange,
    ) -> None:
        if kind is Acknowledgement.RENEW:
            self._put(run._replace(deadline_ms=now_ms + rules.lock_ms))
        elif kind is Acknowledgement.ACCEPT:
            self._finish(run, DeliveryState.ACKNOWLEDGED, change)
        elif kind is Acknowledgement.RELEASE:
            self._give_back(run, rules, change)
        elif kind is Acknowledgement.REJECT:
            self._bury(run, rules, change, rejected=True)
        else:
            self._finish(run, DeliveryState.ARCHIVED, change)

    def _release(self, runs: Iterable[Run], rules: DeliveryRules) -> StateChange:
        change = StateChange()
        for run in runs:
            self._give_back(run, rules, change)
        self._settle(change)
        return change

    def _give_back(self, run: Run, rules: DeliveryRules, change: StateChange) -> None:
        if run.delivery_count >= rules.count_max:
            self._bury(run, rules, change, rejected=False)
        else:
            self._finish(run, DeliveryState.AVAILABLE, change)

    def _bury(self, run: Run, rules: DeliveryRules, change: StateChange, *, rejected: bool) -> None:
        """Give up records; with a dead letter topic they wait for their dead letters."""
        change.dead.append(DeadLetters(run.first, run.last, run.delivery_count, rejected=rejected))
        if not rules.buries:
            self._finish(run, DeliveryState.ARCHIVED, change)
            return
        count = max(run.delivery_count, rules.count_max)
        after = Run(run.first, run.last, DeliveryState.ACQUIRED, count)
        self._put(after)
        change.batches.append(_stored(after))

    def _finish(self, run: Run, state: DeliveryState, change: StateChange) -> None:
        after = Run(run.first, run.last, state, run.delivery_count)
        self._put(after)
        change.batches.append(_stored(after))

    def _extend(self, first: int, last: int, rules: DeliveryRules) -> None:
        """Let the window reach to `last`, as far as it may (IN-FLIGHT-5)."""
        end = self.end_offset
        last = min(last, self.start_offset + rules.records_max - 1)
        if last >= end and first <= last:
            self._runs.append(Run(end, last, DeliveryState.AVAILABLE, 0))

    def _between(self, first: int, last: int) -> list[Run]:
        """Return the runs from `first` to `last`, cut to these."""
        at = self._index(first)
        found = []
        while at < len(self._runs) and self._runs[at].first <= last:
            found.append(self._runs[at].cut(first, last))
            at += 1
        return found

    def _index(self, offset: int) -> int:
        """Return the index of the run with an offset; of the first one if none has it."""
        return max(0, bisect_right(self._runs, offset, key=lambda run: run.first) - 1)

    def _put(self, run: Run) -> None:
        """Replace a part of one run."""
        at = self._index(run.first)
        old = self._runs[at]
        parts = [old.cut(old.first, run.first - 1), run, old.cut(run.last + 1, old.last)]
        self._runs[at : at + 1] = [part for part in parts if part.first <= part.last]

    def _settle(self, change: StateChange) -> None:
        """Join equal neighbours, and move the start offset over finished records."""
        joined: list[Run] = []
        for run in self._runs:
            if not joined and run.state in _FINISHED:
                self.start_offset, change.moved = run.last + 1, True
            elif joined and run.continues(joined[-1]):
                joined[-1] = joined[-1]._replace(last=run.last)
            else:
                joined.append(run)
        self._runs = joined


def _stored(run: Run) -> StateBatch:
    """Return a run as it is stored: acquired records are available."""
    acquired = run.state is DeliveryState.ACQUIRED
    state = DeliveryState.AVAILABLE if acquired else run.state
    return StateBatch(run.first, run.last, state, run.delivery_count)


def _batch_max(run: Run, rules: DeliveryRules) -> int:
    """Return how many records of a run go out at once: fewer, the more often they failed.

    From half of the limit on, each delivery has half as many. So one bad record among good ones is
    found before all of them are given up.
    """
    size = run.last - run.first + 1
    throttled_from = max(2, (rules.count_max + 1) // 2)
    if run.delivery_count < throttled_from:
        return size
    if _is_last_try(run, rules):
        return 1
    return max(1, size >> (run.delivery_count - throttled_from + 1))


def _is_last_try(run: Run, rules: DeliveryRules) -> bool:
    return run.delivery_count == rules.count_max - 1 and run.delivery_count > 0
