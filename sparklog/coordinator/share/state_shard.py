"""ShareStateShard: the share groups' states of one partition of `__share_group_state`.

The leader of a partition writes here what a share group has delivered. A later leader reads it.
  STATE-SHARD-1: a state is written only in its state epoch, and only by the leader with the highest
      leader epoch that has read or written it. A read raises that epoch, so it fences off earlier
      leaders
  STATE-SHARD-2: the newest snapshot and the newest update of a key are its state. An update holds
      all changes since the snapshot of its epoch; one of another epoch means nothing
  STATE-SHARD-3: a request that arrives again does not undo later ones. Initializing again in the
      same state epoch, or deleting again, does nothing. In a state epoch the start offset does not
      decrease, and a finished record stays finished

Times are ms. Source: KIP-932; Kafka's ShareCoordinatorShard.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from sparklog.coordinator.effects import (
    NOTHING,
    CoordinatorRecord,
    CoordinatorResult,
    Token,
)
from sparklog.coordinator.share.delivery_state import (
    NO_START_OFFSET,
    DeliveryState,
    SharePartitionKey,
    ShareState,
    ShareStateUpdate,
    StateBatch,
)
from sparklog.coordinator.share.errors import FencedStateEpoch
from sparklog.coordinator.share.state_batches import merge
from sparklog.coordinator.share.state_records import (
    SNAPSHOT_KEY,
    STORED_STATES,
    ShareSnapshot,
    ShareUpdate,
    decode,
    encode_snapshot,
    encode_update,
    tombstones,
)
from sparklog.core.errors import Fenced, InvalidRequest, RecordTooLarge

UNINITIALIZED: Final = ShareState(state_epoch=0)
BATCHES_MAX: Final = 40_000
"""Most batches of one state: 800 kB, below the default of `max.message.bytes`."""
BATCHES_REPEATED_MAX: Final = 64
"""Batches that updates may repeat beyond the size of a snapshot, before one is written."""
DELIVERIES_MAX: Final = 32_767
FORGOTTEN_AT_ONCE: Final = 500
"""States that are deleted in one batch."""


@dataclass(frozen=True, slots=True)
class KeptState:
    """A state, and how much of it the newest snapshot lacks."""

    snapshot_epoch: int
    created_ms: int
    state: ShareState
    changes: tuple[StateBatch, ...] = ()
    """The batches that have changed since the snapshot."""
    updates: int = field(default=0, compare=False)
    """Updates since the snapshot. A new leader counts from 0 again."""
    batches_written: int = field(default=0, compare=False)
    """Batches in these updates."""


class ShareStateShard:
    """The states of one shard; see the module."""

    def __init__(self, updates_per_snapshot: int) -> None:
        """Start empty; after `updates_per_snapshot` updates of a state follows a snapshot."""
        self._updates_per_snapshot = updates_per_snapshot
        self._states: dict[SharePartitionKey, KeptState] = {}

    @property
    def states(self) -> Mapping[SharePartitionKey, KeptState]:
        """Return all states."""
        return self._states

    # Events of `effects.Shard`.

    def replay(
        self,
        record: CoordinatorRecord,
        *,
        offset: int,
        timestamp_ms: int,
        producer_id: int,
        producer_epoch: int,
        transactional: bool,
    ) -> None:
        """Apply a record of the log.

        Raises:
            DataCorrupt: the record cannot be read.
        """
        found = decode(record)
        if isinstance(found, ShareSnapshot):
            batches = merge((), found.state.batches, found.state.start_offset)
            state = replace(found.state, batches=batches)
            self._states[found.key] = KeptState(found.snapshot_epoch, found.created_ms, state)
        elif isinstance(found, ShareUpdate):
            kept = self._states.get(found.key)
            if kept is not None and kept.snapshot_epoch == found.snapshot_epoch:
                self._states[found.key] = _updated(kept, found)
        elif found.key_version == SNAPSHOT_KEY:
            self._states.pop(found.key, None)

    def replay_marker(self, producer_id: int, producer_epoch: int, commit: bool) -> None:
        """Ignore a marker: coordinators write none to this topic."""

    def loaded(self, now_ms: int) -> CoordinatorResult:
        """Begin to serve: there is nothing to do."""
        return NOTHING

    @property
    def next_deadline_ms(self) -> int | None:
        """Return None: a state has no deadline."""
        return None

    def expire(self, now_ms: int) -> CoordinatorResult:
        """Do nothing: a state has no deadline."""
        return NOTHING

    # Requests of brokers. The first line of each docstring describes the reply.

    def initialize(
        self, token: Token, key: SharePartitionKey, state_epoch: int, start_offset: int, now_ms: int
    ) -> CoordinatorResult:
        """Reply None: the state has this epoch, and begins at the start offset.

        Raises:
            FencedStateEpoch: the state has a higher epoch.
            InvalidRequest: a number is out of its range.
        """
        if state_epoch < 0 or start_offset < NO_START_OFFSET:
            raise InvalidRequest(
                "the state of a share group cannot be initialized with these numbers. "
                f"key={key} state_epoch={state_epoch} start_offset={start_offset}"
            )
        kept = self._states.get(key)
        if kept is None:
            state = ShareState(state_epoch, start_offset)
            return self._put_snapshot(token, key, KeptState(0, now_ms, state), now_ms)
        if state_epoch < kept.state.state_epoch:
            raise _fenced_state(key, state_epoch, kept.state)
        if state_epoch == kept.state.state_epoch:
            return CoordinatorResult(replies=((token, None),))
        state = ShareState(state_epoch, start_offset, leader_epoch=kept.state.leader_epoch)
        begun = KeptState(kept.snapshot_epoch + 1, now_ms, state)
        return self._put_snapshot(token, key, begun, now_ms)

    def read(
        self, token: Token, key: SharePartitionKey, leader_epoch: int, now_ms: int
    ) -> CoordinatorResult:
        """Reply with the ShareState; without a state, with epoch 0 and no start offset.

        Raises:
            Fenced: a later leader of the partition has read or written the state.
        """
        kept = self._states.get(key)
        if kept is None:
            return CoordinatorResult(replies=((token, UNINITIALIZED),))
        _check_leader(key, leader_epoch, kept.state)
        if leader_epoch == kept.state.leader_epoch:
            return CoordinatorResult(replies=((token, kept.state),))
        state = replace(kept.state, leader_epoch=leader_epoch)
        return self._change(token, key, kept, state, (), now_ms, reply=state)

    def write(self, token: Token, update: ShareStateUpdate, now_ms: int) -> CoordinatorResult:
        """Reply None: the batches are merged into the state.

        A start offset before the stored one, as NO_START_OFFSET, leaves the stored one.

        Raises:
            InvalidRequest: the state is not initialized, or a batch is impossible.
            FencedStateEpoch: the state has another epoch.
            Fenced: a later leader of the partition has read or written the state.
            RecordTooLarge: the state would have too many batches.
        """
        key, kept = update.key, self._states.get(update.key)
        if kept is None:
            raise InvalidRequest(
                f"the share group has no state here; initialize it before a write. key={key}"
            )
        if update.state_epoch != kept.state.state_epoch:
            raise _fenced_state(key, update.state_epoch, kept.state)
        _check_leader(key, update.leader_epoch, kept.state)
        _check_batches(update)
        start_offset = max(update.start_offset, kept.state.start_offset)
        changed = _kept_finished(kept.state.batches, update.batches)
        batches = merge(kept.state.batches, changed, start_offset)
        if len(batches) > BATCHES_MAX:
            raise RecordTooLarge(
                "the state of a share group has too many batches for one record. "
                f"key={key} batches={len(batches)} at_most={BATCHES_MAX}"
            )
        state = ShareState(
            update.state_epoch,
            start_offset,
            batches,
            update.leader_epoch,
            update.delivery_complete_count,
        )
        return self._change(token, key, kept, state, changed, now_ms, reply=None)

    def delete(self, token: Token, key: SharePartitionKey) -> CoordinatorResult:
        """Reply None: there is no state."""
        if self._states.pop(key, None) is None:
            return CoordinatorResult(replies=((token, None),))
        return CoordinatorResult(tombstones(key), ((token, None),))

    def summary(self, token: Token, key: SharePartitionKey) -> CoordinatorResult:
        """Reply with the ShareState as `read`, and change nothing."""
        kept = self._states.get(key)
        state = UNINITIALIZED if kept is None else kept.state
        return CoordinatorResult(replies=((token, state),))

    def forget_topics(self, token: Token, topic_ids: Collection[UUID]) -> CoordinatorResult:
        """Reply True if more states of these deleted topics are left: run it again."""
        found = [key for key in self._states if key.topic_id in topic_ids]
        records: list[CoordinatorRecord] = []
        for key in found[:FORGOTTEN_AT_ONCE]:
            del self._states[key]
            records += tombstones(key)
        return CoordinatorResult(tuple(records), ((token, len(found) > FORGOTTEN_AT_ONCE),))

    # Records.

    def _change(
        self,
        token: Token,
        key: SharePartitionKey,
        kept: KeptState,
        state: ShareState,
        changed: tuple[StateBatch, ...],
        now_ms: int,
        *,
        reply: ShareState | None,
    ) -> CoordinatorResult:
        """Write a snapshot or an update of a changed state."""
        changes = merge(kept.changes, changed, state.start_offset)
        updates = kept.updates + 1
        written = kept.batches_written + len(changes)
        repeated_max = len(state.batches) + BATCHES_REPEATED_MAX
        if updates > self._updates_per_snapshot or written > repeated_max:
            begun = KeptState(kept.snapshot_epoch + 1, kept.created_ms, state)
            return self._put_snapshot(token, key, begun, now_ms, reply=reply)
        record = encode_update(
            ShareUpdate(
                key,
                kept.snapshot_epoch,
                state.leader_epoch,
                state.start_offset,
                changes,
                state.delivery_complete_count,
            )
        )
        self._states[key] = KeptState(
            kept.snapshot_epoch, kept.created_ms, state, changes, updates, written
        )
        return CoordinatorResult((record,), ((token, reply),))

    def _put_snapshot(
        self,
        token: Token,
        key: SharePartitionKey,
        kept: KeptState,
        now_ms: int,
        *,
        reply: ShareState | None = None,
    ) -> CoordinatorResult:
        record = encode_snapshot(
            ShareSnapshot(key, kept.snapshot_epoch, kept.state, kept.created_ms, now_ms)
        )
        self._states[key] = kept
        return CoordinatorResult((record,), ((token, reply),))


def _updated(kept: KeptState, update: ShareUpdate) -> KeptState:
    """Return a state after the replay of an update of its snapshot."""
    state = kept.state
    start_offset = update.start_offset
    changed = replace(
        state,
        start_offset=start_offset,
        batches=merge(state.batches, update.batches, start_offset),
        leader_epoch=update.leader_epoch,
        delivery_complete_count=update.delivery_complete_count,
    )
    changes = merge(kept.changes, update.batches, start_offset)
    return replace(kept, state=changed, changes=changes)


def _kept_finished(
    stored: Sequence[StateBatch], changed: tuple[StateBatch, ...]
) -> tuple[StateBatch, ...]:
    """Return the changes, and after them what is finished and must stay so."""
    found = []
    for batch in changed:
        if batch.state is not DeliveryState.AVAILABLE:
            continue
        at = bisect_left(stored, batch.first_offset, key=lambda one: one.last_offset)
        while at < len(stored) and stored[at].first_offset <= batch.last_offset:
            one = stored[at]
            if one.state is not DeliveryState.AVAILABLE:
                first = max(one.first_offset, batch.first_offset)
                last = min(one.last_offset, batch.last_offset)
                found.append(one._replace(first_offset=first, last_offset=last))
            at += 1
    return (*changed, *found) if found else changed


def _check_leader(key: SharePartitionKey, leader_epoch: int, state: ShareState) -> None:
    if leader_epoch < state.leader_epoch:
        raise Fenced(
            "a later leader of the partition has the share group's state. "
            f"key={key} leader_epoch={leader_epoch} stored={state.leader_epoch}"
        )


def _check_batches(update: ShareStateUpdate) -> None:
    if update.start_offset < NO_START_OFFSET:
        raise InvalidRequest(f"a start offset is impossible. update={update}")
    for batch in update.batches:
        if (
            batch.state not in STORED_STATES
            or not 0 <= batch.first_offset <= batch.last_offset
            or not 0 <= batch.delivery_count <= DELIVERIES_MAX
        ):
            raise InvalidRequest(
                f"a batch of a share group's state is impossible. key={update.key} batch={batch}"
            )


def _fenced_state(key: SharePartitionKey, state_epoch: int, state: ShareState) -> FencedStateEpoch:
    return FencedStateEpoch(
        "the share group's state has another epoch; read it again. "
        f"key={key} state_epoch={state_epoch} stored={state.state_epoch}"
    )
