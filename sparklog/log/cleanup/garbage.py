"""Finds the objects of a partition that are no longer needed. A pure protocol; the caller deletes.

A manifest moves the boundary first; the objects behind it are deleted later. A reader may still
need objects if it read the partition's view at most `delay_ms` ago. They are never in the result:

GARBAGE-1: An object stays if it is named by a manifest that was the newest at any time within the
    delay. So does the chain from the lowest end of these manifests on, with all objects it
    references.
GARBAGE-2: A name of the chain goes only when its position is before that of a published manifest.
GARBAGE-3: An object that no known manifest ever named goes only when it is older than any task
    that might still publish it. An object in a publication record stays until it is published.
GARBAGE-4: If the manifests do not show which was the newest within the delay, nothing goes.
GARBAGE-5: An object that a pin names stays (PINS-2). A pin goes only when no snapshot names
    it, and its creator must have ended long ago.

The listing is made before the view is read, so no object in it is newer than the view. Times are
milliseconds on the store's clock. The caller's clock agrees with it to within a fraction of the
delay. Source: FORMAT.md 6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from sparklog.core.errors import DataCorrupt
from sparklog.log.effects import Program, Range, get_many, list_after
from sparklog.log.layout import ChainPosition, PartitionLayout, is_data_name
from sparklog.log.manifest import manifest as manifests
from sparklog.log.manifest.change import VERSIONS_KEPT
from sparklog.log.manifest.manifest import EMPTY, Manifest
from sparklog.log.manifest.pins import left_pins, pinned_objects
from sparklog.log.manifest.refresh import read_segments
from sparklog.log.manifest.view import PartitionView
from sparklog.store.base import ObjectInfo

DAY_MS = 86_400_000
ORPHAN_AGE_MS = 7 * DAY_MS
"""Age at which no task can still publish an object; equal to the expiry of writers."""


@dataclass(frozen=True, slots=True)
class GarbageRules:
    """The conditions for deleting an object."""

    now_ms: int
    delay_ms: int
    """Of `file.delete.delay.ms`."""
    orphan_age_ms: int = ORPHAN_AGE_MS
    unpublished: frozenset[str] = field(default=frozenset())
    """Staged objects that publication records name, relative to the partition's folder."""
    snapshots: frozenset[str] | None = None
    """Pins of named snapshots, looked up before the listing; None keeps every pin."""


@dataclass(frozen=True, slots=True)
class Garbage:
    """The garbage in a partition's folder."""

    doomed: tuple[ObjectInfo, ...] = ()
    """Objects that may be deleted now."""
    waiting: int = 0
    """Number of objects that the log does not name, but that are too young to go."""
    problem: str = ""
    """The reason why no garbage can be found, or ''."""


def list_folder(layout: PartitionLayout) -> Program[list[ObjectInfo]]:
    """Return all objects of a partition. Call it before reading the view for `find_garbage`."""
    return (yield from list_after(layout.folder, ""))


def find_garbage(
    view: PartitionView, listed: Sequence[ObjectInfo], rules: GarbageRules
) -> Program[Garbage]:
    """Return the objects of a partition that may be deleted.

    Cost: a GET for each manifest that was in use within the delay. If an object's past matters,
    also a GET for each older manifest. If an object may go, a listing and a GET for each pin. There
    is no cost if no object may go.

    Args:
        `view`: of the partition, read after the listing was made.
        `listed`: the result of `list_folder`.
        `rules`: the conditions for deleting an object.

    Raises:
        DataCorrupt: a segment of the tail is damaged; repair that first.
    """
    found = _Listing(view.layout, listed)
    recent, problem = yield from _recent(view, found, rules)
    if problem:
        return Garbage(problem=problem)
    boundary = min(m.position for m in recent)
    named = {e.object for m in recent for e in m.entries} | {e.object for e in view.entries}
    below, beyond = found.chain_at(boundary)
    left = _left_pins(view, listed, rules)
    if any(name not in named for name in (*below, *found.loose)):
        dropped = [view.layout.relative(info.key) for info in left]
        pinned, problem = yield from pinned_objects(view.layout, but=dropped)
        if problem:
            return Garbage(problem=problem)
        named |= pinned
    doomed = [info for name, info in below.items() if name not in named]
    loose = {name: info for name, info in found.loose.items() if name not in named}
    if loose:
        named |= rules.unpublished
        named |= yield from _referenced(view.layout, [n for n in beyond if n not in named])
        loose = {name: info for name, info in loose.items() if name not in named}
    once_named = yield from _once_named(view, found, loose, rules)
    gone = [info for name, info in loose.items() if name in once_named or _is_old(info, rules)]
    kept = {m.version for m in recent}
    past = [
        info
        for version, info in found.manifests.items()
        if version <= view.manifest_name_version - VERSIONS_KEPT and version not in kept
    ]
    return Garbage((*doomed, *gone, *past, *left), len(loose) - len(gone))


