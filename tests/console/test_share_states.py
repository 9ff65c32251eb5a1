"""Stored states of share groups: what the console folds is what their coordinator has."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from sparklog.console import share_states
from sparklog.console.share_states import StoredShareStates, counts_of
from sparklog.coordinator.effects import CoordinatorRecord
from sparklog.coordinator.share.delivery_state import (
    DeliveryState,
    SharePartitionKey,
    ShareState,
    ShareStateUpdate,
    StateBatch,
)
from sparklog.coordinator.share.state_records import (
    ShareSnapshot,
    ShareUpdate,
    encode_snapshot,
    encode_update,
    tombstones,
)
from sparklog.coordinator.share.state_shard import ShareStateShard
from sparklog.core.errors import DataCorrupt, Unavailable

TOPIC = UUID(int=7)
KEYS = [SharePartitionKey(group, TOPIC, number) for group in ("a", "b") for number in range(2)]
AVAILABLE, ACKNOWLEDGED = DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED
ARCHIVED = DeliveryState.ARCHIVED


def taken(states: StoredShareStates, *records: CoordinatorRecord) -> None:
    states.take([record.key for record in records], [record.value for record in records])


def snapshot(key: SharePartitionKey, state: ShareState, epoch: int = 1) -> CoordinatorRecord:
    return encode_snapshot(ShareSnapshot(key, epoch, state, 0, 0))


def update(key: SharePartitionKey, *batches: StateBatch, epoch: int = 1) -> CoordinatorRecord:
    return encode_update(ShareUpdate(key, epoch, 1, 10, batches, 1))


@pytest.mark.parametrize("seed", range(5))
def test_folded_states_are_those_of_the_coordinator(seed: int) -> None:
    random = Random(seed)
    shard, states = ShareStateShard(updates_per_snapshot=5), StoredShareStates()
    starts = dict.fromkeys(KEYS, 0)
    epochs = dict.fromkeys(KEYS, 0)
    written: list[CoordinatorRecord] = []
    for _ in range(300):
        key = random.choice(KEYS)
        if key not in shard.states:
            epochs[key], starts[key] = epochs[key] + 1, 0
            written += shard.initialize(1, key, epochs[key], 0, 0).records
        elif random.random() < 0.05:
            written += shard.delete(1, key).records
        else:
            starts[key] += random.randrange(3)
            first = starts[key] + random.randrange(40)
            state = random.choice((AVAILABLE, ACKNOWLEDGED, ARCHIVED))
            batch = StateBatch(first, first + random.randrange(5), state, random.randrange(1, 4))
            change = ShareStateUpdate(key, epochs[key], 1, starts[key], (batch,), 2)
            written += shard.write(1, change, 0).records
        if random.random() < 0.2:
            taken(states, *written)
            written = []
    taken(states, *written)
    assert set(states.group_ids) == {key.group_id for key in shard.states}
    for key in KEYS:
        kept = shard.states.get(key)
        assert states.state(key) == (None if kept is None else kept.state)


def test_counts_are_those_of_the_window() -> None:
    batches = (
        StateBatch(10, 11, AVAILABLE, 2),
        StateBatch(13, 15, ACKNOWLEDGED, 1),
        StateBatch(16, 16, ARCHIVED, 5),
    )
    counts = counts_of(ShareState(1, 10, batches, 3))
    # Offset 12 has no batch, so it is available.
    assert (counts.start_offset, counts.window_end) == (10, 17)
    assert (counts.available, counts.acknowledged, counts.archived) == (3, 3, 1)
    assert (counts.delivery_count_max, counts.finished) == (5, 4)
    assert [counts.lag(end) for end in (20, 12, None)] == [6, 0, None]
    assert counts_of(ShareState(1, 10, batches, 3, delivery_complete_count=3)).lag(20) == 7
    begun = counts_of(ShareState(1))
    assert (begun.start_offset, begun.window_end, begun.lag(20)) == (None, None, None)


def test_overlapping_batches_are_counted_once() -> None:
    states = StoredShareStates()
    batches = (StateBatch(5, 30, AVAILABLE, 1), StateBatch(12, 14, ACKNOWLEDGED, 2))
    taken(states, snapshot(KEYS[0], ShareState(1, 10, batches)))
    state = states.state(KEYS[0])
    assert state is not None
    counts = counts_of(state)
    assert (counts.available, counts.acknowledged, counts.window_end) == (18, 3, 31)


def test_update_of_another_snapshot_is_ignored() -> None:
    states = StoredShareStates()
    later = StateBatch(10, 12, ACKNOWLEDGED, 1)
    taken(states, update(KEYS[0], later))
    assert list(states.group_ids) == []
    taken(states, update(KEYS[0], later), snapshot(KEYS[0], ShareState(1, 10), epoch=2))
    found = states.state(KEYS[0])
    assert found is not None
    assert found.batches == ()
    taken(states, update(KEYS[0], later, epoch=2))
    found = states.state(KEYS[0])
    assert found is not None
    assert found.batches == (later,)
    taken(states, *tombstones(KEYS[0]))
    assert states.partitions("a") == []
    assert list(states.group_ids) == []


def test_foreign_records_are_skipped_and_damage_is_reported() -> None:
    states = StoredShareStates()
    good = snapshot(KEYS[0], ShareState(1, 10))
    states.take([None, b"", b"\x00\x09x", good.key], [b"v", b"v", b"v", b"\x00\x00damaged"])
    with pytest.raises(DataCorrupt):
        states.state(KEYS[0])
    taken(states, good)
    assert states.state(KEYS[0]) == ShareState(1, 10)


def test_kept_states_and_bytes_have_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_states, "KEPT_STATES_MAX", 3)
    monkeypatch.setattr(share_states, "KEPT_BYTES_MAX", 1000)
    states = StoredShareStates()
    large = tuple(StateBatch(n * 2, n * 2, ACKNOWLEDGED, 1) for n in range(100))
    taken(states, *(snapshot(key, ShareState(1, 0)) for key in KEYS))
    assert states.is_full
    assert [len(states.partitions(group)) for group in ("a", "b")] == [2, 1]
    taken(states, snapshot(KEYS[0], ShareState(1, 0, large)))
    with pytest.raises(Unavailable, match="left out"):
        states.state(KEYS[0])
    assert states.size_bytes(KEYS[0]) == 0
    taken(states, update(KEYS[0], *large))
    assert states.size_bytes(KEYS[0]) == 0
    taken(states, snapshot(KEYS[0], ShareState(1, 4)))
    assert states.state(KEYS[0]) == ShareState(1, 4)
