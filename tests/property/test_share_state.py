"""A share group's stored states: any sequence of requests, replayed from any log it may leave.

Merging batches equals a model with one state for each record. A shard that replays the records
equals the one that wrote them. This holds even if compaction has left only the newest record of
each key in a part of the log.
"""

from __future__ import annotations

from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.coordinator.effects import CoordinatorRecord, CoordinatorResult
from sparklog.coordinator.share.delivery_state import (
    DeliveryState,
    SharePartitionKey,
    ShareState,
    ShareStateUpdate,
    StateBatch,
)
from sparklog.coordinator.share.errors import FencedStateEpoch
from sparklog.coordinator.share.state_batches import merge
from sparklog.coordinator.share.state_records import STORED_STATES
from sparklog.coordinator.share.state_shard import ShareStateShard
from sparklog.core.errors import Fenced, InvalidRequest

TOPIC = UUID(int=1)
KEYS = [SharePartitionKey("a", TOPIC, 0), SharePartitionKey("b", TOPIC, 0)]
OFFSETS = 24
State = tuple[DeliveryState, int]


@st.composite
def batches(draw: st.DrawFn) -> StateBatch:
    first = draw(st.integers(0, OFFSETS - 1))
    last = min(OFFSETS - 1, first + draw(st.integers(0, 6)))
    return StateBatch(
        first, last, draw(st.sampled_from(sorted(STORED_STATES))), draw(st.integers(0, 2))
    )


some_batches = st.lists(batches(), max_size=6)


def by_offset(found: tuple[StateBatch, ...] | list[StateBatch], start: int) -> dict[int, State]:
    """Return the model: the last state that was given for each offset."""
    states: dict[int, State] = {}
    for first, last, state, count in found:
        states.update(dict.fromkeys(range(first, last + 1), (state, count)))
    return {offset: state for offset, state in states.items() if offset >= start}


@given(some_batches, some_batches, st.integers(-1, OFFSETS))
def test_merging_equals_one_state_for_each_record(
    stored: list[StateBatch], changed: list[StateBatch], start: int
) -> None:
    merged = merge(merge((), stored, -1), changed, start)
    assert by_offset(merged, start) == by_offset([*stored, *changed], start)
    assert sum(b.last_offset - b.first_offset + 1 for b in merged) == len(by_offset(merged, start))
    for before, after in pairwise(merged):
        assert before.last_offset < after.first_offset
        joins = before.last_offset + 1 == after.first_offset
        assert not joins or before[2:] != after[2:], "neighbours in one state are joined"


@given(some_batches, some_batches, some_batches, st.integers(-1, OFFSETS), st.integers(0, OFFSETS))
def test_changes_may_be_merged_before_their_snapshot(
    stored: list[StateBatch],
    earlier: list[StateBatch],
    later: list[StateBatch],
    start: int,
    step: int,
) -> None:
    snapshot = merge((), stored, -1)
    one_by_one = merge(merge(snapshot, earlier, start), later, start + step)
    changes = merge(merge((), earlier, start), later, start + step)
    assert merge(snapshot, changes, start + step) == one_by_one


class History:
    """A shard, the records that it wrote, and a model of each state's records."""

    def __init__(self, updates_per_snapshot: int) -> None:
        self.shard = ShareStateShard(updates_per_snapshot)
        self.batches: list[list[CoordinatorRecord]] = []
        self.now_ms = 1_000
        self.model: dict[SharePartitionKey, dict[int, State]] = {}

    def step(self, data: st.DataObject) -> None:
        """Send one request; an error must change nothing."""
        before = dict(self.shard.states)
        key = data.draw(st.sampled_from(KEYS))
        kept = before.get(key)
        epoch = 0 if kept is None else kept.state.state_epoch
        leader = -1 if kept is None else kept.state.leader_epoch
        move = data.draw(st.sampled_from(["initialize", "read", "write", "write", "delete"]))
        near = st.sampled_from([0, 0, 0, 0, 1, -1])
        self.now_ms += 1
        try:
            if move == "initialize":
                start = data.draw(st.integers(-1, 5))
                epoch += data.draw(near)
                result = self.shard.initialize(1, key, epoch, start, self.now_ms)
                if kept is None or epoch > kept.state.state_epoch:
                    self.model[key] = {}
            elif move == "read":
                result = self.shard.read(1, key, leader + data.draw(near), self.now_ms)
            elif move == "write":
                result = self._write(data, key, epoch + data.draw(near), leader + data.draw(near))
            else:
                result = self.shard.delete(1, key)
                self.model.pop(key, None)
        except (Fenced, FencedStateEpoch, InvalidRequest):
            assert dict(self.shard.states) == before
            return
        if result.records:
            self.batches.append(list(result.records))

    def _write(
        self, data: st.DataObject, key: SharePartitionKey, epoch: int, leader: int
    ) -> CoordinatorResult:
        changed = data.draw(some_batches)
        start = data.draw(st.integers(-1, OFFSETS))
        result = self.shard.write(
            1, ShareStateUpdate(key, epoch, leader, start, tuple(changed), start), self.now_ms
        )
        finished = {
            offset: state
            for offset, state in self.model[key].items()
            if state[0] is not DeliveryState.AVAILABLE
        }
        opened = by_offset([b for b in changed if b.state is DeliveryState.AVAILABLE], 0)
        stay = {offset: finished[offset] for offset in opened.keys() & finished.keys()}
        states = {**self.model[key], **by_offset(changed, 0), **stay}
        start = self.shard.states[key].state.start_offset
        self.model[key] = {offset: s for offset, s in states.items() if offset >= start}
        return result


