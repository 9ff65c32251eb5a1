"""A cheap look at a partition, good enough to see that nothing is to be done there. Pure.

`refresh` looks for a newer manifest once more after it has followed the chain; a glance does
not, or takes all names from a listing somebody made anyway. What it sees may be a moment old, and
its tail may be of a manifest that has just been replaced: whoever finds work refreshes the view
before it touches anything, and a view from here is as good to begin with as any other.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparklog.core.errors import DataCorrupt
from sparklog.log.effects import Protocol
from sparklog.log.layout import PartitionLayout
from sparklog.log.refresh import (
    at_newest,
    follow_chain,
    follow_names,
    newer_manifest,
    refresh,
)
from sparklog.log.view import PartitionView
from sparklog.store.base import ObjectInfo


def glance(layout: PartitionLayout) -> Protocol[PartitionView]:
    """Return the partition as it was a moment ago. Two listings and a GET when it has no tail.

    Raises:
        DataCorrupt: a segment of the tail is damaged, or the chain is broken.
        TopicDeleted: the newest manifest says so.
    """
    view, _ = yield from newer_manifest(PartitionView(layout))
    try:
        return (yield from follow_chain(view))
    except DataCorrupt:
        return (yield from refresh(view))


def glance_at(
    layout: PartitionLayout, listed: Sequence[ObjectInfo]
) -> Protocol[PartitionView | None]:
    """Return the partition as a listing of its folder has it; None if that does not tell.

    Cost: a GET for the manifest, and one for each segment of the tail.
    """
    versions = [v for info in listed if (v := layout.manifest_version(info.key)) is not None]
    view = yield from at_newest(PartitionView(layout), versions)
    if view.manifest.deleted:
        return None
    try:
        return (yield from follow_names(view, listed))
    except DataCorrupt:
        return None
