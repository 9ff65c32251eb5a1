"""Changes of the manifest: the pure protocol of FORMAT.md 6, and the plans that use it.

A plan takes a view and returns the next manifest, or None if no work is left. `change` runs the
plan again after every lost race, so a plan must recognise its own work as done.

`swap` replaces objects by rewritten ones. A job reads entries of one manifest, writes new objects,
and swaps the entries in the newest manifest. Meanwhile the log start may have moved over some of
them, or another job may have rewritten them. Replacements that belong together are swapped together
or not at all: a tombstone must not go before the records that it hides.

MANIFEST-CHANGE-1: New entries cover exactly the offsets of the old ones.
MANIFEST-CHANGE-2: If the newest manifest lacks old entries that are not below its log start,
    another job has rewritten them. Then nothing is swapped.

`publish_over_gap` replaces a segment of the tail that cannot be read. A fence needs no replacement:
the chain continues after it. Every reader's chain ends at that segment, so no plan can run again
after a lost race. The caller has read the view before, and gets an error if the log has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sparklog.core.errors import OffsetOutOfRange, Unavailable
from sparklog.log.effects import Program, delete, get, put
from sparklog.log.manifest.manifest import (
    Cleaning,
    Entry,
    Manifest,
    WriterState,
    encode,
    with_log_start,
)
from sparklog.log.manifest.reference_transactions import outcomes
from sparklog.log.manifest.refresh import at_manifest, newer_manifest, refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.log.segment.segment import Segment
from sparklog.store.base import PutOutcome

VERSIONS_KEPT = 32
LOST_RACES_MAX = 100

Plan = Callable[[PartitionView], Manifest | None]


def change(
    view: PartitionView, plan: Plan, nonce: str, *, over_manifests: bool = False
) -> Program[PartitionView]:
    """Publish the manifest that `plan` makes of the newest view. Returns the view afterwards.

    `over_manifests`: see `refresh`.

    Raises:
        DataCorrupt: as `refresh`.
        Unavailable: too many lost races; try again later.
    """
    for _ in range(LOST_RACES_MAX):
        view = yield from refresh(view, over_manifests=over_manifests)
        planned = plan(view)
        if planned is None:
            return view
        version = view.manifest_name_version + 1
        made = replace(planned, version=version, nonce=nonce)
        key = view.layout.key(view.layout.manifest_name(version))
        data = encode(made, view.layout)
        outcome = yield from put(key, data)
        if outcome is not PutOutcome.CREATED and (yield from get(key)) != data:
            continue
        # A stalled writer may re-create the name of a version that was deleted long ago. Then newer
        # versions exist and this one never counted, so the plan runs again.
        ours = at_manifest(view, made, version)
        newest, moved = yield from newer_manifest(ours)
        if moved:
            view = newest
            continue
        if version > VERSIONS_KEPT:
            old = view.layout.manifest_name(version - VERSIONS_KEPT)
            yield from delete(view.layout.key(old))
        return ours
    raise Unavailable(
        "lost too many races for the next manifest version; try again later. "
        f"partition={view.layout.folder} races={LOST_RACES_MAX}"
    )


def absorb_tail(segments_min: int, expired_before_ms: int) -> Plan:
    """Plan to absorb a tail of `segments_min` or more segments, and to drop expired writers."""

    def plan(view: PartitionView) -> Manifest | None:
        if not view.tail or len(view.tail) < segments_min:
            return None
        taken = with_tail(view, expired_before_ms)
        return taken if taken.position > view.manifest.position else None

    return plan


def raise_log_start(before_offset: int) -> Plan:
    """Plan to make `before_offset` the log start (Kafka's DeleteRecords; -1 means the end).

    Raises (from the plan):
        OffsetOutOfRange: beyond the log end.
        Unavailable: inside the records of an open transaction; try again when it has ended.
    """

    def plan(view: PartitionView) -> Manifest | None:
        start = view.end_offset if before_offset == -1 else before_offset
        if not 0 <= start <= view.end_offset:
            raise OffsetOutOfRange(
                "cannot delete records beyond the log end. "
                f"partition={view.layout.topic}-{view.layout.partition} "
                f"before_offset={before_offset} log_end_offset={view.end_offset}"
            )
        if start <= view.log_start_offset:
            return None
        return with_start(view, start)

    return plan


def with_start(view: PartitionView, log_start_offset: int) -> Manifest:
    """Return the view's manifest with its tail absorbed, and a higher log start.

    Raises:
        Unavailable: the start lies inside the records of an open transaction.
    """
    for segment in open_references(view):
        if segment.base_offset < log_start_offset < segment.end_offset:
            raise Unavailable(
                "a transaction is open that wrote the records there; try again when it has ended. "
                f"partition={view.layout.topic}-{view.layout.partition} "
                f"offset={log_start_offset} base_offset={segment.base_offset}"
            )
    return with_log_start(with_tail(view, 0, below=log_start_offset), log_start_offset)


def open_references(view: PartitionView) -> list[Segment]:
    """Return the reference segments whose transactions have not ended in this view."""
    chain = [one.segment for one in view.tail if one.segment.kind != "fence"]
    known = outcomes(chain)
    return [one for one in chain if known.get(one.base_offset, True) is None]


def with_tail(view: PartitionView, expired_before_ms: int, below: int = 0) -> Manifest:
    """Return the view's manifest with its tail absorbed, as far as that is allowed.

    It ends before a reference segment whose transaction is open (`reference_transactions`), unless
    that begins before `below`.
    """
    opens = (one.base_offset for one in open_references(view) if one.base_offset >= below)
    first_open = next(opens, None)
    if first_open is None:
        taken = view
    else:
        taken = replace(
            view, tail=tuple(t for t in view.tail if t.segment.base_offset < first_open)
        )
    writers = {
        name: state
        for name, state in view.manifest.writers.items()
        if state.timestamp_ms >= expired_before_ms
    }
    for one in taken.tail:
        segment = one.segment
        if segment.commit is not None:
            writers[segment.commit.key.writer] = WriterState(
                segment.commit.key.sequence,
                segment.base_offset,
                segment.end_offset,
                segment.commit.timestamp_ms,
            )
    return replace(
        view.manifest,
        end_offset=taken.end_offset,
        generation=taken.position.generation,
        entries=tuple(e for e in view.entries if e.base_offset < taken.end_offset),
        writers=writers,
        leader_epoch=taken.leader_epoch,
        led=taken.is_led,
    )


@dataclass(frozen=True, slots=True)
class Replacement:
    """Neighbouring entries of a manifest, and the entries that replace them."""

    old: tuple[Entry, ...]
    new: tuple[Entry, ...]

    @property
    def base_offset(self) -> int:
        """Return the first offset covered."""
        return self.old[0].base_offset

    @property
    def end_offset(self) -> int:
        """Return the offset after the last."""
        return self.old[-1].end_offset

    def __post_init__(self) -> None:
        """Reject a replacement that breaks MANIFEST-CHANGE-1."""
        covered = (self.new[0].base_offset, self.new[-1].end_offset)
        if covered != (self.base_offset, self.end_offset):
            raise ValueError(f"replacement covers {covered}, not what it replaces: {self}")


def swap(
    replacements: Sequence[Replacement],
    cleaning: Cleaning | None = None,
    expired_before_ms: int = 0,
) -> Plan:
    """Plan to publish these replacements, which are in order of offsets, and their `cleaning`.

    The plan drops earlier cleanings that a later one before `expired_before_ms` makes redundant.
    It returns None if the replacements are published, if all lie below the log start, or if another
    job was faster (MANIFEST-CHANGE-2). `is_published` distinguishes these cases.
    """

    def plan(view: PartitionView) -> Manifest | None:
        now = with_tail(view, 0)
        cleans = cleaning is not None and cleaning.end_offset > now.cleaned_end
        if is_published(view, replacements) and not cleans:
            return None
        entries: list[Entry] = []
        at = 0
        for one in replacements:
            while at < len(now.entries) and now.entries[at].end_offset <= one.base_offset:
                entries.append(now.entries[at])
                at += 1
            end = at
            while end < len(now.entries) and now.entries[end].base_offset < one.end_offset:
                end += 1
            left = _left(one, now.log_start_offset)
            if now.entries[at:end] != left:
                return None
            entries += [e for e in one.new if e.end_offset > now.log_start_offset] if left else []
            at = end
        entries += now.entries[at:]
        if tuple(entries) == now.entries and not cleans:
            return None
        cleaned = now.cleaned
        if cleans and cleaning is not None:
            cleaned = (*forgotten(cleaned, expired_before_ms), cleaning)
        return replace(now, entries=tuple(entries), cleaned=cleaned)

    return plan


def is_published(view: PartitionView, replacements: Sequence[Replacement]) -> bool:
    """Return True if the newest manifest names all new objects that are not below its log start."""
    named = {e.object for e in view.manifest.entries}
    start = view.log_start_offset
    return all(e.object in named for one in replacements for e in one.new if e.end_offset > start)


def _left(one: Replacement, log_start_offset: int) -> tuple[Entry, ...]:
    """Return the old entries that a manifest with this log start still has."""
    return tuple(e for e in one.old if e.end_offset > log_start_offset)


def forgotten(cleaned: Sequence[Cleaning], expired_before_ms: int) -> tuple[Cleaning, ...]:
    """Return the cleanings without those that a later, expired one makes redundant."""
    expired = [c for c in cleaned if c.time_ms < expired_before_ms]
    rest = [c for c in cleaned if c.time_ms >= expired_before_ms]
    return (*expired[-1:], *rest)


def publish_over_gap(
    view: PartitionView, entries: Sequence[Entry], *, leader_epoch: int, led: bool, nonce: str
) -> Program[None]:
    """Publish a manifest that continues from the end of `view` with these entries.

    Args:
        `view`: of the partition, up to the segment that cannot be read.
        `entries`: in order, the first one where `view` ends; none if the segment is a fence.
        `leader_epoch`: the highest so far.
        `led`: True if only a leader may append after the entries, when the chain ends there.
        `nonce`: of this attempt.

    Raises:
        Unavailable: the log changed meanwhile: refresh the view. Or a transaction is open before
            the segment, as far as the chain can be read.
    """
    taken = with_tail(view, 0)
    if taken.position != view.position:
        raise Unavailable(
            "a transaction of references is open before the damaged segment; its end may lie in "
            "that or behind it, so what it wrote cannot be told from what was aborted. Nothing was "
            f"changed. partition={view.layout.folder} offset={taken.end_offset}"
        )
    version = view.manifest_name_version + 1
    key = view.layout.key(view.layout.manifest_name(version))
    made = replace(
        taken,
        version=version,
        nonce=nonce,
        entries=(*taken.entries, *entries),
        end_offset=entries[-1].end_offset if entries else taken.end_offset,
        generation=0 if entries else taken.generation + 1,
        leader_epoch=max(leader_epoch, taken.leader_epoch),
        led=led,
    )
    data = encode(made, view.layout)
    outcome = yield from put(key, data)
    ours = outcome is PutOutcome.CREATED or (yield from get(key)) == data
    _, moved = yield from newer_manifest(replace(view, manifest_name_version=version))
    if not ours or moved:
        raise Unavailable(f"the log changed meanwhile; verify it again. object={key}")
