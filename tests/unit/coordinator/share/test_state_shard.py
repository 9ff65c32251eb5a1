"""Epochs, snapshots and repeated requests of share groups' stored states."""

from __future__ import annotations

from uuid import UUID

import pytest

from sparklog.coordinator.share.delivery_state import (
    DeliveryState,
    SharePartitionKey,
    ShareState,
    ShareStateUpdate,
    StateBatch,
)
from sparklog.coordinator.share.errors import FencedStateEpoch
from sparklog.coordinator.share.state_records import (
    ShareSnapshot,
    ShareUpdate,
    decode,
    tombstones,
)
from sparklog.coordinator.share.state_shard import (
    BATCHES_MAX,
    BATCHES_REPEATED_MAX,
    FORGOTTEN_AT_ONCE,
    ShareStateShard,
)
from sparklog.core.errors import Fenced, InvalidRequest, RecordTooLarge

KEY = SharePartitionKey("pay", UUID(int=1), 7)
NOW_MS = 1_000
DONE = DeliveryState.ACKNOWLEDGED


def batch(first: int, last: int, state: DeliveryState = DONE, count: int = 1) -> StateBatch:
    return StateBatch(first, last, state, count)


def update(
    *batches: StateBatch, start: int = -1, state_epoch: int = 2, leader_epoch: int = 5
) -> ShareStateUpdate:
    return ShareStateUpdate(KEY, state_epoch, leader_epoch, start, batches)


def shard(updates_per_snapshot: int = 500) -> ShareStateShard:
    made = ShareStateShard(updates_per_snapshot)
    made.initialize(1, KEY, 2, 10, NOW_MS)
    return made


def state_of(found: ShareStateShard) -> ShareState:
    ((_, reply),) = found.summary(1, KEY).replies
    assert isinstance(reply, ShareState)
    return reply


def test_an_unknown_state_has_epoch_0_and_no_start_offset() -> None:
    empty = ShareStateShard(500)
    unknown = ShareState(0, -1)
    assert empty.read(1, KEY, 3, NOW_MS).replies == ((1, unknown),)
    assert empty.read(1, KEY, 3, NOW_MS).records == ()
    assert empty.summary(1, KEY).replies == ((1, unknown),)


def test_a_write_needs_an_initialized_state() -> None:
    with pytest.raises(InvalidRequest, match="initialize it before"):
        ShareStateShard(500).write(1, update(batch(1, 1)), NOW_MS)


def test_a_lower_state_epoch_is_fenced() -> None:
    found = shard()
    with pytest.raises(FencedStateEpoch, match="stored=2"):
        found.initialize(1, KEY, 1, 0, NOW_MS)
    for epoch in (1, 3):
        with pytest.raises(FencedStateEpoch, match="read it again"):
            found.write(1, update(batch(10, 10), state_epoch=epoch), NOW_MS)
    assert state_of(found) == ShareState(2, 10)


def test_a_read_fences_earlier_leaders() -> None:
    found = shard()
    result = found.read(1, KEY, 5, NOW_MS)
    assert len(result.records) == 1, "the epoch is stored before the reply"
    assert found.read(1, KEY, 5, NOW_MS).records == ()
    with pytest.raises(Fenced, match="leader_epoch=4 stored=5"):
        found.read(1, KEY, 4, NOW_MS)
    with pytest.raises(Fenced, match="leader_epoch=4 stored=5"):
        found.write(1, update(leader_epoch=4), NOW_MS)
    found.write(1, update(batch(10, 12), leader_epoch=6), NOW_MS)
    assert state_of(found) == ShareState(2, 10, (batch(10, 12),), 6)


def test_initializing_in_the_same_epoch_keeps_progress() -> None:
    found = shard()
    found.write(1, update(batch(12, 14), start=11), NOW_MS)
    before = state_of(found)
    assert found.initialize(1, KEY, 2, 10, NOW_MS).records == ()
    assert state_of(found) == before
    found.initialize(1, KEY, 3, 0, NOW_MS)
    assert state_of(found) == ShareState(3, 0, leader_epoch=5)


def test_an_update_has_all_changes_since_its_snapshot() -> None:
    found = shard()
    found.write(1, update(batch(10, 10)), NOW_MS)
    (record,) = found.write(1, update(batch(12, 12)), NOW_MS).records
    written = decode(record)
    assert isinstance(written, ShareUpdate)
    assert written.batches == (batch(10, 10), batch(12, 12))
    assert written.start_offset == 10


def test_a_snapshot_follows_so_many_updates() -> None:
    found = shard(updates_per_snapshot=3)
    kinds = []
    for start in range(11, 19):
        (record,) = found.write(1, update(start=start), NOW_MS).records
        kinds.append(isinstance(decode(record), ShareSnapshot))
    assert kinds == [False, False, False, True] * 2


