"""Fetch sessions: both sides together against a client that asks for everything each time."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparklog.broker.fetch.read import FetchedPartition
from sparklog.broker.fetch.session import (
    EVICTABLE_AFTER_S,
    FetchContext,
    FetchSessionCache,
    FetchSessionIdNotFound,
    InvalidFetchSessionEpoch,
    PartKey,
    RequestedPartition,
    next_epoch,
)
from sparklog.broker.partition.follower import FetchPosition
from sparklog.broker.partition.purgatory import FetchWaits
from sparklog.broker.replication.fetcher import FetchSessionHandler
from sparklog.core.config.model import INT_MAX
from sparklog.core.entropy import SeededEntropy
from sparklog.core.errors import InvalidRequest, NotServing
from sparklog.core.types import PartitionId

TOPIC = "t" * 22
PARTITIONS = 5
SETTLED_AFTER = 4
"""Fetches until there is no news: one may find its session gone, one gets the log's start, one has
the records, and one reports that.
"""


@dataclass
class Leader:
    """Partitions with a start and an end, or an error; each unit is one batch of one byte."""

    sessions: FetchSessionCache
    starts: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    ends: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    broken: set[int] = field(default_factory=set)
    news: list[FetchWaits] = field(
        default_factory=lambda: [FetchWaits(PartitionId(TOPIC, n)) for n in range(PARTITIONS)]
    )
    looked_at: int = 0
    """Partitions at the last fetch."""

    def told(self, turn: FetchContext) -> dict[int, FetchedPartition | NotServing]:
        """Look at what is wanted, and return what to say of it."""
        self.looked_at = len(turn.wanted)
        return {
            key[1]: outcome
            for key, at in turn.wanted.items()
            for outcome in [self.answer(turn, key, at)]
            if turn.answers(key, outcome)
        }

    def answer(
        self, turn: FetchContext, key: PartKey, at: FetchPosition
    ) -> FetchedPartition | NotServing:
        """Read a partition; a session that is up to date gets its last answer again."""
        outcome, told = self.outcome(key[1], at), turn.placed(key, PartitionId(TOPIC, key[1]))
        if told is None or not isinstance(outcome, FetchedPartition) or outcome.batches:
            return outcome
        said = told.high_watermark, told.log_start_offset
        same = said == (outcome.high_watermark, outcome.log_start_offset)
        if not same or at.offset != outcome.high_watermark:
            return outcome
        if turn.watch is not None:
            turn.watch.rest(self.news[key[1]], at)
        return told

    def outcome(self, number: int, at: FetchPosition) -> FetchedPartition | NotServing:
        if number in self.broken:
            return NotServing("elsewhere")
        start, end = self.starts[number], self.ends[number]
        if at.offset < start:  # flushed: a follower begins where that ends
            return FetchedPartition([], end, end, start)
        return FetchedPartition([b"x"] * max(0, end - at.offset), end, end, start)


@dataclass
class Follower:
    """Records that a follower has of each partition, and its last answer."""

    session: FetchSessionHandler = field(default_factory=FetchSessionHandler)
    ends: dict[int, int] = field(default_factory=dict)
    marks: dict[int, int] = field(default_factory=dict)

    def fetch(self, leader: Leader, *, loses_answer: bool) -> int:
        """Fetch once; return how many partitions were named."""
        ask = self.session.build_request(
            {PartitionId(TOPIC, n): FetchPosition(end, 10) for n, end in self.ends.items()}
        )
        asked = RequestedPartition(
            ask.session_id, ask.epoch, True, True,
            {(w.topic_id, w.partition): at for w, at in ask.changed.items()},
            [(w.topic_id, w.partition) for w in ask.forgotten],
        )  # fmt: skip
        try:
            turn = leader.sessions.begin(asked, 0.0)
        except InvalidRequest:
            self.session.handle_error()
            return 0
        resting = {} if turn.watch is None else turn.watch.resting
        places = {key[1]: at for key, at in turn.wanted.items()} | {
            where.partition: at for where, at in resting.items()
        }
        assert {number: at.offset for number, at in places.items()} == self.ends
        told = leader.told(turn)
        if loses_answer:
            self.session.handle_error()
            return len(ask.changed)
        self.session.handle_response(turn.session_id)
        for number, outcome in told.items():
            if isinstance(outcome, FetchedPartition):
                self.ends[number] += len(outcome.batches)
                self.ends[number] = max(self.ends[number], outcome.log_start_offset)
                self.marks[number] = outcome.high_watermark
        return len(ask.changed)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, PARTITIONS - 1)),
        st.tuples(st.just("flush"), st.integers(0, PARTITIONS - 1)),
        st.tuples(st.just("diverge"), st.integers(0, PARTITIONS - 1)),
        st.tuples(st.just("break"), st.integers(0, PARTITIONS - 1)),
        st.tuples(st.just("mend"), st.integers(0, PARTITIONS - 1)),
        st.tuples(st.just("follow"), st.integers(0, PARTITIONS - 1)),
        st.tuples(st.just("leave"), st.integers(0, PARTITIONS - 1)),
        st.tuples(st.sampled_from(["fetch", "lose", "forget"]), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=200)
@given(STEPS)
@example([("append", 0), ("flush", 0), ("fetch", 0), ("diverge", 0)])
@example([("fetch", 0), ("append", 0), ("flush", 0), ("append", 0), ("forget", 0)])
def test_a_follower_has_all_that_it_would_have_without_a_session(
    steps: list[tuple[str, int]],
) -> None:
    leader = Leader(FetchSessionCache(10, SeededEntropy(1)))
    follower = Follower(ends={0: 0})
    for what, number in steps:
        match what:
            case "append":
                leader.ends[number] += 1
                leader.news[number].wake_all()
            case "flush":
                leader.starts[number] = leader.ends[number]
                leader.news[number].mark_changed()
            case "diverge":
                if number in follower.ends:
                    follower.ends[number] = 0
            case "break":
                leader.broken.add(number)
                leader.news[number].wake_all()
            case "mend":
                leader.broken.discard(number)
                leader.news[number] = FetchWaits(PartitionId(TOPIC, number))
            case "follow":
                follower.ends.setdefault(number, 0)
            case "leave":
                if len(follower.ends) > 1:
                    follower.ends.pop(number, None)
            case "forget":
                leader.sessions = FetchSessionCache(10, SeededEntropy(2))
            case _:
                follower.fetch(leader, loses_answer=what == "lose")
    leader.broken.clear()
    for _ in range(SETTLED_AFTER):
        follower.fetch(leader, loses_answer=False)
    for number, end in follower.ends.items():
        assert end == follower.marks[number] == leader.ends[number]
    assert follower.fetch(leader, loses_answer=False) == 0
    follower.fetch(leader, loses_answer=False)
    assert leader.looked_at == 0, "all rest"


def test_resting_partition_is_checked_on_news_moves_and_each_second() -> None:
    leader = Leader(FetchSessionCache(1, SeededEntropy(1)))
    first = leader.sessions.begin(asked(2, follower=True), 0.0)

    def fetch(epoch: int, at_s: float, **moved: FetchPosition) -> list[PartKey]:
        parts: dict[PartKey, FetchPosition] = {("t", int(n[1:])): at for n, at in moved.items()}
        turn = leader.sessions.begin(
            RequestedPartition(first.session_id, epoch, False, True, parts), at_s
        )  # fmt: skip
        leader.told(turn)
        return list(turn.wanted)

    leader.told(first)
    assert fetch(1, 1.0) == [("t", 0), ("t", 1)]
    assert fetch(2, 1.1) == [("t", 0), ("t", 1)]
    assert fetch(3, 1.2) == []
    leader.news[1].mark_changed()
    assert fetch(4, 1.3) == [("t", 1)]
    assert fetch(5, 1.4, p0=FetchPosition(0, 2)) == [("t", 0)]
    assert fetch(6, 1.5) == []
    assert fetch(7, 2.0) == [("t", 0), ("t", 1)]


def test_ended_session_gets_no_more_news() -> None:
    leader = Leader(FetchSessionCache(1, SeededEntropy(1)))
    turn = leader.sessions.begin(asked(3, follower=True), 0.0)
    leader.told(turn)
    assert turn.watch is not None
    for key, at in turn.wanted.items():
        turn.watch.rest(leader.news[key[1]], at)
    assert [len(waits) for waits in leader.news[:3]] == [1, 1, 1]
    leader.sessions.begin(
        RequestedPartition(turn.session_id, 1, False, True, {}, [("t", 0)]), 0.1
    )  # fmt: skip
    assert [len(waits) for waits in leader.news[:3]] == [0, 1, 1]
    leader.sessions.begin(asked(3, turn.session_id, 0, follower=True), 0.2)
    assert [len(waits) for waits in leader.news[:3]] == [0, 0, 0]


def asked(
    parts: int, session_id: int = 0, epoch: int = 0, *, follower: bool = False
) -> RequestedPartition:
    wanted: dict[PartKey, FetchPosition] = {
        ("t", number): FetchPosition(0, 1) for number in range(parts)
    }
    return RequestedPartition(session_id, epoch, False, follower, wanted)


def test_partition_with_records_comes_last_next_time() -> None:
    sessions = FetchSessionCache(1, SeededEntropy(1))
    turn = sessions.begin(asked(3), 0.0)
    assert turn.answers(("t", 0), FetchedPartition([b"x"], 1, 1, 0))
    again = sessions.begin(RequestedPartition(turn.session_id, 1, False, False, {}), 1.0)
    assert list(again.wanted) == [("t", 1), ("t", 2), ("t", 0)]


def test_full_session_cache_evicts_idle_sessions_for_followers() -> None:
    sessions = FetchSessionCache(2, SeededEntropy(1))
    small = sessions.begin(asked(1), 0.0).session_id
    large = sessions.begin(asked(9), 0.0).session_id
    assert sessions.begin(asked(99), 1.0).session_id == 0, "both are young"
    follower = sessions.begin(asked(1, follower=True), 2.0).session_id
    assert follower
    with pytest.raises(FetchSessionIdNotFound):
        sessions.begin(asked(1, small, 1), 3.0)
    sessions.begin(asked(9, large, 1), EVICTABLE_AFTER_S)
    larger = sessions.begin(asked(10), 1.5 + EVICTABLE_AFTER_S).session_id
    assert larger, "one that was never idle goes when it is old, and smaller"
    with pytest.raises(FetchSessionIdNotFound):
        sessions.begin(asked(9, large, 2), 1.5 + EVICTABLE_AFTER_S)
    assert sessions.begin(asked(1), 2.5 + EVICTABLE_AFTER_S).session_id, "the follower was idle"
    assert len(sessions) == 2


def test_epochs_are_checked_and_begin_again_at_one() -> None:
    sessions = FetchSessionCache(1, SeededEntropy(1))
    session_id = sessions.begin(asked(1), 0.0).session_id
    for epoch in (2, INT_MAX, -2):
        with pytest.raises(InvalidFetchSessionEpoch):
            sessions.begin(asked(1, session_id, epoch), 0.0)
    assert sessions.begin(asked(1, session_id, 1), 0.0).session_id == session_id
    assert (next_epoch(0), next_epoch(INT_MAX)) == (1, 1)


def test_no_slots_no_sessions() -> None:
    sessions = FetchSessionCache(0, SeededEntropy(1))
    assert sessions.begin(asked(1, follower=True), 0.0).session_id == 0
