"""Fences: leading a partition, and handing it back to direct writers. Pure protocols.

A fence is an object of the chain that takes no offset. It has the name that the next append would
take; after it the next name is another one (a higher generation at the same offset). So whoever was
about to append, a direct writer or an earlier leader, loses the name, reads the fence and learns
who may append from there on. No clock is part of it. Epochs order leaders: a leader that finds a
higher epoch in the log leads no more.

Every leader puts its fence, after it has flushed what others left and before it gives out an
offset; an earlier leader can then add nothing, were it only paused amid its own recovery. It hands
back in this order: flush all; record in the cluster's metadata that nobody leads, under the next
epoch; put the fence with that epoch. Were the fence first, a leader deposed meanwhile could take
the name at which its successor will flush.
Source: FORMAT.md 9. `tests/model/test_led.py` runs this code through every order of small cases.
"""

from __future__ import annotations

from collections.abc import Callable

from sparklog.core.errors import Fenced, OutcomeUnknown
from sparklog.log.append import LOST_RACES_MAX
from sparklog.log.draft import draft_fence
from sparklog.log.effects import Protocol, put
from sparklog.log.refresh import newer_manifest, refresh
from sparklog.log.view import PartitionView
from sparklog.store.base import PutOutcome


def take_lead(view: PartitionView, leader_epoch: int, nonce: str) -> Protocol[PartitionView]:
    """Put a leader's fence at the end of the log. Idempotent.

    To be called once all that was recovered is flushed, and before anything else is taken in.
    Cost: one put and one listing, unless somebody appended since `view` was taken.

    Raises:
        Fenced: the log has a higher epoch.
        OutcomeUnknown: lost too many races to direct writers, or the store did not tell; try again.
    """

    def is_done(now: PartitionView) -> bool:
        return now.leader_epoch == leader_epoch

    return (yield from _fence(view, leader_epoch, nonce, is_done, led=True))


def hand_back(view: PartitionView, leader_epoch: int, nonce: str) -> Protocol[PartitionView]:
    """Put the fence that lets direct writers append again. Idempotent.

    `leader_epoch` is that of the metadata record which says that nobody leads.

    Raises:
        Fenced: the log has a higher epoch: somebody leads again.
        OutcomeUnknown: the store did not tell; try again.
    """

    def is_done(now: PartitionView) -> bool:
        return not now.is_led

    view = yield from refresh(view)
    return (yield from _fence(view, leader_epoch, nonce, is_done, led=False))


def _fence(
    view: PartitionView,
    leader_epoch: int,
    nonce: str,
    is_done: Callable[[PartitionView], bool],
    *,
    led: bool,
) -> Protocol[PartitionView]:
    draft = draft_fence(view.layout, nonce, leader_epoch=leader_epoch, led=led)
    for _ in range(LOST_RACES_MAX):
        if view.leader_epoch > leader_epoch:
            raise Fenced(
                "a later leader has written to the partition's log; leave it alone. "
                f"partition={view.layout.topic}-{view.layout.partition} "
                f"leader_epoch={leader_epoch} epoch_in_log={view.leader_epoch}"
            )
        if is_done(view):
            return view
        base = view.end_offset
        data = draft.at(base)
        outcome = yield from put(view.layout.key(view.next_name), data)
        if outcome is PutOutcome.CREATED:
            newer, _ = yield from newer_manifest(view)
            newer.check_manifest()
            if newer.position == view.position:
                return newer.extended(draft.placed(base), len(data))
        # Only this leader writes this epoch, so the log itself tells whether the fence is in.
        view = yield from refresh(view)
    raise OutcomeUnknown(
        "the fence could not be put, direct writers were always faster or the store did not tell; "
        f"try again. partition={view.layout.folder} races={LOST_RACES_MAX}"
    )