def replayed(records: list[CoordinatorRecord]) -> ShareStateShard:
    shard = ShareStateShard(500)
    for offset, record in enumerate(records):
        shard.replay(
            record,
            offset=offset,
            timestamp_ms=0,
            producer_id=-1,
            producer_epoch=-1,
            transactional=False,
        )
    return shard


def compacted(records: list[CoordinatorRecord], *, drops: bool) -> list[CoordinatorRecord]:
    """Return the newest record of each key; with `drops` without tombstones."""
    newest = {record.key: at for at, record in enumerate(records)}
    return [
        record
        for at, record in enumerate(records)
        if newest[record.key] == at and not (drops and record.value is None)
    ]


@given(st.data(), st.integers(0, 4), st.integers(1, 25))
def test_any_log_replays_to_the_shard_that_wrote_it(
    data: st.DataObject, updates_per_snapshot: int, steps: int
) -> None:
    history = History(updates_per_snapshot)
    for _ in range(steps):
        history.step(data)
    shard = history.shard
    for key, kept in shard.states.items():
        assert by_offset(kept.state.batches, -1) == history.model[key]
    records = [record for batch in history.batches for record in batch]
    assert replayed(records).states == shard.states
    # Each batch of the log may have been compacted alone, as a loading coordinator does.
    size = data.draw(st.integers(1, 6))
    grouped = [records[at : at + size] for at in range(0, len(records), size)]
    alone = [record for group in grouped for record in compacted(group, drops=False)]
    assert replayed(alone).states == shard.states
    # Compaction keeps the newest of each key up to some offset, in one round or in several.
    for _ in range(data.draw(st.integers(1, 3))):
        until = data.draw(st.integers(0, len(records)))
        drops = data.draw(st.booleans())
        records = compacted(records[:until], drops=drops) + records[until:]
        assert replayed(records).states == shard.states


@given(st.data())
def test_a_new_leader_continues_with_the_same_records(data: st.DataObject) -> None:
    history = History(3)
    for _ in range(data.draw(st.integers(1, 10))):
        history.step(data)
    records = [record for batch in history.batches for record in batch]
    history.shard = replayed(records)
    history.batches = []
    for _ in range(data.draw(st.integers(1, 10))):
        history.step(data)
    records += [record for batch in history.batches for record in batch]
    records = compacted(records, drops=True)
    assert replayed(records).states == history.shard.states


def test_an_update_of_an_earlier_snapshot_is_ignored() -> None:
    shard = ShareStateShard(500)
    key = KEYS[0]
    records = [*shard.initialize(1, key, 1, 0, 1).records]
    done = StateBatch(3, 4, DeliveryState.ACKNOWLEDGED, 1)
    records += shard.write(1, ShareStateUpdate(key, 1, 1, 0, (done,)), 2).records
    records += shard.initialize(1, key, 2, 0, 3).records
    late = [records[0], records[2], records[1]]
    assert replayed(late).states[key].state == ShareState(2, 0, leader_epoch=1)
    with pytest.raises(FencedStateEpoch):
        shard.write(1, ShareStateUpdate(key, 1, 1, 0, (done,)), 4)
