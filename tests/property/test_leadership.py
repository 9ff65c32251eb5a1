"""A leader beside the truth: followers that lag, restart and come back, metadata that comes late.

The machine plays the followers, the WAL, the controller and the metadata log. The leader learns of
a metadata change some time after it is true. The invariants judge what brokers really hold.
"""

from __future__ import annotations

from copy import deepcopy

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sparklog.cluster.controller.leader_state import (
    CommitRules,
    Event,
    ExpandIsr,
    HighWatermark,
    LeaderState,
    ShrinkIsr,
)

LEADER = 0
LAG_MAX_MS = 100
follower_ids = st.sampled_from([1, 2])
share = st.sampled_from([0.0, 0.5, 1.0])


class LeadershipMachine(RuleBasedStateMachine):
    """Three brokers, one of them leads for the whole run."""

    @initialize(
        waits=st.booleans(),
        isr=st.sampled_from([(0,), (0, 1), (0, 1, 2)]),
        held=st.tuples(st.integers(0, 10), st.integers(0, 10)),
    )
    def begin(self, waits: bool, isr: tuple[int, ...], held: tuple[int, int]) -> None:
        self.now_ms = 1_000
        self.held = {LEADER: 10, 1: held[0], 2: held[1]}
        """Log end of each broker, as it really is."""
        self.isr = frozenset(isr)
        """As the metadata log really has it."""
        self.registered = {1: 0, 2: 0}
        """Incarnation of each follower."""
        self.heard = dict(self.registered)
        self.fenced: set[int] = set()
        self.taken_out: set[int] = set()
        """Removed by the controller, without the leader's knowledge."""
        self.proposal: tuple[ExpandIsr | ShrinkIsr, dict[int, int]] | None = None
        self.commit_rules = CommitRules(waits_for_storage=waits, replica_lag_time_max_ms=LAG_MAX_MS)
        self.leader = LeaderState(
            LEADER,
            10,
            replicas=(0, 1, 2),
            isr=isr,
            joinable=(0, 1, 2),
            rules=self.commit_rules,
            now_ms=self.now_ms,
        )
        self.high_watermark = 10

    def take(self, events: tuple[Event, ...]) -> None:
        for event in events:
            if isinstance(event, HighWatermark):
                assert event.offset > self.high_watermark
                self.high_watermark = event.offset
                self.check_commit(event.offset)
            else:
                assert self.proposal is None
                self.proposal = (event, dict(self.heard))
                if isinstance(event, ShrinkIsr):
                    assert event.broker_ids <= self.leader.isr - {LEADER}
                    left = self.leader.isr - event.broker_ids
                    assert len(left) > 1 or self.leader.durable_end >= self.high_watermark

    def check_commit(self, offset: int) -> None:
        """Judge a commit by who really holds it."""
        members = self.isr | {LEADER}
        assert all(self.held[b] >= offset for b in members)
        if self.commit_rules.waits_for_storage:
            assert offset <= self.leader.durable_end
        elif offset > self.leader.durable_end:
            assert len((self.isr | self.taken_out) - {LEADER}) >= 1

    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        self.held[LEADER] += count
        self.leader.appended(self.held[LEADER])

    @rule(part=share)
    def wal_acknowledges(self, part: float) -> None:
        behind = self.leader.log_end - self.leader.durable_end
        self.take(self.leader.durable(self.leader.durable_end + round(part * behind)))

    @rule()
    def flush(self) -> None:
        self.leader.flushed(self.leader.high_watermark)

    @rule(broker_id=follower_ids, arrives=st.booleans(), part=share)
    def fetch(self, broker_id: int, arrives: bool, part: float) -> None:
        self.held[broker_id] = max(self.held[broker_id], self.leader.flushed_end)
        offset = self.held[broker_id]
        if self.heard[broker_id] == self.registered[broker_id]:
            twin = deepcopy(self.leader)
            if twin.follower_waits(broker_id, offset, self.now_ms):
                events = self.leader.follower_fetched(broker_id, offset, self.now_ms)
                assert not events
                assert twin.follower(broker_id) == self.leader.follower(broker_id)
            else:
                assert twin.follower(broker_id) == self.leader.follower(broker_id)
                self.take(self.leader.follower_fetched(broker_id, offset, self.now_ms))
        if arrives:
            self.held[broker_id] += round(part * (self.held[LEADER] - offset))

    @rule(ms=st.sampled_from([1, LAG_MAX_MS // 2, LAG_MAX_MS + 1]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        self.take(self.leader.tick(self.now_ms))

    @rule(broker_id=follower_ids)
    def restart(self, broker_id: int) -> None:
        self.registered[broker_id] += 1
        self.held[broker_id] = 0
        self.take_out(broker_id)

    @rule(broker_id=follower_ids)
    def fence(self, broker_id: int) -> None:
        self.fenced.add(broker_id)
        self.take_out(broker_id)

    def take_out(self, broker_id: int) -> None:
        if broker_id in self.isr:
            self.isr -= {broker_id}
            self.taken_out.add(broker_id)

    @rule(broker_id=follower_ids)
    def unfence(self, broker_id: int) -> None:
        self.fenced.discard(broker_id)

    @precondition(lambda self: self.proposal is not None)
    @rule()
    def the_proposal_reaches_the_metadata_log(self) -> None:
        assert self.proposal is not None
        change, heard = self.proposal
        match change:
            case ExpandIsr(broker_id):
                same = heard[broker_id] == self.registered[broker_id]
                if broker_id in self.fenced or not same:
                    return
                self.isr |= {broker_id}
            case ShrinkIsr(broker_ids):
                self.isr -= broker_ids

    @precondition(lambda self: self.proposal is not None)
    @rule()
    def the_proposal_turns_out_refused(self) -> None:
        assert self.proposal is not None
        change, _ = self.proposal
        if isinstance(change, ExpandIsr) and change.broker_id not in self.isr:
            self.proposal = None
            self.take(self.leader.isr_refused())

    @rule()
    def the_leader_hears_the_metadata(self) -> None:
        for broker_id, incarnation in self.registered.items():
            if incarnation != self.heard[broker_id]:
                self.leader.forget(broker_id)
        self.heard = dict(self.registered)
        self.taken_out.clear()
        was_pending = self.leader.pending
        events = self.leader.metadata_changed(
            replicas=(0, 1, 2),
            isr=self.isr,
            joinable={0, 1, 2} - self.fenced,
            now_ms=self.now_ms,
        )
        if was_pending is not None and self.leader.pending is None:
            self.proposal = None
        self.take(events)

    @invariant()
    def whoever_may_be_elected_has_what_is_committed(self) -> None:
        assert all(
            max(self.held[b], self.leader.flushed_end) >= self.leader.high_watermark
            for b in self.isr
        )

    @invariant()
    def ends_are_in_order(self) -> None:
        one = self.leader
        assert one.flushed_end <= one.high_watermark <= one.log_end
        assert one.high_watermark == self.high_watermark
        assert one.minimal_isr <= one.isr <= one.maximal_isr
        assert (one.pending is None) == (self.proposal is None)


TestLeadership = LeadershipMachine.TestCase
TestLeadership.settings = settings(max_examples=300, stateful_step_count=60, deadline=None)
