"""Views of a partition: reads its newest manifest and the chain above it. Pure protocols.

`refresh` and `readable` look for a newer manifest once more after they have followed the chain.
FORMAT.md 4 says when a tail is valid.

`readable_at_once` does the same as `readable` with several requests under way, for threads. Any
view is a valid start for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sparklog.core.errors import DataCorrupt, TopicDeleted
from sparklog.log.effects import (
    GetMany,
    ListAfter,
    Program,
    Range,
    Together,
    get,
    get_many,
    list_after,
)
from sparklog.log.layout import ChainPosition, PartitionLayout
from sparklog.log.manifest import manifest as manifests
from sparklog.log.manifest.manifest import Manifest
from sparklog.log.manifest.view import PartitionView
from sparklog.log.segment.file import TRAILER_BYTES, footer_metadata, footer_start
from sparklog.log.segment.footer import from_metadata
from sparklog.log.segment.segment import Segment
from sparklog.store.base import ObjectInfo

FOOTER_READ_BYTES = 64 * 1024
"""Bytes read from an object's end first; nearly always they hold the whole footer."""
REFRESH_ROUNDS_MAX = 16
NAMES_READ_AT_ONCE = 64
LISTED_EARLY_MAX = 1000
"""Names of the log that are listed beside those of manifests: one request."""


def read_segment(
    layout: PartitionLayout, name: str, size_bytes: int | None = None
) -> Program[tuple[Segment, int] | None]:
    """Read a segment's metadata and size; None if the object is absent. One request, seldom two.

    Raises:
        DataCorrupt: the object is damaged.
    """
    key = layout.key(name)
    tail = yield from get(key, -FOOTER_READ_BYTES)
    if tail is None:
        return None
    if size_bytes is None and len(tail) < FOOTER_READ_BYTES:
        size_bytes = len(tail)
    return (yield from _decode_segment(layout, key, tail, size_bytes))


def read_segments(layout: PartitionLayout, names: Sequence[str]) -> Program[list[Segment | None]]:
    """Read the metadata of several segments at once; None for those that are absent.

    Raises:
        DataCorrupt: an object is damaged.
    """
    stored = yield from read_stored(layout, names)
    return [one[0] if one is not None else None for one in stored]


def read_stored(
    layout: PartitionLayout, names: Sequence[str]
) -> Program[list[tuple[Segment, int] | None]]:
    """Return `read_segment` of several objects at once.

    Raises:
        DataCorrupt: an object is damaged.
    """
    keys = [layout.key(name) for name in names]
    tails = yield from get_many(_ends_of(keys))
    found: list[tuple[Segment, int] | None] = []
    for key, tail in zip(keys, tails, strict=True):
        known = len(tail) if tail is not None and len(tail) < FOOTER_READ_BYTES else None
        found.append(
            None if tail is None else (yield from _decode_segment(layout, key, tail, known))
        )
    return found


def _decode_segment(
    layout: PartitionLayout, key: str, tail: bytes, size_bytes: int | None
) -> Program[tuple[Segment, int]]:
    # Positions from the end do not need the size: assume the largest possible file.
    pretended = size_bytes if size_bytes is not None else 1 << 62
    footer_bytes = pretended - footer_start(tail, pretended, key)
    if footer_bytes > len(tail):
        longer = yield from get(key, -footer_bytes)
        if longer is None or len(longer) < footer_bytes:
            raise DataCorrupt(f"object is shorter than its footer says; run verify. object={key}")
        tail = longer
    segment = from_metadata(footer_metadata(tail[-footer_bytes:], key), layout, key)
    if size_bytes is None:
        size_bytes = _size_from_index(segment, footer_bytes)
    return segment, size_bytes


def _size_from_index(segment: Segment, footer_bytes: int) -> int:
    if segment.keys is not None:  # its filter is the last before the footer
        return segment.keys.start + segment.keys.length + footer_bytes
    if segment.batches:
        last = segment.batches[-1].stored
        stream_end = last.position + last.meta.length + last.body_length
    else:
        stream_end = segment.head[0]
    return stream_end + 8 + footer_bytes