def test_scattered_changes_bring_an_early_snapshot() -> None:
    found = shard()
    written = 0
    for number in range(200):
        (record,) = found.write(1, update(batch(10 + 2 * number, 10 + 2 * number)), NOW_MS).records
        value = decode(record)
        batches = value.batches if isinstance(value, ShareUpdate) else ()
        written += len(batches)
        if isinstance(value, ShareSnapshot):
            assert written <= len(value.state.batches) + BATCHES_REPEATED_MAX
            written = 0
    assert len(state_of(found).batches) == 200


def test_a_change_of_a_scattered_window_costs_little() -> None:
    found = shard()
    offsets = range(10, 4010, 2)
    found.write(1, update(*(batch(offset, offset) for offset in offsets)), NOW_MS)
    size = 0
    for number in range(2_000):
        offset = offsets[number * 7 % 2_000]
        changed = batch(offset, offset, count=2 + number // 2_000)
        (record,) = found.write(1, update(changed), NOW_MS).records
        size += len(record.key) + len(record.value or b"")
    assert len(state_of(found).batches) == 2_000
    assert 1_200 < size / 2_000 < 1_400, "bytes for each change"


def test_a_late_request_does_not_set_the_start_offset_back() -> None:
    found = shard()
    late = update(batch(10, 11), start=12)
    found.write(1, late, NOW_MS)
    found.write(1, update(batch(17, 20), start=15), NOW_MS)
    before = state_of(found)
    found.write(1, late, NOW_MS)
    assert state_of(found) == before
    assert before.start_offset == 15


def test_a_late_request_does_not_open_finished_records() -> None:
    found, archived = shard(), DeliveryState.ARCHIVED
    found.write(1, update(batch(10, 12), batch(14, 20, archived, 5)), NOW_MS)
    found.write(1, update(batch(11, 17, DeliveryState.AVAILABLE, 2)), NOW_MS)
    expected = (
        batch(10, 12),
        batch(13, 13, DeliveryState.AVAILABLE, 2),
        batch(14, 20, archived, 5),
    )
    assert state_of(found).batches == expected


def test_states_of_deleted_topics_are_forgotten_in_parts() -> None:
    found, topic, other = ShareStateShard(500), UUID(int=1), UUID(int=2)
    for number in range(FORGOTTEN_AT_ONCE + 1):
        found.initialize(1, SharePartitionKey("pay", topic, number), 1, 0, NOW_MS)
    kept = SharePartitionKey("pay", other, 0)
    found.initialize(1, kept, 1, 0, NOW_MS)
    first = found.forget_topics(1, {topic})
    assert (len(first.records), first.replies) == (2 * FORGOTTEN_AT_ONCE, ((1, True),))
    second = found.forget_topics(1, {topic})
    assert (len(second.records), second.replies) == (2, ((1, False),))
    assert list(found.states) == [kept]


def test_a_deleted_state_is_unknown() -> None:
    found = shard()
    assert found.delete(1, KEY).records == tombstones(KEY)
    assert found.delete(2, KEY).records == ()
    assert found.delete(2, KEY).replies == ((2, None),)
    assert state_of(found).start_offset == -1


@pytest.mark.parametrize(
    "bad",
    [
        batch(5, 4),
        batch(-1, 4),
        batch(1, 4, DeliveryState.ACQUIRED),
        batch(1, 4, count=-1),
        batch(1, 4, count=32_768),
    ],
)
def test_an_impossible_batch_is_refused(bad: StateBatch) -> None:
    found = shard()
    with pytest.raises(InvalidRequest, match="is impossible"):
        found.write(1, update(batch(30, 31), bad), NOW_MS)
    assert state_of(found) == ShareState(2, 10)


@pytest.mark.parametrize(("epoch", "start"), [(-1, 0), (0, -2)])
def test_impossible_numbers_of_a_new_state_are_refused(epoch: int, start: int) -> None:
    with pytest.raises(InvalidRequest, match="cannot be initialized"):
        ShareStateShard(500).initialize(1, KEY, epoch, start, NOW_MS)


def test_a_state_beyond_one_record_is_refused() -> None:
    found = shard()
    batches = [batch(10 + 2 * number, 10 + 2 * number) for number in range(BATCHES_MAX + 1)]
    with pytest.raises(RecordTooLarge, match="too many batches"):
        found.write(1, update(*batches), NOW_MS)
    (record,) = found.write(1, update(*batches[:-1]), NOW_MS).records
    assert record.value is not None
    assert len(record.value) < 1_000_000
