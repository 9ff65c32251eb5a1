"""One step of a member towards its target: what it gives up first, and what it is handed.

    Stable, Unreleased  -> Unrevoked     it has partitions that its target has not: give them up
    Unrevoked           -> Unrevoked     it still owns some of them, or does not say
    any                 -> Stable        it has all of its target, and the target's epoch
    any                 -> Unreleased    as Stable, but for partitions that others still hold

A member hands partitions back by leaving them out of those it says it owns. What it keeps, it has
since the epoch in which it was handed it; one that it gave up and is handed anew, since this epoch.
A static member that came back under its instance id (epoch 0) has what it had from its first epoch.
Source: Kafka's `CurrentAssignmentBuilder`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sparklog.coordinator.consumer_messages import Part, Parts
from sparklog.coordinator.consumer_records import MemberAssignment, MemberState


def next_assignment(
    has: MemberAssignment,
    target: Parts,
    target_epoch: int,
    owned: Parts | None,
    is_held_by_other: Callable[[Part], bool],
) -> MemberAssignment:
    """Return what a member has after a heartbeat.

    Args:
        has: what it had.
        target: what it shall have.
        target_epoch: when that was decided.
        owned: what it says it owns; None: as when it said so last.
        is_held_by_other: whether a partition is not free for it.
    """
    if has.state is MemberState.STABLE and has.epoch == target_epoch:
        return has
    if has.state is MemberState.UNREVOKED_PARTITIONS and _owns_any(owned, has.revoking):
        return has
    kept = has.assigned & target
    to_revoke = has.assigned - kept
    if to_revoke and _owns_any(owned, to_revoke):
        return replace(
            has, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=to_revoke
        )
    missing = target - kept
    blocked = frozenset(part for part in missing if is_held_by_other(part))
    state = MemberState.UNRELEASED_PARTITIONS if blocked else MemberState.STABLE
    assigned = kept | (missing - blocked)
    previous = has.previous_epoch if has.epoch == target_epoch else has.epoch
    return MemberAssignment(
        has.group_id,
        has.member_id,
        target_epoch,
        previous,
        state,
        assigned,
        since={part: has.since[part] or target_epoch for part in kept},
    )


def _owns_any(owned: Parts | None, parts: Parts) -> bool:
    """Return whether a member still owns some of the partitions, as far as is known."""
    return bool(parts if owned is None else owned & parts)
