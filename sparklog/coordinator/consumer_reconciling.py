"""Reconciliation: one step of a member from its current to its target assignment.

- Stable, Unreleased -> Unrevoked: the target lacks some of its partitions, so it must revoke them.
- Unrevoked -> Unrevoked: it still owns some of them, or does not report its partitions.
- any -> Stable: it has all of its target, and the target epoch.
- any -> Unreleased: as Stable, but without partitions that other members still hold.

A member revokes partitions by leaving them out of the owned ones in its heartbeat. A partition
keeps the epoch in which it was assigned as long as the member keeps it. A partition that was
revoked and assigned again has the new epoch. A static member that returns under its instance id
(epoch 0) holds its partitions from its first epoch.
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
    """Return a member's assignment after a heartbeat.

    Args:
        has: current assignment.
        target: target assignment.
        target_epoch: its epoch.
        owned: partitions that the member reports; None: unchanged.
        is_held_by_other: True if another member holds a partition.
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
    """Return True if a member may still own some of the partitions."""
    return bool(parts if owned is None else owned & parts)
