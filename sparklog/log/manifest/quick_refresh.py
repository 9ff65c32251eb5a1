"""Cheap views of a partition: fewer requests than `refresh` needs. Pure protocols.

`probe` finds what was appended to a view. `quick_refresh` does not look for a newer manifest again,
and `quick_refresh_at` takes all names from an existing listing. Views of these two may be slightly
old, and their tail may belong to a manifest that was just replaced. Use them to decide that there
is no work; refresh them before you change anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sparklog.core.errors import DataCorrupt
from sparklog.log.effects import Program
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest.refresh import (
    at_newest,
    follow_chain,
    follow_names,
    newer_manifest,
    read_segment,
    refresh,
    versions_of,
)
from sparklog.log.manifest.view import PartitionView
from sparklog.store.base import ObjectInfo

PROBES_MAX: Final = 8
"""Segments found one after the other before a listing becomes cheaper."""


def probe(view: PartitionView) -> Program[PartitionView]:
    """Return the partition with segments appended since. One request if there are none.

    Reads the next name of the chain as long as it exists. Such an object continues the chain only
    while no newer manifest exists (FORMAT.md 4), so one look for a manifest follows. If no segment
    is new, a newer manifest may still exist: call `refresh` now and then.

    Raises:
        DataCorrupt: a segment of the tail is damaged, or the chain is broken.
    """
    longer = view
    for _ in range(PROBES_MAX):
        try:
            found = yield from read_segment(view.layout, longer.next_name)
            if found is None:
                break
            longer = longer.extended(*found)
        except DataCorrupt:
            return (yield from refresh(view))
    else:
        return (yield from refresh(view))
    if longer is view:
        return view
    _, moved = yield from newer_manifest(longer)
    return (yield from refresh(view)) if moved else longer


def quick_refresh(layout: PartitionLayout) -> Program[PartitionView]:
    """Return the partition as it was a moment ago. Two listings and a GET if it has no tail.

    Raises:
        DataCorrupt: a segment of the tail is damaged, or the chain is broken.
        TopicDeleted: the newest manifest says so.
    """
    view, _ = yield from newer_manifest(PartitionView(layout))
    try:
        return (yield from follow_chain(view))
    except DataCorrupt:
        return (yield from refresh(view))


def quick_refresh_at(
    layout: PartitionLayout, listed: Sequence[ObjectInfo]
) -> Program[PartitionView | None]:
    """Return the partition as a listing of its folder shows it; None if it cannot be derived.

    Cost: a GET for the manifest, and one for each segment of the tail.
    """
    view = yield from at_newest(PartitionView(layout), versions_of(layout, listed))
    if view.manifest.deleted:
        return None
    try:
        return (yield from follow_names(view, listed))
    except DataCorrupt:
        return None