class _Listing:
    """The objects of a partition's folder, grouped by their names."""

    def __init__(self, layout: PartitionLayout, listed: Sequence[ObjectInfo]) -> None:
        self.manifests: dict[int, ObjectInfo] = {}
        """By version, ascending."""
        self._chain: dict[ChainPosition, tuple[str, ObjectInfo]] = {}
        self.loose: dict[str, ObjectInfo] = {}
        """Rewritten and staged objects, by name."""
        for info in listed:
            name = layout.relative(info.key)
            version, at = layout.manifest_version(info.key), layout.chain_position(info.key)
            if version is not None:
                self.manifests[version] = info
            elif at is not None:
                self._chain[at] = name, info
            elif is_data_name(name):
                self.loose[name] = info
        self.manifests = dict(sorted(self.manifests.items()))

    def chain_at(self, boundary: ChainPosition) -> tuple[dict[str, ObjectInfo], list[str]]:
        """Return the chain's objects before a position, and the names of those from it on."""
        below = dict(one for at, one in self._chain.items() if at < boundary)
        return below, [name for at, (name, _) in self._chain.items() if at >= boundary]


def _left_pins(
    view: PartitionView, listed: Sequence[ObjectInfo], rules: GarbageRules
) -> list[ObjectInfo]:
    if rules.snapshots is None:
        return []
    return left_pins(view.layout, listed, rules.snapshots, rules.now_ms - rules.orphan_age_ms)


def _recent(
    view: PartitionView, found: _Listing, rules: GarbageRules
) -> Program[tuple[list[Manifest], str]]:
    """Return every manifest that was the newest within the delay, or why they are unknown."""
    since_ms = rules.now_ms - rules.delay_ms
    versions = list(found.manifests)
    wanted = [
        version
        for version, following in pairwise(versions)
        if found.manifests[following].modified_ms > since_ms
    ]
    wanted += versions[-1:]
    recent = [view.manifest]
    if not versions:
        return [*recent, EMPTY], ""
    if found.manifests[versions[0]].modified_ms > since_ms:
        if versions[0] > 1:
            return [], "older manifests than those kept were in use a moment ago; try again later"
        recent.append(EMPTY)
    loaded = yield from _load(view, [v for v in wanted if v != view.manifest.version])
    if len(loaded) < len([v for v in wanted if v != view.manifest.version]):
        return [], "a manifest that was in use a moment ago cannot be read; run verify"
    return [*recent, *loaded.values()], ""


def _load(view: PartitionView, versions: Sequence[int]) -> Program[Mapping[int, Manifest]]:
    """Return the readable ones of these versions."""
    keys = [view.layout.key(view.layout.manifest_name(version)) for version in versions]
    stored = yield from get_many(tuple(Range(key) for key in keys))
    loaded = {}
    for version, key, data in zip(versions, keys, stored, strict=True):
        try:
            if data is not None:
                loaded[version] = manifests.decode(data, view.layout, key)
        except DataCorrupt:
            continue
    return loaded


def _referenced(layout: PartitionLayout, names: Sequence[str]) -> Program[set[str]]:
    """Return the objects that reference segments among these objects name."""
    found = yield from read_segments(layout, names)
    return {r.object for segment in found if segment is not None for r in segment.references}


def _once_named(
    view: PartitionView, found: _Listing, loose: Mapping[str, ObjectInfo], rules: GarbageRules
) -> Program[set[str]]:
    """Return the objects of these that were part of the log, by the manifests that are left."""
    if all(_is_old(info, rules) for info in loose.values()):
        return set()
    # A manifest that never counted may have taken a pruned name again.
    oldest = view.manifest_name_version - VERSIONS_KEPT
    older = yield from _load(view, [v for v in found.manifests if v > oldest])
    return {e.object for m in older.values() for e in m.entries} & loose.keys()


def _is_old(info: ObjectInfo, rules: GarbageRules) -> bool:
    return info.modified_ms < rules.now_ms - rules.orphan_age_ms
