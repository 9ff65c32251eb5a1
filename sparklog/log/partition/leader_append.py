"""Leaders' writes to a partition's own log (L1): flushes of committed records, and fences. Pure.

Flush: leaders flush committed records, and the committed records at an offset are the same for
every past and future leader. (A leader that recovers flushes more; its successor begins after
that.) So a flush that finds an existing segment continues from its end, whichever leader created
it. Only the epoch can be wrong. A higher epoch means that this leader is deposed. A lower one at
the same offset means that the invariant is broken.

After the put, a flush looks for a newer manifest, as direct appends do (FORMAT.md 5). A deposed
leader may have flushed at this place with another end. If a manifest covers that and the name is
deleted, this put succeeds but is outside the chain. The next put, at its end, would leave a hole,
and the write-ahead log would be trimmed behind it.

Fence: it starts the leadership of a partition, or hands the partition back to direct writers. A
fence is an object of the chain that takes no offset. It takes the name of the next append; after it
the next name is another one (a higher generation at the same offset). So a direct writer or an
earlier leader that is about to append loses the name. It reads the fence, which says if only a
leader may append from there on. No clock is involved. Epochs order leaders: a leader that finds a
higher epoch in the log is deposed.

Every leader puts its fence after it has flushed the records of earlier leaders, and before it
assigns an offset. An earlier leader can then append nothing, even if it was paused during its own
recovery. A leader that hands back first flushes all records. Then it records in the cluster's
metadata that the partition has no leader, under the next epoch. Last it puts the fence with that
epoch. If the fence came before the metadata, a leader deposed meanwhile could take the name at
which its successor will flush.

Source: FORMAT.md 9. `tests/model/test_led.py` runs this code through every order of small cases.
"""

from __future__ import annotations

from collections.abc import Callable

from sparklog.core.errors import DataCorrupt, Fenced, OutcomeUnknown, Unavailable
from sparklog.log.effects import Program, put
from sparklog.log.manifest.manifest import REWRITTEN_NONCE
from sparklog.log.manifest.refresh import newer_manifest, refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.append import LOST_RACES_MAX, UNKNOWN_TRIES_MAX
from sparklog.log.segment.builder import draft_fence
from sparklog.log.tail.to_segment import FlushBuilder
from sparklog.store.base import PutOutcome


def flush_at(view: PartitionView, flush: FlushBuilder, leader_epoch: int) -> Program[PartitionView]:
    """Ensure that the log has the records of `flush`, or at least the first of them.

    Returns a view whose end offset is the new flushed end. It may be below, at or beyond the end of
    `flush`: another leader may have flushed the same records in other portions.

    Cost: one put and one listing.

    Args:
        `view`: of the partition, with its end at the start of `flush` or later.
        `flush`: the segment to store.
        `leader_epoch`: of the leader that flushes; its batches may have an older one.

    Raises:
        Fenced: the log has a higher epoch, so there is another leader.
        DataCorrupt: the log ends before `flush` begins, or has records of another epoch there.
        Unavailable: a leader later than the one that appended these records led without them;
            refresh the view.
        OutcomeUnknown: the result of the put is unknown; it is safe to try again.
    """
    for _ in range(UNKNOWN_TRIES_MAX):
        if _is_there(view, flush, leader_epoch):
            return view
        outcome = yield from put(view.layout.key(view.next_name), flush.data)
        if outcome is PutOutcome.CREATED:
            newer, _ = yield from newer_manifest(view)
            newer.check_manifest()
            if newer.position == view.position:
                return newer.extended(flush.segment, len(flush.data))
        view = yield from refresh(view)
    raise OutcomeUnknown(
        "the store does not tell whether the flush happened; try again. "
        f"object={view.layout.key(view.next_name)} nonce={flush.segment.nonce}"
    )


def _is_there(view: PartitionView, flush: FlushBuilder, leader_epoch: int) -> bool:
    """Return True if the log has the flush's first offset; see `flush_at`."""
    if view.leader_epoch > leader_epoch:
        raise Fenced(
            "another leader has written to the partition's log; stop leading it. "
            f"partition={view.layout.topic}-{view.layout.partition} leader_epoch={leader_epoch} "
            f"epoch_in_log={view.leader_epoch}"
        )
    if view.end_offset < flush.base_offset:
        raise DataCorrupt(
            "the partition's log ends before what its leader believes to be flushed; run verify. "
            f"partition={view.layout.folder} log_end_offset={view.end_offset} "
            f"base_offset={flush.base_offset}"
        )
    if view.end_offset > flush.base_offset:
        found = _epoch_at(view, flush.base_offset)
        if found is None or found == flush.leader_epoch:
            return True
        if found < flush.leader_epoch:
            raise DataCorrupt(
                "the partition's log has other records than its leader; run verify. "
                f"partition={view.layout.folder} offset={flush.base_offset} "
                f"epoch_in_log={found} leader_epoch={flush.leader_epoch}"
            )
    elif view.leader_epoch <= flush.leader_epoch:
        return False
    raise Unavailable(
        "a leader that was elected in between has put its fence or records there, and did not know "
        "of these records; look at the log again. "
        f"partition={view.layout.topic}-{view.layout.partition} offset={flush.base_offset} "
        f"leader_epoch={flush.leader_epoch} epoch_in_log={view.leader_epoch}"
    )


def _epoch_at(view: PartitionView, offset: int) -> int | None:
    """Return the epoch of the segment that holds `offset`, or None if it is no longer recorded."""
    for one in view.covering(offset, offset + 1):
        return one.leader_epoch if one.nonce != REWRITTEN_NONCE else None
    return None


def take_leadership(view: PartitionView, leader_epoch: int, nonce: str) -> Program[PartitionView]:
    """Put a leader's fence at the end of the log. Idempotent.

    Call it after all recovered records are flushed, and before the leader accepts new ones.
    Cost: one put and one listing, unless a writer appended since `view` was read.

    Raises:
        Fenced: the log has a higher epoch.
        OutcomeUnknown: lost too many races to direct writers, or the result of a put is unknown;
            try again.
    """

    def is_done(now: PartitionView) -> bool:
        return now.leader_epoch == leader_epoch

    return (yield from _fence(view, leader_epoch, nonce, is_done, led=True))


def hand_back(view: PartitionView, leader_epoch: int, nonce: str) -> Program[PartitionView]:
    """Put the fence that lets direct writers append again. Idempotent.

    `leader_epoch` is the epoch of the metadata record that leaves the partition without a leader.

    Raises:
        Fenced: the log has a higher epoch: the partition has a leader again.
        OutcomeUnknown: the result of the put is unknown; try again.
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
) -> Program[PartitionView]:
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
        # Only this leader writes this epoch, so the log itself shows if it has the fence.
        view = yield from refresh(view)
    raise OutcomeUnknown(
        "the fence could not be put, direct writers were always faster or the store did not tell; "
        f"try again. partition={view.layout.folder} races={LOST_RACES_MAX}"
    )