def refresh(
    view: PartitionView, *, over_manifests: bool = False, at_once: bool = False
) -> Program[PartitionView]:
    """Return the partition as it is now. One listing of the log and two of manifests when idle.

    `over_manifests` skips newer manifests that cannot be read: for repair only. With `at_once` it
    looks as `readable_at_once` does.

    Raises:
        DataCorrupt: a segment of the tail is damaged, the chain has a hole, or the newest manifest
            cannot be read. The log beyond is unknown, so no writer may append there.
    """
    view = yield from (readable_at_once if at_once else readable)(view)
    if view.damage is not None and not (over_manifests and view.damage is view.manifest_damage):
        raise view.damage
    return view


def readable(view: PartitionView) -> Program[PartitionView]:
    """Return the partition as far as it is readable now; `damage` says why the view ends there.

    For readers only: no writer may append at the end of such a view. Cost: as `refresh`.
    """
    for _ in range(REFRESH_ROUNDS_MAX):
        # If nothing changed, the result is the same object.
        known = view if view.damage is None else replace(view, damage=None)
        view, _ = yield from newer_manifest(known)
        listed = yield from _listed_after(view)
        view = yield from _followed(view, positions_from(view, listed))
        beyond = None if view.damage is not None else _beyond(view, listed)
        # The listing may lack segments that were appended while the store made it.
        if beyond and (yield from get(view.layout.key(view.next_name), -1)) is not None:
            continue
        view, moved = yield from newer_manifest(view)
        if not moved:
            return _with_damage(view, beyond)
    raise DataCorrupt(
        "the manifest kept changing while the tail was read; is a job rewriting in a loop? "
        f"partition={view.layout.folder}"
    )


def readable_at_once(
    view: PartitionView, *, early: Sequence[ObjectInfo] | None = None, ahead: int = 0
) -> Program[PartitionView]:
    """Return what `readable` does, in fewer steps; in `run` only.

    Both listings are one step, the tail's footers another, and a new manifest one between them. The
    last one looks for a newer manifest. If the result is not the whole log, `readable` follows.
    Cost: as `readable`, and a listing more where the first one may be older than a new manifest.

    Args:
        `view`: a view from before.
        `early`: a listing of the partition's folder that the caller began after it needed the view.
            It saves a step. Only for a view without records.
        `ahead`: the number of newest objects whose footers are read in the first steps, for a
            store that keeps them. It saves the step of the tail's footers above a new manifest.
    """
    known = view if view.damage is None else replace(view, damage=None)
    versions, listed = yield from _listed_at_once(known, early, ahead)
    ends: dict[str, bytes | None] = {}
    if versions:
        moved = yield from _moved_at_once(known, max(versions), listed, ahead)
        if moved is None:
            return (yield from readable(known))
        known, ends = moved
    if len(listed) >= LISTED_EARLY_MAX or (versions and not _shows_end(known, listed)):
        listed = yield from _listed_after(known)
    positions = positions_from(known, listed)
    keys = [known.layout.key(known.layout.chain_name(*position)) for position in sorted(positions)]
    if len(keys) > NAMES_READ_AT_ONCE:
        return (yield from readable(known))
    missing = [key for key in keys if key not in ends]
    if missing:
        ends |= zip(missing, (yield from get_many(_ends_of(missing))), strict=True)
    longer = yield from _followed(known, positions, [ends[key] for key in keys])
    # A name that a rewrite freed may have another object. So this look begins after all were read.
    newer = versions_of(known.layout, (yield _manifests_after(known)))
    if newer or longer.damage is not None or _beyond(longer, listed):
        return (yield from readable(known))
    return _with_damage(longer, None)


def _listed_at_once(
    view: PartitionView, early: Sequence[ObjectInfo] | None, ahead: int
) -> Program[tuple[list[int], Sequence[ObjectInfo]]]:
    """Return the versions of newer manifests, and the log as it was then, before or later."""
    layout = view.layout
    if early is not None:
        listed = [info for info in early if info.key.startswith(layout.chain_prefix)]
        return versions_of(layout, early), listed
    log = ListAfter(layout.chain_prefix, _last_known(view), LISTED_EARLY_MAX)
    newest = view.entries[-ahead:] if ahead else ()
    names = tuple(dict.fromkeys(layout.key(entry.object) for entry in newest))
    reads: tuple[ListAfter | GetMany, ...] = (_manifests_after(view), log)
    if names:
        reads = (*reads, GetMany(_ends_of(names)))
    manifests_listed, listed, *_ = yield Together(reads)
    return versions_of(layout, manifests_listed), listed


