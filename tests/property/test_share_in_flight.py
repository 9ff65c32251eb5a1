"""A share group's window in a partition equals a model with one state for each record."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.coordinator.share.delivery_state import DeliveryState, StateBatch
from sparklog.coordinator.share.errors import InvalidRecordState
from sparklog.coordinator.share.in_flight import (
    Acknowledgement,
    DeliveryRules,
    InFlight,
    StateChange,
)

RULES = DeliveryRules(lock_ms=100, count_max=4, records_max=40)
BURYING = replace(RULES, buries=True)
MEMBERS = ("a", "b", "c")
FINISHED = {DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED}


@dataclass
class Record:
    """One record of the model."""

    state: DeliveryState = DeliveryState.AVAILABLE
    count: int = 0
    member: str = ""
    deadline_ms: int = -1


@dataclass
class Model:
    """States by offset, from the start offset on."""

    rules: DeliveryRules
    start: int = 0
    records: dict[int, Record] = field(default_factory=dict)
    stored: dict[int, tuple[DeliveryState, int]] = field(default_factory=dict)
    dead: set[int] = field(default_factory=set)

    def give_back(self, record: Record) -> None:
        if record.count >= RULES.count_max:
            self.give_up(record)
        else:
            record.state, record.member, record.deadline_ms = DeliveryState.AVAILABLE, "", -1

    def give_up(self, record: Record) -> None:
        record.member, record.deadline_ms = "", -1
        if self.rules.buries:
            record.state = DeliveryState.ACQUIRED
            record.count = max(record.count, RULES.count_max)
        else:
            record.state = DeliveryState.ARCHIVED

    def settle(self) -> None:
        while self.start in self.records and self.records[self.start].state in FINISHED:
            del self.records[self.start]
            self.start += 1

    def take(self, change: StateChange) -> None:
        """Store a change, as the coordinator of the state does."""
        for first, last, state, count in change.batches:
            self.stored.update(dict.fromkeys(range(first, last + 1), (state, count)))
        for letters in change.dead:
            offsets = set(range(letters.first_offset, letters.last_offset + 1))
            assert not self.dead & offsets, "a record is given up once"
            self.dead |= offsets


def acknowledge(window: InFlight, model: Model, data: st.DataObject, now_ms: int) -> None:
    member = data.draw(st.sampled_from(MEMBERS))
    first = data.draw(st.integers(model.start - 1, window.end_offset))
    types = data.draw(
        st.lists(
            st.tuples(st.integers(1, 6), st.sampled_from(Acknowledgement)), min_size=1, max_size=4
        )
    )
    flat = [kind for length, kind in types for _ in range(length)]
    records = [model.records.get(first + at) for at in range(len(flat))]
    if any(r is None or r.member != member for r in records):
        before = list(window.runs)
        with pytest.raises(InvalidRecordState):
            window.acknowledge(member, first, types, model.rules, now_ms)
        assert list(window.runs) == before
        return
    for record, kind in zip(records, flat, strict=True):
        assert record is not None
        if kind is Acknowledgement.RENEW:
            record.deadline_ms = now_ms + RULES.lock_ms
        elif kind is Acknowledgement.RELEASE:
            model.give_back(record)
        elif kind is Acknowledgement.REJECT:
            model.give_up(record)
        else:
            accepted = kind is Acknowledgement.ACCEPT
            record.state = DeliveryState.ACKNOWLEDGED if accepted else DeliveryState.ARCHIVED
            record.member, record.deadline_ms = "", -1
    model.take(window.acknowledge(member, first, types, model.rules, now_ms))


def acquire(window: InFlight, model: Model, data: st.DataObject, now_ms: int) -> None:
    member = data.draw(st.sampled_from(MEMBERS))
    first = window.next_offset
    last = first + data.draw(st.integers(0, 30))
    most = data.draw(st.integers(1, 20))
    found = window.acquire(member, first, last, most, model.rules, now_ms)
    for offset in range(window.end_offset):
        if offset >= model.start:
            model.records.setdefault(offset, Record())
    assert sum(one.last_offset - one.first_offset + 1 for one in found) <= most
    for batch in found:
        for offset in range(batch.first_offset, batch.last_offset + 1):
            record = model.records[offset]
            assert record.state is DeliveryState.AVAILABLE
            record.state, record.member = DeliveryState.ACQUIRED, member
            record.count += 1
            record.deadline_ms = now_ms + RULES.lock_ms
            assert record.count == batch.delivery_count <= RULES.count_max
    lasts = [one for one in found if one.delivery_count == RULES.count_max]
    assert not lasts or [(b.first_offset, b.last_offset) for b in found] == [
        (lasts[0].first_offset, lasts[0].first_offset)
    ], "the last try goes out alone"


def end(window: InFlight, model: Model, data: st.DataObject, now_ms: int) -> None:
    member = data.draw(st.sampled_from((*MEMBERS, None)))
    acquired = [r for r in model.records.values() if r.state is DeliveryState.ACQUIRED]
    if member is None:
        over = [one for one in acquired if one.member and one.deadline_ms <= now_ms]
        change = window.expire(model.rules, now_ms)
    else:
        over = [record for record in acquired if record.member == member]
        change = window.release(member, model.rules)
    for record in over:
        model.give_back(record)
    model.take(change)


def bury(window: InFlight, model: Model, data: st.DataObject, now_ms: int) -> None:
    first = data.draw(st.integers(0, window.end_offset))
    last = first + data.draw(st.integers(0, 20))
    model.take(window.buried(first, last))
    for at, record in model.records.items():
        waits = record.state is DeliveryState.ACQUIRED and not record.member
        if waits and first <= at <= last:
            record.state = DeliveryState.ARCHIVED


def skip(window: InFlight, model: Model, data: st.DataObject, now_ms: int) -> None:
    first = window.next_offset
    last = first + data.draw(st.integers(0, 100))
    model.take(window.skip(first, last, model.rules))
    while True:
        start = model.start
        for at in range(start, start + RULES.records_max):
            if at <= last:
                record = model.records.setdefault(at, Record())
                if record.state is DeliveryState.AVAILABLE and at >= first:
                    record.state = DeliveryState.ARCHIVED
        model.settle()
        if start == model.start or model.start > last:
            break


def move(window: InFlight, model: Model, data: st.DataObject, now_ms: int) -> None:
    offset = data.draw(st.integers(0, window.end_offset + 3))
    model.take(window.move_start(offset))
    if offset > model.start:
        model.records = {at: one for at, one in model.records.items() if at >= offset}
        model.start = offset


def check(window: InFlight, model: Model) -> None:
    model.settle()
    assert window.start_offset == model.start
    flat = {
        at: Record(run.state, run.delivery_count, run.member_id, model.records[at].deadline_ms)
        for run in window.runs
        for at in range(run.first, run.last + 1)
    }
    assert flat == model.records
    assert len(flat) <= RULES.records_max
    for run, after in zip(window.runs, window.runs[1:], strict=False):
        assert after.first == run.last + 1
        assert not after.continues(run)
    for run in window.runs:
        if run.state is DeliveryState.ACQUIRED:
            assert model.records[run.first].deadline_ms == run.deadline_ms
    deadlines = [r.deadline_ms for r in model.records.values() if r.member]
    assert window.next_deadline_ms == min(deadlines, default=None)


@given(st.data())
def test_window_equals_the_model_of_single_records(data: st.DataObject) -> None:
    rules = data.draw(st.sampled_from((RULES, BURYING)))
    window, model, now_ms = InFlight(0), Model(rules), 0
    for _ in range(data.draw(st.integers(1, 30))):
        now_ms += data.draw(st.integers(0, 60))
        step = data.draw(
            st.sampled_from((acquire, acknowledge, acknowledge, end, move, bury, skip))
        )
        step(window, model, data, now_ms)
        check(window, model)
    batches = [
        StateBatch(at, at, state, count)
        for at, (state, count) in sorted(model.stored.items())
        if at >= model.start
    ]
    replayed = InFlight(window.start_offset, batches)
    assert replayed.start_offset == model.start
    for run in replayed.runs:
        for at in range(run.first, run.last + 1):
            record = model.records[at]
            waits = record.state is DeliveryState.ACQUIRED and not record.member
            if waits:
                assert (run.state, run.delivery_count) == (DeliveryState.AVAILABLE, record.count)
            elif record.state is not DeliveryState.ACQUIRED:
                assert (run.state, run.delivery_count) == (record.state, record.count)
            else:
                assert run.state is DeliveryState.AVAILABLE
                assert run.delivery_count <= record.count
    given_up = replayed.give_up(rules)
    waiting = [at for at, one in model.records.items() if one.deadline_ms < 0 and one.count >= 4]
    waiting = [at for at in waiting if model.records[at].state is DeliveryState.ACQUIRED]
    found = [at for one in given_up.dead for at in range(one.first_offset, one.last_offset + 1)]
    assert found == sorted(waiting)


def test_a_gap_of_any_length_costs_one_change() -> None:
    window = InFlight(0)
    window.acquire("a", 0, 9, 10, RULES, 0)
    window.acknowledge("a", 0, [(10, Acknowledgement.ACCEPT)], RULES, 0)
    change = window.skip(10, 10**12, RULES)
    assert (change.moved, change.batches, window.start_offset) == (True, [], 10**12 + 1)


def test_failing_records_go_out_in_ever_smaller_batches() -> None:
    window = InFlight(0)
    sizes = []
    for _ in range(RULES.count_max):
        found = window.acquire("a", 0, 15, 16, RULES, 0)
        sizes.append(sum(one.last_offset - one.first_offset + 1 for one in found))
        window.release("a", RULES)
    assert sizes == [16, 16, 8, 1]
    assert window.start_offset == 1
