"""Looking a partition over: every object, every checksum, and what is lost if one is damaged.

Damage is collected, not raised: one bad object must not hide another. Changes nothing. The shell
reads through a store; offsets lost are told as far as names and manifests tell them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import pairwise

from sparklog.core.errors import DataCorrupt, TopicDeleted
from sparklog.core.types import UNLED_EPOCH
from sparklog.log import manifest as manifests
from sparklog.log.effects import run
from sparklog.log.garbage import GarbageRules, find_garbage, list_folder
from sparklog.log.layout import PartitionLayout, is_data_name
from sparklog.log.manifest import Entry
from sparklog.log.reading import SegmentReader
from sparklog.log.rewriting import ROW_COLUMNS
from sparklog.log.segment import Segment
from sparklog.log.view import PartitionView, look_for_manifest, read_segment
from sparklog.store.base import ObjectInfo, ObjectNotFound, ObjectStore


@dataclass(frozen=True, slots=True)
class Damage:
    """Something that is not as the format says."""

    object: str
    """The object's key, or the partition's folder."""
    what: str
    lost_base: int = 0
    """Offsets [lost_base, lost_end) cannot be read; equal when no record is lost."""
    lost_end: int = 0


@dataclass(frozen=True, slots=True)
class Verified:
    """What was found in a partition."""

    log_start_offset: int = 0
    end_offset: int = 0
    objects: int = 0
    rows: int = 0
    size_bytes: int = 0
    damages: tuple[Damage, ...] = ()
    orphans: int = 0
    """Objects that nothing names; retention collects them."""
    foreign: tuple[str, ...] = field(default=())
    """Keys of objects that are none of the format's."""


def verify(
    store: ObjectStore, layout: PartitionLayout, pool: Executor, *, deep: bool, now_ms: int
) -> Verified:
    """Look a partition over.

    Cost: two listings, a GET per manifest and a footer per segment; `deep`, all of the records.

    Args:
        store: where it is.
        layout: which it is.
        pool: fetches ahead.
        deep: read the records, too, and compare their checksums.
        now_ms: the time now, to tell orphans from what is being written.
    """
    listed = run(list_folder(layout), store)
    names = {layout.relative(info.key): info for info in listed}
    damages = list(_manifest_damages(store, layout, listed))
    try:
        view, _ = run(look_for_manifest(PartitionView(layout)), store)
    except TopicDeleted:
        return Verified()
    view, found = _tail(store, view, names)
    damages += found
    reader = SegmentReader(store, layout, pool)
    rows = 0
    for entry in view.entries:
        damage = _entry_damage(reader, view, entry, names, deep=deep)
        if damage is None:
            rows += entry.rows
        else:
            damages.append(damage)
    damages += _epoch_damages(view)
    orphans = 0
    if not damages:
        garbage = run(find_garbage(view, listed, GarbageRules(now_ms, 0, 0)), store)
        orphans = len(garbage.doomed) + garbage.waiting
    return Verified(
        view.log_start_offset,
        view.end_offset,
        len(view.entries),
        rows,
        sum(e.size_bytes for e in view.entries),
        tuple(damages),
        orphans,
        tuple(info.key for info in listed if not _is_known(layout, info)),
    )


def _is_known(layout: PartitionLayout, info: ObjectInfo) -> bool:
    return (
        is_data_name(layout.relative(info.key))
        or layout.manifest_version(info.key) is not None
        or layout.snapshot_end(info.key) is not None
        or layout.pin_nonce(info.key) is not None
    )


def _manifest_damages(
    store: ObjectStore, layout: PartitionLayout, listed: Sequence[ObjectInfo]
) -> Iterator[Damage]:
    for info in listed:
        if layout.manifest_version(info.key) is None:
            continue
        try:
            manifests.decode(store.get(info.key), layout, info.key)
        except DataCorrupt as error:
            yield Damage(info.key, f"{error} (the version before it is used)")
        except ObjectNotFound:
            continue


def _tail(
    store: ObjectStore, view: PartitionView, names: dict[str, ObjectInfo]
) -> tuple[PartitionView, list[Damage]]:
    """Follow the chain as far as it can be read."""
    layout = view.layout
    while True:
        name = layout.chain_name(view.end_offset)
        base = view.end_offset
        try:
            found = run(read_segment(layout, name), store)
            if found is not None:
                view = view.extended(found[0], name, found[1])
                continue
            what = "the chain has a hole here" if _after(layout, names, base) is not None else ""
        except DataCorrupt as error:
            what = str(error)
        if not what:
            return view, []
        # Names tell where the next segment begins; what lies beyond is not part of the log now.
        end = _after(layout, names, base) or base + 1
        more = sum(1 for n in names if (layout.chain_base(layout.key(n)) or 0) > base)
        told = f"{what}; {more} segments after it cannot be reached"
        return view, [Damage(layout.key(name), told, base, end)]


def _after(layout: PartitionLayout, names: dict[str, ObjectInfo], offset: int) -> int | None:
    """Return the lowest base of a chain's segment beyond an offset."""
    bases = (layout.chain_base(layout.key(name)) for name in names)
    return min((base for base in bases if base is not None and base > offset), default=None)


def _entry_damage(
    reader: SegmentReader,
    view: PartitionView,
    entry: Entry,
    names: dict[str, ObjectInfo],
    *,
    deep: bool,
) -> Damage | None:
    key = view.layout.key(entry.object)
    low = max(entry.base_offset, view.log_start_offset)

    def lost(what: str) -> Damage:
        return Damage(key, what, low, max(low, entry.end_offset))

    try:
        segment = reader.footer(entry)
        problem = _misplaced(entry, segment)
        if problem:
            return lost(problem)
        if entry.object in names and names[entry.object].size_bytes != entry.size_bytes:
            return lost(f"object has another size than the log says; bytes={entry.size_bytes}")
        if deep and entry.rows and low < entry.end_offset:
            for _ in reader.read(view, low, entry.end_offset, ROW_COLUMNS):
                pass
    except DataCorrupt as error:
        return lost(str(error))
    return None


def _misplaced(entry: Entry, segment: Segment) -> str:
    """Return how a segment's own offsets contradict what it is read for, or ''."""
    low, high = entry.base_offset - entry.object_base, entry.end_offset - entry.object_base
    if low < 0 or high > segment.end_offset - segment.base_offset:
        return "object covers fewer offsets than the log says"
    if any(a.end != b.base for a, b in pairwise(segment.batches)):
        return "record batches of the object do not join"
    if segment.rows != sum(batch.rows for batch in segment.batches):
        return "record batches of the object do not have its rows"
    return ""


def _epoch_damages(view: PartitionView) -> Iterator[Damage]:
    """Yield where leader epochs fall; direct appends, which have none, belong to those before."""
    highest = UNLED_EPOCH
    for entry in view.entries:
        if UNLED_EPOCH < entry.leader_epoch < highest:
            yield Damage(
                view.layout.key(entry.object),
                f"leader epoch falls. epoch={entry.leader_epoch} before={highest}",
            )
        highest = max(highest, entry.leader_epoch)