def _moved_at_once(
    view: PartitionView, newest: int, listed: Sequence[ObjectInfo], ahead: int
) -> Program[tuple[PartitionView, dict[str, bytes | None]] | None]:
    """Return the view at a manifest, and the ends of the newest objects; None if it is unreadable.

    Both are one step.
    """
    layout = view.layout
    key = layout.key(layout.manifest_name(newest))
    names = [info.key for info in listed[-ahead:]] if ahead else []
    data, *ends = yield from get_many((Range(key), *_ends_of(names)))
    if data is None:
        return None
    try:
        found = manifests.decode(data, layout, key)
    except DataCorrupt:
        return None  # `readable` reports it
    return _existing(at_manifest(view, found, newest)), dict(zip(names, ends, strict=True))


def _shows_end(view: PartitionView, listed: Iterable[ObjectInfo]) -> bool:
    """Return True if all that the view's manifest names was there when the log was listed.

    A listing from before that does not show which name at the manifest's end is free.
    """
    manifest = view.manifest
    if manifest.generation or not manifest.entries:
        return not manifest.end_offset and not manifest.generation
    last = manifest.entries[-1]
    key = view.layout.key(last.object)
    return last.end_offset == manifest.end_offset and any(info.key == key for info in listed)


def _beyond(view: PartitionView, listed: Iterable[ObjectInfo]) -> str | None:
    """Return the first object that only a log longer than the view's can have, if there is one.

    The chain has no name after the first free one. A rewritten object holds records from before
    its log's end.
    """
    layout = view.layout
    for info in listed:
        position = layout.chain_position(info.key)
        rewritten = layout.rewritten_base(info.key)
        if position is not None and position > view.position:
            return info.key
        if rewritten is not None and rewritten >= view.end_offset:
            return info.key
    return None


def _with_damage(view: PartitionView, beyond: str | None) -> PartitionView:
    """Return the view with the damage that hides the end of the log, if there is any."""
    if view.damage is not None:
        return view
    if beyond is not None:
        hole = DataCorrupt(
            "an object of the log is gone, and there are objects after it; run verify. "
            f"object={view.layout.key(view.next_name)} later_object={beyond}"
        )
        return replace(view, damage=hole)
    return view if view.manifest_damage is None else replace(view, damage=view.manifest_damage)


def unreadable(view: PartitionView) -> DataCorrupt:
    """Return the error for a reader that needs more than a view with damage has."""
    return DataCorrupt(
        f"offsets from {view.end_offset} on cannot be read, those before can: {view.damage}"
    )


def newer_manifest(view: PartitionView) -> Program[tuple[PartitionView, bool]]:
    """Look for a newer manifest. Returns the view from there, and True if there was a newer name.

    The view drops the tail that the newer manifest covers. Versions that cannot be read are
    skipped, and the view's `manifest_damage` reports them.

    Raises:
        TopicDeleted: the newest manifest says so.
    """
    view, moved = yield from look_for_manifest(view)
    return _existing(view), moved


def _existing(view: PartitionView) -> PartitionView:
    if view.manifest.deleted:
        raise TopicDeleted(
            "the topic was deleted; one of the same name is another topic, so look it up again. "
            f"topic={view.layout.topic} topic_id={view.layout.topic_id}"
        )
    return view


def look_for_manifest(view: PartitionView) -> Program[tuple[PartitionView, bool]]:
    """Look for a newer manifest, even the last one of a deleted topic; see `newer_manifest`."""
    versions = versions_of(view.layout, (yield _manifests_after(view)))
    if not versions:
        return view, False
    return (yield from at_newest(view, versions)), True


def _manifests_after(view: PartitionView) -> ListAfter:
    layout = view.layout
    after = layout.key(layout.manifest_name(view.manifest_name_version))
    return ListAfter(layout.manifest_prefix, after)


def versions_of(layout: PartitionLayout, listed: Iterable[ObjectInfo]) -> list[int]:
    """Return the versions of the listed manifests."""
    return [v for info in listed if (v := layout.manifest_version(info.key)) is not None]


