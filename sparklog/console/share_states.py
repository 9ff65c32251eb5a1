"""StoredShareStates: states of share groups in the storage, and the counts that pages show. Pure.

It holds the newest snapshot and the newest update of each state as bytes, and decodes those that a
page needs. An update holds all changes since its snapshot, so these two are the state (decision
96). Acquired records are never stored: they count as available. Both its keys and its bytes have a
bound, and it reports what it has left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from sparklog.coordinator.effects import CoordinatorRecord
from sparklog.coordinator.share.delivery_state import (
    NO_COUNT,
    NO_START_OFFSET,
    DeliveryState,
    SharePartitionKey,
    ShareState,
)
from sparklog.coordinator.share.state_batches import merge
from sparklog.coordinator.share.state_records import (
    UPDATE_KEY,
    ShareSnapshot,
    ShareUpdate,
    decode,
    tombstones,
)
from sparklog.core.errors import DataCorrupt, Unavailable

KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
KEPT_STATES_MAX: Final = 200_000
_UPDATE: Final = UPDATE_KEY.to_bytes(2)


@dataclass(frozen=True, slots=True)
class ShareStateCounts:
    """The records of a share group's window in one partition, by their stored state."""

    start_offset: int | None
    """The first record that is not finished; None if the group has no start offset yet."""
    window_end: int | None
    """The offset behind the last record with a stored state."""
    available: int
    acknowledged: int
    archived: int
    delivery_count_max: int
    """The highest number of deliveries of a record in the window."""
    finished: int
    """Records beyond the start offset that are acknowledged or archived."""

    def lag(self, end_offset: int | None) -> int | None:
        """Return the records that the group has not finished (KIP-1226); None if unknown."""
        if end_offset is None or self.start_offset is None:
            return None
        return max(0, end_offset - self.start_offset - self.finished)


def counts_of(state: ShareState) -> ShareStateCounts:
    """Return the counts of a state. Its batches are in order, and behind the start offset."""
    start = state.start_offset
    if start == NO_START_OFFSET:
        return ShareStateCounts(None, None, 0, 0, 0, 0, 0)
    numbers = dict.fromkeys(DeliveryState, 0)
    count_max, end = 0, start
    for batch in state.batches:
        numbers[batch.state] += batch.last_offset - batch.first_offset + 1
        count_max = max(count_max, batch.delivery_count)
        end = max(end, batch.last_offset + 1)
    acknowledged = numbers[DeliveryState.ACKNOWLEDGED]
    archived = numbers[DeliveryState.ARCHIVED]
    finished = state.delivery_complete_count
    if finished <= NO_COUNT:
        finished = acknowledged + archived
    available = end - start - acknowledged - archived
    return ShareStateCounts(start, end, available, acknowledged, archived, count_max, finished)


@dataclass(slots=True)
class _StateValues:
    """The newest values of one state."""

    snapshot: bytes | None
    """None: it was not kept, so the state is unknown."""
    update: bytes | None = None

    @property
    def size_bytes(self) -> int:
        return len(self.snapshot or b"") + len(self.update or b"")


@dataclass(slots=True)
class StoredShareStates:
    """Folded records of `__share_group_state`."""

    ends: dict[int, int] = field(default_factory=dict)
    """The offset up to which each partition was read."""
    is_full: bool = False
    """States beyond `KEPT_STATES_MAX` are missing."""
    _groups: dict[str, dict[SharePartitionKey, _StateValues]] = field(default_factory=dict)
    _states: int = 0
    _bytes: int = 0

    @property
    def group_ids(self) -> Collection[str]:
        """Return the groups with a state."""
        return self._groups.keys()

    def take(self, keys: Iterable[bytes | None], values: Iterable[bytes | None]) -> None:
        """Fold some records, in their order; skip those that are no states."""
        newest: dict[bytes | None, bytes | None] = {}
        for key, value in zip(keys, values, strict=True):
            newest.pop(key, None)  # so the order is that of the newest records
            newest[key] = value
        newest.pop(None, None)
        for key, value in newest.items():
            assert key is not None
            try:
                # Without its value a record decodes to the key alone.
                found = decode(CoordinatorRecord(key, None))
            except DataCorrupt:
                continue
            if value is None:
                self._remove(found.key, is_update=key[:2] == _UPDATE)
            else:
                self._put(found.key, value, is_update=key[:2] == _UPDATE)

    def partitions(self, group_id: str) -> Sequence[SharePartitionKey]:
        """Return the partitions in which a group has a state, in the order of their keys."""
        return sorted(self._groups.get(group_id, ()))

    def size_bytes(self, key: SharePartitionKey) -> int:
        """Return the bytes of a state that `state` decodes."""
        found = self._groups.get(key.group_id, {}).get(key)
        return 0 if found is None else found.size_bytes

    def state(self, key: SharePartitionKey) -> ShareState | None:
        """Return a state; None if there is none.

        Raises:
            DataCorrupt: it cannot be read. Unavailable: it was not kept.
        """
        found = self._groups.get(key.group_id, {}).get(key)
        if found is None:
            return None
        if found.snapshot is None:
            raise Unavailable(
                "the state is left out, because all states together are too large for this page. "
                f"bytes_max={KEPT_BYTES_MAX}"
            )
        return _merged(found.snapshot, found.update, key)

    def _put(self, key: SharePartitionKey, value: bytes, *, is_update: bool) -> None:
        group = self._groups.get(key.group_id, {})
        kept = group.get(key)
        if is_update and (kept is None or kept.snapshot is None):
            return  # a change of a state that is not here
        if kept is None:
            if self._states >= KEPT_STATES_MAX:
                self.is_full = True
                return
            kept = _StateValues(None)
            self._groups.setdefault(key.group_id, {})[key] = kept
            self._states += 1
        self._bytes -= kept.size_bytes
        if is_update:
            kept.update = value
        else:
            kept.snapshot = value
        if self._bytes + kept.size_bytes > KEPT_BYTES_MAX:
            kept.snapshot = kept.update = None
        self._bytes += kept.size_bytes

    def _remove(self, key: SharePartitionKey, *, is_update: bool) -> None:
        group = self._groups.get(key.group_id, {})
        kept = group.get(key)
        if kept is None:
            return
        self._bytes -= kept.size_bytes
        if is_update:
            kept.update = None
            self._bytes += kept.size_bytes
            return
        del group[key]
        self._states -= 1
        if not group:
            del self._groups[key.group_id]


def _merged(snapshot: bytes, update: bytes | None, key: SharePartitionKey) -> ShareState:
    """Return the state of a snapshot and the newest update."""
    base = decode(CoordinatorRecord(tombstones(key)[0].key, snapshot))
    assert isinstance(base, ShareSnapshot)
    state = base.state
    state = replace(state, batches=merge((), state.batches, state.start_offset))
    if update is None:
        return state
    changes = decode(CoordinatorRecord(tombstones(key)[1].key, update))
    assert isinstance(changes, ShareUpdate)
    if changes.snapshot_epoch != base.snapshot_epoch:
        return state
    return replace(
        state,
        start_offset=changes.start_offset,
        batches=merge(state.batches, changes.batches, changes.start_offset),
        leader_epoch=changes.leader_epoch,
        delivery_complete_count=changes.delivery_complete_count,
    )
