"""The transaction coordinator against a log that can be read again at any time.

Producers of both protocols begin, add partitions, end, repeat themselves and are replaced. Time
passes, markers arrive late or again, and coordinators change. The list of records is the committed
state; nothing else survives a change of coordinator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sparklog.coordinator.effects import CoordinatorRecord, CoordinatorResult, ProducerIdentity
from sparklog.coordinator.transaction.shard import (
    TransactionShard,
    WriteMarkers,
)
from sparklog.coordinator.transaction.state import (
    ENDING,
    EPOCH_MAX,
    TRANSITIONS,
    TransactionMetadata,
    TransactionState,
    decode,
    decode_key,
    encode,
)
from sparklog.coordinator.transaction.transaction import (
    EndTransaction,
    InitProducer,
    NeedsProducerId,
)
from sparklog.core.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTxnState,
    ProducerFenced,
    SparklogError,
)
from tests.harness.coordinator_settings import transaction_settings

NAME = "payments"
TIMEOUT_MS = 10_000
SETTINGS = transaction_settings(max_timeout_ms=TIMEOUT_MS, expiration_ms=100_000)
REFUSALS = (ConcurrentTransactions, InvalidProducerIdMapping, InvalidTxnState, ProducerFenced)

partitions = st.frozensets(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2)), min_size=1, max_size=3
)


@dataclass
class Producer:
    """A client: what it has, and what it thinks of its transaction."""

    version: int
    identity: ProducerIdentity
    is_open: bool = False
    asked: EndTransaction | None = None
    """The last end it asked for."""


class Coordinators(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000_000
        self.next_id = 1000
        self.log: list[CoordinatorRecord] = []
        self.errands: list[WriteMarkers] = []
        self.sent: list[WriteMarkers] = []
        self.epoch = 1
        self.newest: Producer | None = None
        self.replaced: list[Producer] = []
        self.given: set[ProducerIdentity] = set()
        self.shard = TransactionShard(SETTINGS, self.epoch)

    @initialize(epoch=st.sampled_from([-1, 0, EPOCH_MAX - 5, EPOCH_MAX - 3, EPOCH_MAX - 2]))
    def begin(self, epoch: int) -> None:
        if epoch >= 0:
            self.log.append(encode(TransactionMetadata(NAME, 999, epoch, TIMEOUT_MS, self.now_ms)))
        self.reload()

    # The world around the shard.

    def ask(self, event: Callable[[int | None], CoordinatorResult]) -> object:
        """Run an event as the shell does; return its reply, or raise it."""
        before = self.state()
        try:
            effects = event(None)
        except NeedsProducerId:
            self.next_id += 1
            effects = event(self.next_id)
        except SparklogError:
            assert self.state() == before, "a refusal changed something"
            raise
        self.take(effects)
        ((_, reply),) = effects.replies
        if isinstance(reply, SparklogError):
            raise reply
        return reply

    def take(self, effects: CoordinatorResult) -> None:
        self.log += effects.records
        for errand in effects.errands:
            assert isinstance(errand, WriteMarkers)
            self.errands = [errand]

    def state(self) -> TransactionMetadata | None:
        return self.shard._transactions.get(NAME)

    def reload(self) -> None:
        self.epoch += 1
        before, self.shard = self.shard, TransactionShard(SETTINGS, self.epoch)
        for offset, record in enumerate(self.log):
            self.shard.replay(
                record,
                offset=offset,
                timestamp_ms=0,
                producer_id=-1,
                producer_epoch=-1,
                transactional=False,
            )
        if len(before):
            assert before._transactions == self.shard._transactions
        self.errands = []
        self.take(self.shard.loaded(self.now_ms))

    # Events.

    @rule(version=st.sampled_from([0, 2]))
    def a_new_producer(self, version: int) -> None:
        asked, before = InitProducer(NAME, TIMEOUT_MS), self.state()
        try:
            identity = self.ask(lambda i: self.shard.init_producer(0, asked, i, self.now_ms))
        except ConcurrentTransactions:
            return
        finally:
            if self.newest is not None and self.state() != before:
                self.replaced.append(self.newest)
                self.newest = None
        assert isinstance(identity, ProducerIdentity)
        assert identity not in self.given
        assert identity.producer_epoch < EPOCH_MAX
        self.given.add(identity)
        self.newest = Producer(version, identity)

    @precondition(lambda self: self.newest)
    @rule()
    def the_producer_goes_on_after_an_error(self) -> None:
        producer = self.newest
        assert producer is not None
        asked = InitProducer(NAME, TIMEOUT_MS, producer.identity)
        try:
            found = self.ask(lambda i: self.shard.init_producer(0, asked, i, self.now_ms))
            again = self.ask(lambda i: self.shard.init_producer(0, asked, i, self.now_ms))
        except ConcurrentTransactions:
            producer.is_open = False
            self.newest = None  # its transaction was aborted, and it will get that error
            return
        except ProducerFenced:
            self.newest = None
            return
        assert found == again, "asking again gave another epoch"
        assert isinstance(found, ProducerIdentity)
        self.given.add(found)
        producer.identity, producer.is_open, producer.asked = found, False, None

    @precondition(lambda self: self.newest and not self.newest.asked)
    @rule(where=partitions)
    def add(self, where: frozenset[tuple[str, int]]) -> None:
        producer = self.newest
        assert producer is not None
        try:
            self.ask(
                lambda _: self.shard.add_partitions(
                    0, NAME, producer.identity, where, producer.version, self.now_ms
                )
            )
        except ConcurrentTransactions:
            state = self.state()
            assert state is not None
            assert state.state in ENDING
            return
        except ProducerFenced:
            assert self.timed_out(producer)
            self.newest = None
            return
        producer.is_open = True
        state = self.state()
        assert state is not None
        assert where <= state.partitions
        assert self.shard.verify(0, NAME, producer.identity, where).replies == ((0, where),)

    def timed_out(self, producer: Producer) -> bool:
        """Say whether an abort on behalf of time is the newest that happened."""
        state = self.state()
        return (
            state is None
            or state.producer_epoch > producer.identity.producer_epoch + 1
            or state.producer_epoch == EPOCH_MAX
        )

    @precondition(lambda self: self.newest and self.newest.is_open and not self.newest.asked)
    @rule(is_commit=st.booleans(), answered=st.booleans())
    def end(self, is_commit: bool, answered: bool) -> None:
        producer = self.newest
        assert producer is not None
        producer.asked = EndTransaction(NAME, producer.identity, is_commit, producer.version)
        self.ask_to_end(producer, answered)

    @precondition(lambda self: self.newest and self.newest.version == 2 and not self.newest.asked)
    @precondition(lambda self: self.newest and not self.newest.is_open)
    @rule()
    def abort_nothing(self) -> None:
        """End again at once, with what the last answer gave: wait for that end, nothing worse."""
        producer = self.newest
        assert producer is not None
        asked = EndTransaction(NAME, producer.identity, False, producer.version)
        before = self.state()
        assert before is not None
        try:
            found = self.ask(lambda i: self.shard.end(0, asked, i, self.now_ms))
        except ConcurrentTransactions:
            assert before.state in ENDING
            return
        except ProducerFenced:
            assert self.timed_out(producer)
            self.newest = None
            return
        assert isinstance(found, ProducerIdentity)
        assert before.state not in ENDING
        producer.identity = found
        self.given.add(found)

    @precondition(lambda self: self.newest and self.newest.asked)
    @rule()
    def end_again(self) -> None:
        assert self.newest is not None
        self.ask_to_end(self.newest, True)

    def ask_to_end(self, producer: Producer, answered: bool) -> None:
        asked = producer.asked
        assert asked is not None
        try:
            found = self.ask(lambda i: self.shard.end(0, asked, i, self.now_ms))
        except ConcurrentTransactions:
            return
        except ProducerFenced:
            assert self.timed_out(producer)
            self.newest = None
            return
        assert isinstance(found, ProducerIdentity)
        assert self.outcomes()[-1] == asked.is_commit
        if answered:
            assert (found == producer.identity) == (producer.version < 2)
            producer.identity, producer.is_open, producer.asked = found, False, None
            self.given.add(found)

    @precondition(lambda self: self.replaced)
    @rule(data=st.data(), where=partitions, is_commit=st.booleans())
    def who_was_replaced_can_do_nothing(
        self, data: st.DataObject, where: frozenset[tuple[str, int]], is_commit: bool
    ) -> None:
        old = data.draw(st.sampled_from(self.replaced))
        before = self.state()
        for event in (
            lambda _: self.shard.add_partitions(
                0, NAME, old.identity, where, old.version, self.now_ms
            ),
            lambda i: self.shard.end(
                0, EndTransaction(NAME, old.identity, is_commit, old.version), i, self.now_ms
            ),
        ):
            with pytest.raises(REFUSALS):
                self.ask(event)
        assert self.state() == before

    @precondition(lambda self: self.errands)
    @rule(again=st.booleans())
    def markers_are_written(self, again: bool) -> None:
        (done,) = self.errands
        self.errands = []
        self.sent.append(done)
        for _ in range(1 + again):
            self.take(self.shard.complete(0, done, self.now_ms))
        state = self.state()
        assert state is not None
        assert state.state not in ENDING
        assert not state.partitions

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def a_late_note_that_markers_were_written_changes_nothing(self, data: st.DataObject) -> None:
        old = data.draw(st.sampled_from(self.sent))
        if self.errands and old == self.errands[0]:
            return
        before = self.state()
        self.take(self.shard.complete(0, old, self.now_ms))
        assert self.state() == before

    @rule(ms=st.sampled_from([1, TIMEOUT_MS, 200_000]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        deadline_ms = self.shard.next_deadline_ms
        before = self.state()
        self.take(self.shard.expire(self.now_ms))
        if deadline_ms is None or deadline_ms > self.now_ms:
            assert self.state() == before
            return
        after = self.state()
        assert before is not None
        if before.state is TransactionState.ONGOING:
            assert after is not None
            assert after.state is TransactionState.PREPARE_ABORT
            assert after.producer_epoch > before.producer_epoch
        else:
            assert after is None
            self.newest = None
            self.replaced = []

    @rule()
    def another_coordinator(self) -> None:
        self.reload()

    # Invariants.

    def states(self) -> list[TransactionMetadata | None]:
        return [None if r.value is None else decode(decode_key(r.key), r.value) for r in self.log]

    def outcomes(self) -> list[bool]:
        return [s.is_commit for s in self.states() if s is not None and s.state in ENDING]

    @invariant()
    def states_follow_the_table_and_epochs_never_fall(self) -> None:
        states = self.states()
        for before, after in pairwise(states):
            if before is None or after is None:
                continue
            assert after.state in TRANSITIONS[before.state], (before, after)
            if after.producer_id == before.producer_id:
                assert after.producer_epoch >= before.producer_epoch
            else:
                assert before.producer_epoch >= EPOCH_MAX - 1
                assert after.producer_epoch == 0
            if before.state in ENDING:
                assert after.is_commit == before.is_commit

    @invariant()
    def what_is_prepared_is_under_way(self) -> None:
        state = self.state()
        is_ending = state is not None and state.state in ENDING
        assert bool(self.errands) == is_ending


TestCoordinators = Coordinators.TestCase
TestCoordinators.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_due_transactions_are_found_in_rounds() -> None:
    settings = transaction_settings(
        max_timeout_ms=TIMEOUT_MS, expiration_ms=50_000, abort_interval_ms=7_000,
        expiry_interval_ms=40_000,
    )  # fmt: skip
    shard = TransactionShard(settings, 1)
    shard.init_producer(1, InitProducer(NAME, 10_000), 1000, 0)
    assert shard.next_deadline_ms == 80_000
    producer = ProducerIdentity(1000, 0)
    shard.add_partitions(2, NAME, producer, frozenset({("a", 0)}), 2, 1_000)
    assert shard.next_deadline_ms == 14_000
    assert not shard.expire(13_999).records
    aborted = shard.expire(14_000)
    assert [type(errand) for errand in aborted.errands] == [WriteMarkers]