def at_newest(view: PartitionView, versions: Sequence[int]) -> Program[PartitionView]:
    """Return the view moved to the newest of these manifests that can be read, if any can."""
    layout = view.layout
    found = view.manifest
    damage: DataCorrupt | None = None
    for version in sorted(versions, reverse=True):
        name = layout.manifest_name(version)
        data = yield from get(layout.key(name))
        if data is None:
            continue
        try:
            candidate = manifests.decode(data, layout, layout.key(name))
        except DataCorrupt as error:
            damage = damage or _newest_unreadable(error)
            continue
        found = candidate
        break
    else:  # the known manifest is older still
        damage = damage or view.manifest_damage
    return at_manifest(view, found, max(versions, default=0), damage)


def _newest_unreadable(error: DataCorrupt) -> DataCorrupt:
    return DataCorrupt(
        f"the newest manifest cannot be read, so nobody knows where the log ends: {error}"
    )


def at_manifest(
    view: PartitionView,
    found: Manifest,
    highest: int,
    damage: DataCorrupt | None = None,
) -> PartitionView:
    """Return the view moved to manifest `found`, without the tail that it covers.

    `damage` says that a newer version than `found` cannot be read.
    """
    tail = tuple(t for t in view.tail if t.position >= found.position)
    if tail and tail[0].position != found.position:
        tail = ()
    return replace(
        view,
        manifest=found,
        manifest_name_version=max(highest, view.manifest_name_version),
        tail=tail,
        manifest_damage=damage,
    )


def follow_chain(view: PartitionView) -> Program[PartitionView]:
    """Extend the view by the segments that now follow its end.

    Raises:
        DataCorrupt: a segment is damaged or missing, or the newest manifest cannot be read. Or the
            chain seems to have a hole: call `refresh` to check.
    """
    return (yield from follow_names(view, (yield from _listed_after(view))))


def _listed_after(view: PartitionView) -> Program[Sequence[ObjectInfo]]:
    """Return the objects of the log at and after the view's end, and rewritten ones from there."""
    return (yield from list_after(view.layout.chain_prefix, _last_known(view)))


def _last_known(view: PartitionView) -> str:
    """Return a key before those of objects at the view's end, or ''."""
    end = view.end_offset
    # At one offset '-' (rewritten) sorts before '.', and that before '~' (after fences).
    return view.layout.key(view.layout.chain_name(end - 1)) if end else ""


def positions_from(view: PartitionView, listed: Iterable[ObjectInfo]) -> dict[ChainPosition, int]:
    """Return the bytes of those objects that the chain has at or after the view's end."""
    return {
        position: info.size_bytes
        for info in listed
        if (position := view.layout.chain_position(info.key)) is not None
        and position >= view.position
    }


def follow_names(view: PartitionView, listed: Sequence[ObjectInfo]) -> Program[PartitionView]:
    """Extend the view by those of the listed objects that follow its end.

    Raises:
        DataCorrupt: see `follow_chain`.
    """
    view = yield from _followed(view, positions_from(view, listed))
    view = _with_damage(view, _beyond(view, listed))
    if view.damage is not None:
        raise view.damage
    return view


def _ends_of(keys: Iterable[str]) -> tuple[Range, ...]:
    return tuple(Range(key, -FOOTER_READ_BYTES) for key in keys)


def _followed(
    view: PartitionView,
    sizes: Mapping[ChainPosition, int],
    ends: Sequence[bytes | None] | None = None,
) -> Program[PartitionView]:
    """Extend the view as `follow_names` does, as far as objects can be read.

    `ends` are those of all the objects, in order, if the caller has read them.
    """
    layout = view.layout
    positions = sorted(sizes)
    for at in range(0, len(positions), NAMES_READ_AT_ONCE):
        some = positions[at : at + NAMES_READ_AT_ONCE]
        keys = [layout.key(layout.chain_name(*position)) for position in some]
        tails = (yield from get_many(_ends_of(keys))) if ends is None else ends
        for position, key, tail in zip(some, keys, tails, strict=True):
            if position != view.position:
                continue
            try:
                if tail is None or len(tail) < TRAILER_BYTES:
                    raise DataCorrupt(f"segment vanished or was cut off; run verify. object={key}")
                segment, _ = yield from _decode_segment(layout, key, tail, sizes[position])
                view = view.extended(segment, sizes[position])
            except DataCorrupt as error:
                return replace(view, damage=error.with_traceback(None))
    return view
