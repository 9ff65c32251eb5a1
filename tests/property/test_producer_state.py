"""Idempotent and transactional producers against lists: what was appended, in which order.

Producers send, lose answers and send again, get new epochs, begin and end transactions. The log
is a list of batches; leaders change, and rebuild the state from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sparklog.core.errors import InvalidProducerEpoch, InvalidTxnState, OutOfOrderSequence
from sparklog.log.tail.producer_rebuild import replay_batch, restored, snapshot
from sparklog.log.tail.producer_state import Duplicate, ProducerStates
from sparklog.protocol.records.control import EndTransactionMarker, encode_end_transaction
from sparklog.protocol.records.header import (
    INT32_MAX,
    BatchHeader,
    increment_sequence,
    parse_header,
)
from tests.harness.wire_batches import placed, produced

producer_ids = st.sampled_from([1, 2])
WRAPS_SOON = INT32_MAX - 3


@dataclass
class Sender:
    """A well-behaved producer: the batches of its epoch, in order."""

    epoch: int = 0
    next_sequence: int = 0
    taken: tuple[tuple[int, int, int], ...] = ()
    """(base sequence, count, base offset) of what the log has of this epoch."""


@dataclass(frozen=True)
class Ended:
    """A transaction of the model."""

    producer_id: int
    first: int
    last: int
    is_commit: bool


class ProducerMachine(RuleBasedStateMachine):
    """One partition, two producers."""

    @initialize(first=st.sampled_from([0, WRAPS_SOON]))
    def begin(self, first: int) -> None:
        self.states = ProducerStates()
        self.log: list[bytes] = []
        self.end = 0
        self.high_watermark = 0
        self.senders = {n: Sender(next_sequence=first) for n in (1, 2)}
        self.open: dict[int, int] = {}
        self.ended: list[Ended] = []
        self.now_ms = 0

    def batch(self, producer_id: int, epoch: int, sequence: int, count: int, txn: bool) -> bytes:
        return bytes(
            produced(
                [5] * count,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                is_transactional=txn,
            ).data
        )

    def append(self, data: bytes) -> BatchHeader:
        self.log.append(placed(data, self.end, 1))
        header = parse_header(self.log[-1])
        self.end = header.end_offset
        return header

    @rule(producer_id=producer_ids, count=st.integers(1, 3), txn=st.booleans())
    def send_the_next(self, producer_id: int, count: int, txn: bool) -> None:
        sender = self.senders[producer_id]
        data = self.batch(producer_id, sender.epoch, sender.next_sequence, count, txn)
        if producer_id in self.open and not txn:
            try:
                self.states.check(parse_header(data))
            except InvalidTxnState:
                return
            raise AssertionError("a plain batch was let into a transaction")
        assert self.states.check(parse_header(data)) is None
        if txn:
            self.open.setdefault(producer_id, self.end)
        header = self.append(data)
        self.states.record(header, header.base_offset, self.now_ms)
        sender.taken += ((sender.next_sequence, count, header.base_offset),)
        sender.next_sequence = increment_sequence(sender.next_sequence, count)

    @rule(producer_id=producer_ids, batches=st.integers(2, 7))
    def send_several(self, producer_id: int, batches: int) -> None:
        for _ in range(batches):
            self.send_the_next(producer_id, 1, producer_id in self.open)

    @rule(producer_id=producer_ids, back=st.integers(1, 7), txn=st.booleans())
    def send_again(self, producer_id: int, back: int, txn: bool) -> None:
        sender = self.senders[producer_id]
        if len(sender.taken) < back:
            return
        sequence, count, base_offset = sender.taken[-back]
        data = self.batch(producer_id, sender.epoch, sequence, count, txn)
        try:
            found = self.states.check(parse_header(data))
        except OutOfOrderSequence:
            assert back > 5
            return
        assert back <= 5
        assert isinstance(found, Duplicate)
        assert (found.base_offset, found.end_offset) == (base_offset, base_offset + count)

    @rule(producer_id=producer_ids, skip=st.integers(1, 5))
    def send_with_one_missing(self, producer_id: int, skip: int) -> None:
        sender = self.senders[producer_id]
        if not sender.taken:
            return
        sequence = increment_sequence(sender.next_sequence, skip)
        self.is_refused(self.batch(producer_id, sender.epoch, sequence, 1, True))

    @rule(producer_id=producer_ids)
    def a_new_epoch(self, producer_id: int) -> None:
        sender = self.senders[producer_id]
        if producer_id in self.open or not sender.taken:
            return
        sender.epoch += 1
        self.is_refused(self.batch(producer_id, sender.epoch, 1, 1, True))
        sender.next_sequence, sender.taken = 0, ()
        self.send_the_next(producer_id, 1, False)

    @rule(producer_id=producer_ids)
    def a_zombie_sends(self, producer_id: int) -> None:
        sender = self.senders[producer_id]
        if sender.taken and sender.epoch:
            data = self.batch(producer_id, sender.epoch - 1, sender.next_sequence, 1, True)
            try:
                self.states.check(parse_header(data))
            except InvalidProducerEpoch:
                return
            raise AssertionError("a zombie was let in")

    def is_refused(self, data: bytes) -> None:
        try:
            self.states.check(parse_header(data))
        except OutOfOrderSequence:
            return
        raise AssertionError("a batch with others missing before it was let in")

    @rule(producer_id=producer_ids, is_commit=st.booleans())
    def end_the_transaction(self, producer_id: int, is_commit: bool) -> None:
        epoch = self.senders[producer_id].epoch
        self.states.check_marker(producer_id, epoch, 3)
        marker = EndTransactionMarker(is_commit, 3)
        data = encode_end_transaction(
            marker,
            base_offset=self.end,
            timestamp_ms=5,
            producer_id=producer_id,
            producer_epoch=epoch,
            leader_epoch=1,
        )
        header = self.append(data)
        self.states.record_marker(producer_id, epoch, marker, header.base_offset, self.now_ms)
        first = self.open.pop(producer_id, None)
        if first is not None:
            self.ended.append(Ended(producer_id, first, header.base_offset, is_commit))

    @rule(part=st.floats(0, 1))
    def commit(self, part: float) -> None:
        self.high_watermark += round(part * (self.end - self.high_watermark))

    @rule()
    def another_leader_replays_the_log(self) -> None:
        self.states = ProducerStates()
        for data in self.log:
            replay_batch(self.states, data, self.now_ms)

    @rule(at=st.floats(0, 1))
    def another_leader_starts_from_a_snapshot(self, at: float) -> None:
        earlier = ProducerStates()
        cut = round(at * len(self.log))
        for data in self.log[:cut]:
            replay_batch(earlier, data, self.now_ms)
        self.states = restored(snapshot(earlier))
        for data in self.log[cut:]:
            replay_batch(self.states, data, self.now_ms)
        self.high_watermark = max(
            self.high_watermark, parse_header(self.log[cut - 1]).end_offset if cut else 0
        )

    @invariant()
    def readers_stop_before_what_is_undecided(self) -> None:
        undecided = list(self.open.values())
        undecided += [t.first for t in self.ended if t.last >= self.high_watermark]
        expected = min([self.high_watermark, *undecided])
        assert self.states.transactions.last_stable_offset(self.high_watermark) == expected

    @rule(part=st.floats(0, 1), size=st.integers(0, 10))
    def aborted_transactions_of_a_range(self, part: float, size: int) -> None:
        base = round(part * self.end)
        wanted = [
            t for t in self.ended if not t.is_commit and t.last >= base and t.first < base + size
        ]
        stable = self.states.transactions.last_stable_offset(self.high_watermark)
        if base + size > stable:
            return
        found = self.states.transactions.aborted_between(base, base + size)
        assert [(t.producer_id, t.first_offset, t.last_offset) for t in found] == [
            (t.producer_id, t.first, t.last) for t in wanted
        ]

    @rule()
    def time_passes(self) -> None:
        self.now_ms += 10
        known = {producer_id: one.written_ms for producer_id, one in self.states}
        gone = self.states.expire(self.now_ms, 1_000_000)
        assert gone == 0
        assert {producer_id: one.written_ms for producer_id, one in self.states} == known


TestProducers = ProducerMachine.TestCase
TestProducers.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
