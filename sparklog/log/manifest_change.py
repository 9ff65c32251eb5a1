"""Changing the manifest: the protocol of FORMAT.md 6, pure, and the plans that use it.

A plan looks at a view and returns the next manifest, or None when there is nothing (left) to do.
Plans are run again after every lost race, so a plan must see its own work as done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sparklog.core.errors import OffsetOutOfRange, Unavailable
from sparklog.log.effects import Protocol, delete, get, put
from sparklog.log.manifest import Manifest, WriterState, encode, with_log_start
from sparklog.log.referred_transactions import outcomes
from sparklog.log.refresh import at_manifest, newer_manifest, refresh
from sparklog.log.segment import Segment
from sparklog.log.view import PartitionView
from sparklog.store.base import PutOutcome

VERSIONS_KEPT = 32
LOST_RACES_MAX = 100

Plan = Callable[[PartitionView], Manifest | None]


def change(
    view: PartitionView, plan: Plan, nonce: str, *, over_manifests: bool = False
) -> Protocol[PartitionView]:
    """Publish what `plan` makes of the newest view. Returns the view afterwards.

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
        # A stalled writer may re-create the name of a version that is long gone; then newer ones
        # exist, ours never counted, and the plan is made again.
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
    """Plan to take in a tail of `segments_min` or more; writers long silent are dropped."""

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
        Unavailable: amid what an open transaction refers to; try again when it has ended.
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
    """Return the view's manifest with its tail taken in, and a higher log start.

    Raises:
        Unavailable: the start lies amid what an open transaction refers to.
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
    """Return the reference segments whose transactions have not ended, as far as the view tells."""
    chain = [one.segment for one in view.tail if one.segment.kind != "fence"]
    known = outcomes(chain)
    return [one for one in chain if known.get(one.base_offset, True) is None]


def with_tail(view: PartitionView, expired_before_ms: int, below: int = 0) -> Manifest:
    """Return the view's manifest with its tail taken in, as far as that may be.

    It ends before a reference segment whose transaction is open (`referred_transactions`), unless
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
