"""Direct appends: the pure protocol of FORMAT.md 5.

A writer puts a segment at the chain's end; the writer that owns the name owns the offsets. After a
successful put, the writer checks that the name was not free only because it had been deleted.
`tests/model/test_direct_append.py` runs this code through every interleaving of small cases.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparklog.core.errors import NotServing, OutcomeUnknown
from sparklog.log.effects import Program, get, put
from sparklog.log.manifest.manifest import REWRITTEN_NONCE
from sparklog.log.manifest.refresh import newer_manifest, read_segment, refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.log.segment.builder import SegmentBuilder
from sparklog.log.segment.segment import CommitStamp
from sparklog.store.base import PutOutcome

UNKNOWN_TRIES_MAX = 8
"""Tries of one put whose outcome stays unknown."""
LOST_RACES_MAX = 10_000
"""Bound on lost races of one append; each lost race is another writer's success."""


@dataclass(frozen=True, slots=True)
class AppendResult:
    """The offsets of an append."""

    base_offset: int
    end_offset: int
    repeated: bool
    """True if the commit key had been appended before: nothing was written now."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An append: a draft, its nonce, and its conditions."""

    draft: SegmentBuilder
    commit: CommitStamp | None = None
    only_at: int | None = None
    """Append at this very offset or not at all (a decision made on the state at that offset)."""

    @property
    def nonce(self) -> str:
        """Return the nonce of this attempt to write."""
        return self.draft.segment.nonce


def append(
    view: PartitionView, candidate: Candidate
) -> Program[tuple[PartitionView, AppendResult | None]]:
    """Append `candidate` at the end of the chain, starting from any view, however old.

    Returns the newest view and the offsets; None instead of offsets when `only_at` was taken.

    Raises:
        NotServing: a broker leads the partition; write through it.
        TopicDeleted: no reader would ever get the records.
        OutcomeUnknown: the result of a put is unknown, and reading back did not help. Read the log
            before trying again, or try again with the same commit key.
        DataCorrupt: the chain's end is damaged.
    """
    for _ in range(LOST_RACES_MAX):
        done = _already(view, candidate)
        if done is not None:
            return view, done
        if view.is_led:
            view = yield from _handed_back(view)
            continue
        if candidate.only_at is not None and candidate.only_at != view.end_offset:
            return view, None
        view, outcome = yield from _put_at(view, candidate)
        if outcome is not None:
            return view, outcome
    raise OutcomeUnknown(
        "gave up after losing too many races for the end of one partition; use fewer writers or a "
        f"leader. partition={view.layout.folder} races={LOST_RACES_MAX}"
    )


def _handed_back(view: PartitionView) -> Program[PartitionView]:
    """Check again if a broker leads: the view may be old, and leaders hand back."""
    view = yield from refresh(view)
    if view.is_led:
        raise NotServing(
            "the partition is led by a broker; write through it, with any Kafka client. "
            f"partition={view.layout.topic}-{view.layout.partition} "
            f"leader_epoch={view.leader_epoch}"
        )
    return view


def _already(view: PartitionView, candidate: Candidate) -> AppendResult | None:
    if candidate.commit is None:
        return None
    state = view.committed(candidate.commit.key)
    if state is None:
        return None
    return AppendResult(state.base_offset, state.end_offset, repeated=True)


def _put_at(
    view: PartitionView, candidate: Candidate
) -> Program[tuple[PartitionView, AppendResult | None]]:
    """Try the next name. None means that it was taken; the returned view is then newer."""
    key = view.layout.key(view.next_name)
    data = candidate.draft.at(view.end_offset, candidate.commit)
    for _ in range(UNKNOWN_TRIES_MAX):
        outcome = yield from put(key, data)
        if outcome is PutOutcome.CREATED:
            return (yield from _confirm(view, candidate, len(data)))
        if outcome is PutOutcome.EXISTS or (yield from get(key, -1)) is not None:
            return (yield from _taken(view, candidate))
    raise OutcomeUnknown(
        "the store does not tell whether the append happened; read the log before trying again. "
        f"object={key} nonce={candidate.nonce}"
    )


def _taken(
    view: PartitionView, candidate: Candidate
) -> Program[tuple[PartitionView, AppendResult | None]]:
    """Return the outcome for a taken name. It may be ours: store clients retry by themselves."""
    newer = yield from refresh(view)
    nonce = yield from _nonce_at(newer, view.end_offset)
    if nonce == candidate.nonce:
        return newer, _appended(candidate, view)
    if nonce is None:
        found = yield from read_segment(view.layout, view.next_name)
        if found is not None and found[0].nonce == candidate.nonce:
            raise _undecided(view, candidate)
    return newer, None


def _confirm(
    view: PartitionView, candidate: Candidate, size_bytes: int
) -> Program[tuple[PartitionView, AppendResult | None]]:
    """Check that a name was free because it was unused, and not because it had been deleted."""
    newer, moved = yield from newer_manifest(view)
    newer.check_manifest()
    base = view.end_offset
    if not moved or newer.manifest.position <= view.position:
        if newer.position == view.position:
            segment = candidate.draft.placed(base, candidate.commit)
            newer = newer.extended(segment, size_bytes)
        return newer, _appended(candidate, view)
    if newer.manifest.end_offset > base:
        nonce = yield from _nonce_at(newer, base)
        if nonce == candidate.nonce:
            return newer, _appended(candidate, view)
        if nonce is None:
            raise _undecided(view, candidate)
    # Else the name was a fence's: the chain has passed it without assigning an offset.
    return (yield from refresh(newer)), None


def _appended(candidate: Candidate, view: PartitionView) -> AppendResult:
    base = view.end_offset
    return AppendResult(base, base + candidate.draft.segment.end_offset, repeated=False)


def _undecided(view: PartitionView, candidate: Candidate) -> OutcomeUnknown:
    return OutcomeUnknown(
        "the log moved past the append while it ran, and nothing tells any more whether it was in; "
        "read the log before trying again. "
        f"object={view.layout.key(view.next_name)} nonce={candidate.nonce}"
    )


def _nonce_at(view: PartitionView, offset: int) -> Program[str | None]:
    """Return the nonce of the append that got `offset`; None if it is not recorded."""
    if offset < view.log_start_offset:
        return None
    for one in view.tail:
        if one.segment.base_offset <= offset < one.segment.end_offset:
            return one.segment.nonce_at(offset)
    entry = view.manifest.find(offset)
    if entry is None:
        return None
    if entry.nonce != REWRITTEN_NONCE:
        return entry.nonce
    found = yield from read_segment(view.layout, entry.object, entry.size_bytes)
    return found[0].nonce_at(offset) if found is not None else None
