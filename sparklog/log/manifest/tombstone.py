"""Burying the partitions of a deleted topic: the protocol of FORMAT.md 6, pure.

A writer that has not heard of the deletion finds the names free again once the objects are gone. So
a last manifest, the grave, is published before anything is deleted, and stays: whoever confirms an
append, or looks at the log, meets it. Named snapshots keep what their pins name (FORMAT.md 12).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from sparklog.core.errors import Unavailable
from sparklog.log.effects import Program, list_after, put
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest.manifest import encode
from sparklog.log.manifest.pins import objects_of
from sparklog.log.manifest.refresh import look_for_manifest
from sparklog.log.manifest.view import PartitionView
from sparklog.store.base import ObjectInfo

LOST_RACES_MAX = 100


def write_tombstone(view: PartitionView, nonce: str) -> Program[str]:
    """Make the partition one of a deleted topic; return the key of its grave. Idempotent.

    The chain is not looked at, so a damaged one is buried as well.

    Raises:
        Unavailable: too many lost races; try again later.
    """
    layout = view.layout
    for _ in range(LOST_RACES_MAX):
        view, _ = yield from look_for_manifest(view)
        version = view.manifest_name_version
        if view.manifest.deleted:
            return layout.key(layout.manifest_name(version))
        end = view.end_offset
        grave = replace(
            view.manifest,
            version=version + 1,
            nonce=nonce,
            log_start_offset=end,
            end_offset=end,
            entries=(),
            writers={},
            deleted=True,
        )
        # Created, taken or not known: the next look tells.
        yield from put(layout.key(layout.manifest_name(version + 1)), encode(grave, layout))
    raise Unavailable(
        "lost too many races for the last manifest; try again later. "
        f"partition={layout.folder} races={LOST_RACES_MAX}"
    )


def deletable_objects(layout: PartitionLayout, grave: str) -> Program[tuple[list[ObjectInfo], str]]:
    """Return what may be deleted of a buried partition, and why that is not all, or ''.

    A listing, and a GET per pin.
    """
    listed = yield from list_after(layout.folder, "")
    return (yield from unpinned(layout, listed, {grave}))


def unpinned(
    layout: PartitionLayout,
    listed: Sequence[ObjectInfo],
    graves: Iterable[str],
    left_pins: Iterable[str] = (),
) -> Program[tuple[list[ObjectInfo], str]]:
    """Return what of a buried partition's listing may be deleted, and why that is not all, or ''.

    Args:
        layout: of the partition.
        listed: its folder, listed when the grave was there: so every pin that counts is in it.
        graves: keys that stay.
        left_pins: names of pins that are needed no more; they may go, and what only they name.
    """
    dropped = set(left_pins)
    named, problem = yield from objects_of(layout, listed, but=dropped)
    if problem:
        return [], problem
    stay = {*graves, *map(layout.key, named)}
    return [
        info
        for info in listed
        if info.key not in stay
        and (layout.pin_nonce(info.key) is None or layout.relative(info.key) in dropped)
    ], ""
