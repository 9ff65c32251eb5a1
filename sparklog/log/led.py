"""Marking a partition as led, and handing it back to direct writers. Pure protocols.

The mark is in the log itself: a direct writer whose log ends in a led segment must not append, so
whichever of the two puts the next segment, the other finds out by losing the name. No clock is part
of it. Epochs order leaders: whoever finds a higher one in the log is a leader no more.

Every leader puts its mark, after it has flushed what others left and before it gives out an offset;
whoever led before it can then add nothing, were it only paused amid its own recovery. It hands back
in this order: flush all; record in the cluster's metadata that nobody leads, under the next epoch;
put the mark with that epoch. Were the mark first, a leader deposed meanwhile could take the name at
which its successor will flush.
Source: FORMAT.md 9. `tests/model/test_led.py` runs this code through every order of small cases.
"""

from __future__ import annotations

from collections.abc import Callable

from sparklog.core.errors import Fenced, OutcomeUnknown
from sparklog.log.append import LOST_RACES_MAX
from sparklog.log.draft import draft_control
from sparklog.log.effects import Protocol, put
from sparklog.log.refresh import newer_manifest, refresh
from sparklog.log.view import PartitionView
from sparklog.store.base import PutOutcome


def take_lead(view: PartitionView, leader_epoch: int, nonce: str) -> Protocol[PartitionView]:
    """Put the mark of a leader at the end of the log, which takes one offset. Idempotent.

    To be called once all that was recovered is flushed, and before anything else is taken in.
    Cost: one put and one listing, unless somebody appended since `view` was taken.

    Raises:
        Fenced: the log has a higher epoch.
        OutcomeUnknown: lost too many races to direct writers, or the store did not tell; try again.
    """

    def is_done(now: PartitionView) -> bool:
        return now.leader_epoch == leader_epoch

    return (yield from _mark(view, leader_epoch, nonce, is_done, led=True))


def hand_back(view: PartitionView, leader_epoch: int, nonce: str) -> Protocol[PartitionView]:
    """Put the mark that direct writers may append again, which takes one offset. Idempotent.

    `leader_epoch` is that of the metadata record which says that nobody leads.

    Raises:
        Fenced: the log has a higher epoch: somebody leads again.
        OutcomeUnknown: the store did not tell; try again.
    """

    def is_done(now: PartitionView) -> bool:
        return not now.is_led

    view = yield from refresh(view)
    return (yield from _mark(view, leader_epoch, nonce, is_done, led=False))


def _mark(
    view: PartitionView,
    leader_epoch: int,
    nonce: str,
    is_done: Callable[[PartitionView], bool],
    *,
    led: bool,
) -> Protocol[PartitionView]:
    draft = draft_control(view.layout, nonce, leader_epoch=leader_epoch, led=led)
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
        name = view.layout.chain_name(base)
        data = draft.at(base)
        outcome = yield from put(view.layout.key(name), data)
        if outcome is PutOutcome.CREATED:
            newer, moved = yield from newer_manifest(view)
            if not moved:
                return newer.extended(draft.placed(base), name, len(data))
        # Only this leader writes this epoch, so the log itself tells whether the mark is in.
        view = yield from refresh(view)
    raise OutcomeUnknown(
        "the mark could not be put, direct writers were always faster or the store did not tell; "
        f"try again. partition={view.layout.folder} races={LOST_RACES_MAX}"
    )
