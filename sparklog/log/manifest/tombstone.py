"""Tombstones of the partitions of a deleted topic: the protocol of FORMAT.md 6, pure.

A writer that does not know of the deletion finds the names free again after the objects are gone.
So a last manifest, the tombstone, is published before any object is deleted. It stays for ever, so
a writer finds it when it confirms an append, and a reader when it refreshes its view. Named
snapshots keep the objects that their pins name (FORMAT.md 12).
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
    """Mark the partition as one of a deleted topic; return the key of its tombstone. Idempotent.

    It does not read the chain, so a damaged partition gets a tombstone as well.

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
        tombstone = replace(
            view.manifest,
            version=version + 1,
            nonce=nonce,
            log_start_offset=end,
            end_offset=end,
            entries=(),
            writers={},
            deleted=True,
        )
        # Created, already taken or unknown: the next round finds out.
        yield from put(layout.key(layout.manifest_name(version + 1)), encode(tombstone, layout))
    raise Unavailable(
        "lost too many races for the last manifest; try again later. "
        f"partition={layout.folder} races={LOST_RACES_MAX}"
    )


def deletable_objects(
    layout: PartitionLayout, tombstone: str
) -> Program[tuple[list[ObjectInfo], str]]:
    """Return the deletable objects of a deleted partition, and why some must stay, or ''.

    A listing, and a GET per pin.
    """
    listed = yield from list_after(layout.folder, "")
    return (yield from unpinned(layout, listed, {tombstone}))


def unpinned(
    layout: PartitionLayout,
    listed: Sequence[ObjectInfo],
    tombstones: Iterable[str],
    left_pins: Iterable[str] = (),
) -> Program[tuple[list[ObjectInfo], str]]:
    """Return the deletable objects in a deleted partition's listing, and why some stay, or ''.

    Args:
        `layout`: of the partition.
        `listed`: its folder, listed after the tombstone existed: so it has every valid pin.
        `tombstones`: keys of tombstones, which stay.
        `left_pins`: names of unused pins; they may go, with the objects that only they name.
    """
    dropped = set(left_pins)
    named, problem = yield from objects_of(layout, listed, but=dropped)
    if problem:
        return [], problem
    stay = {*tombstones, *map(layout.key, named)}
    return [
        info
        for info in listed
        if info.key not in stay
        and (layout.pin_nonce(info.key) is None or layout.relative(info.key) in dropped)
    ], ""
