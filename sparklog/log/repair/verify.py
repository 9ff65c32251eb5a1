"""Verifies a partition: every object, every checksum, and the offsets lost to damage.

A verification collects damages and does not raise them: one bad object must not hide another. It
changes nothing. It reports lost offsets as far as names and manifests show them: by the record
batch if a segment's index is readable, else by segment.

It also checks objects beside the log: hints, which repeat data of the log, and pins. It compares a
snapshot of producers with the footers of the segments before its offset: last batches, their
sequences, and open transactions. The snapshot may have more, from deleted segments. It may have
less, because producers expire.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from itertools import pairwise

from crc32c import crc32c

from sparklog.core.errors import DataCorrupt
from sparklog.core.types import UNLED_EPOCH
from sparklog.log.checked_json import decode_checked
from sparklog.log.cleanup.garbage import GarbageRules, find_garbage, list_folder
from sparklog.log.cleanup.rewriter import ROW_COLUMNS
from sparklog.log.effects import run
from sparklog.log.layout import METADATA_TOPIC_ID, ChainPosition, PartitionLayout
from sparklog.log.manifest import manifest as manifests
from sparklog.log.manifest.manifest import Entry
from sparklog.log.manifest.refresh import look_for_manifest, read_segment
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.segment_reader import SegmentReader
from sparklog.log.repair.findings import Damage, DamageKind, Verified
from sparklog.log.segment.segment import BatchIndex, Segment
from sparklog.log.segment.unread_batches import Unread, why_unreadable
from sparklog.log.tail.producer_rebuild import replay_segment
from sparklog.log.tail.producer_snapshot import decode
from sparklog.log.tail.producer_state import ProducerStates
from sparklog.protocol.records.header import parse_header
from sparklog.store.base import ObjectInfo, ObjectNotFound, ObjectStore


class HintCheck:
    """Compares a partition's hints with its segments, which come in order."""

    def __init__(
        self, store: ObjectStore, layout: PartitionLayout, listed: Sequence[ObjectInfo]
    ) -> None:
        """Read the hints in this listing."""
        self._bad: list[tuple[str, str]] = []
        self._known: dict[int, tuple[str, ProducerStates, ProducerStates]] = {}
        """By end offset: key, state in the hint, state in the segments."""
        for info in listed:
            end = layout.snapshot_end(info.key)
            if end is None:
                continue
            try:
                data = store.get(info.key)
            except ObjectNotFound:
                continue
            if not _is_whole(data, end):
                self._bad.append((info.key, "a snapshot is damaged (the log tells the same)"))
            elif layout.topic_id != METADATA_TOPIC_ID:
                said = decode(data, end)
                if said is None:
                    self._bad.append((info.key, "a snapshot of producers cannot be read"))
                else:
                    self._known[end] = info.key, said, ProducerStates()

    def take(self, entry: Entry, segment: Segment) -> None:
        """Add the next segment of the log.

        Raises:
            DataCorrupt: a marker in it cannot be read.
        """
        for end, (_, _, found) in self._known.items():
            if entry.base_offset < end:
                replay_segment(found, _until(segment, entry.base_offset, end), 0)

    def problems(self, *, complete: bool) -> Iterator[tuple[str, str]]:
        """Yield the keys of wrong hints, and their errors; `complete`: all segments were added."""
        yield from self._bad
        for key, said, found in self._known.values() if complete else ():
            what = _difference(said, found)
            if what:
                yield key, f"a snapshot of producers contradicts the segments: {what}"


def pin_problems(
    store: ObjectStore,
    layout: PartitionLayout,
    listed: Sequence[ObjectInfo],
    wanted: Collection[str],
) -> Iterator[tuple[str, str]]:
    """Yield the keys of pins that are damaged, or name missing objects, and their errors.

    `wanted`: the pins of snapshots.
    """
    names = {layout.relative(info.key) for info in listed}
    for name in sorted(set(map(layout.pin_name, wanted)) - names):
        yield layout.key(name), "a pin that a snapshot names is missing; it cannot be read here"
    for info in listed:
        if layout.pin_nonce(info.key) is None:
            continue
        try:
            pinned = manifests.decode(store.get(info.key), layout, info.key)
        except ObjectNotFound:
            continue
        except DataCorrupt as error:
            yield info.key, f"a pin is damaged; its snapshot cannot be read here: {error}"
            continue
        for entry in pinned.entries:
            if entry.object not in names:
                where = f"offsets {entry.base_offset} to {entry.end_offset}"
                yield info.key, f"a snapshot misses {where}. object={layout.key(entry.object)}"


def _is_whole(data: bytes, end_offset: int) -> bool:
    try:
        decode_checked(data, "snapshot", end_offset=end_offset)
    except DataCorrupt:
        return False
    return True


def _until(segment: Segment, base_offset: int, end: int) -> Segment:
    """Return the segment at its offsets, without the batches at or after `end`."""
    return replace(
        segment,
        base_offset=base_offset,
        producers=tuple(p for p in segment.producers if p.base + base_offset < end),
        markers=tuple(m for m in segment.markers if m.base + base_offset < end),
    )


def _difference(said: ProducerStates, found: ProducerStates) -> str:
    states = dict(said)
    for producer_id, known in found:
        other = states.get(producer_id)
        if other is None or not known.batches:
            continue
        mine, theirs = known.batches[-1].end_offset, other.batches
        if theirs and theirs[-1].end_offset < mine:
            return (
                f"producer {producer_id} wrote up to offset {mine}, "
                f"and it says {theirs[-1].end_offset}"
            )
        if other.epoch == known.epoch and other.last_sequence != known.last_sequence:
            return (
                f"producer {producer_id} came to sequence {known.last_sequence}, "
                f"and it says {other.last_sequence}"
            )
    began = dict(said.transactions.open())
    for producer_id, first_offset in found.transactions.open():
        # A transaction that began in a deleted segment looks younger than it is.
        if producer_id in states and began.get(producer_id, first_offset + 1) > first_offset:
            return f"a transaction of producer {producer_id} is open from offset {first_offset}"
    return ""


@dataclass(frozen=True, slots=True)
class Findings:
    """The results, and the partition as far as it can be read."""

    verified: Verified
    view: PartitionView
    listed: tuple[ObjectInfo, ...]

    @property
    def damages(self) -> tuple[Damage, ...]:
        """Return the damages."""
        return self.verified.damages


def verify(
    store: ObjectStore, layout: PartitionLayout, pool: Executor, *, deep: bool, now_ms: int
) -> Verified:
    """Verify a partition.

    Cost: two listings, a GET per manifest, hint and pin, and a footer per segment. With `deep` also
    all records.

    Args:
        `store`: of the partition.
        `layout`: names of the partition's objects.
        `pool`: fetches ahead.
        `deep`: also read the records, and verify their checksums.
        `now_ms`: the time now, to distinguish orphans from unfinished uploads.
    """
    return examine(store, layout, pool, deep=deep, now_ms=now_ms).verified


def examine(
    store: ObjectStore,
    layout: PartitionLayout,
    pool: Executor,
    *,
    deep: bool,
    now_ms: int,
    pins: Collection[str] = (),
) -> Findings:
    """Verify a partition; see `verify`. `pins`: those of named snapshots."""
    listed = run(list_folder(layout), store)
    pinned = [
        Damage(key, what, kind=DamageKind.PIN)
        for key, what in pin_problems(store, layout, listed, pins)
    ]
    names = {layout.relative(info.key): info for info in listed}
    damages = list(_manifest_damages(store, layout, listed))
    view, _ = run(look_for_manifest(PartitionView(layout)), store)
    if view.manifest.deleted:
        return Findings(Verified(damages=tuple(pinned)), view, tuple(listed))
    view, found = _tail(store, view, names)
    damages += found
    reader = SegmentReader(store, layout, pool)
    hints = HintCheck(store, layout, listed)
    rows = 0
    for entry in view.entries:
        lost = entry_damages(reader, view, entry, names, deep=deep)
        rows += entry.rows - min(entry.rows, sum(one.rows or 0 for one in lost))
        damages += lost
        if deep and not lost:
            damages += _index_damages(store, layout, entry, reader.footer(entry))
        try:
            if not lost:
                hints.take(entry, reader.footer(entry))
        except DataCorrupt as error:
            damages.append(Damage(layout.key(entry.object), str(error)))
    damages += _epoch_damages(view)
    problems = hints.problems(complete=not any(d.lost_end > d.lost_base for d in damages))
    damages += [Damage(key, what, kind=DamageKind.HINT) for key, what in problems]
    damages += pinned
    unreadable = list(_unreadable(reader, view))
    orphans = 0
    if not damages:
        garbage = run(find_garbage(view, listed, GarbageRules(now_ms, 0, 0)), store)
        orphans = len(garbage.doomed) + garbage.waiting
    verified = Verified(
        view.log_start_offset,
        view.end_offset,
        len(view.entries),
        rows,
        sum(e.size_bytes for e in view.entries),
        (*damages, *unreadable),
        orphans,
        tuple(info.key for info in listed if not layout.owns(info.key)),
    )
    return Findings(verified, view, tuple(listed))


def _manifest_damages(
    store: ObjectStore, layout: PartitionLayout, listed: Sequence[ObjectInfo]
) -> Iterator[Damage]:
    keys = [info.key for info in listed if layout.manifest_version(info.key) is not None]
    for key in keys:
        try:
            manifests.decode(store.get(key), layout, key)
        except DataCorrupt as error:
            is_newest = key == max(keys)
            consequence = (
                "nobody may write until it is repaired" if is_newest else "a newer one is used"
            )
            yield Damage(key, f"{error} ({consequence})", kind=DamageKind.MANIFEST)
        except ObjectNotFound:
            continue


def _tail(
    store: ObjectStore, view: PartitionView, names: dict[str, ObjectInfo]
) -> tuple[PartitionView, list[Damage]]:
    """Follow the chain as far as it can be read."""
    layout = view.layout
    while True:
        name, base = view.next_name, view.end_offset
        try:
            found = run(read_segment(layout, name), store)
            if found is not None:
                view = view.extended(*found)
                continue
            what = "the chain has a hole here" if _after(view, names) else ""
        except DataCorrupt as error:
            what = str(error)
        if not what:
            return view, []
        # Names show the start of the next segment; later segments are not part of the log now.
        beyond = _after(view, names)
        text = f"{what}; {len(beyond)} segments after it cannot be reached"
        following = beyond[0].offset if beyond else base + 1
        return view, [
            Damage(
                layout.key(name),
                text,
                base,
                following,
                DamageKind.CHAIN,
                rows=None if following > base else 0,
                unreachable_end=_end_of(store, layout, beyond),
                end_known=bool(beyond),
            )
        ]


def _end_of(store: ObjectStore, layout: PartitionLayout, positions: Sequence[ChainPosition]) -> int:
    """Return the end of the last of these segments, or its start if unreadable; 0 without any."""
    if not positions:
        return 0
    try:
        found = run(read_segment(layout, layout.chain_name(*positions[-1])), store)
    except DataCorrupt:
        found = None
    return found[0].end_offset if found is not None else positions[-1].offset


def _after(view: PartitionView, names: Collection[str]) -> list[ChainPosition]:
    """Return the positions of the chain beyond the view's end that have objects, in order."""
    layout = view.layout
    found = (layout.chain_position(layout.key(name)) for name in names)
    return sorted(one for one in found if one is not None and one > view.position)


def entry_damages(
    reader: SegmentReader,
    view: PartitionView,
    entry: Entry,
    names: dict[str, ObjectInfo],
    *,
    deep: bool,
) -> list[Damage]:
    """Return the unreadable offsets of an entry, by runs of record batches."""
    key = view.layout.key(entry.object)
    low = max(entry.base_offset, view.log_start_offset)
    times = (entry.min_timestamp_ms, entry.max_timestamp_ms)
    all_lost = (low, max(low, entry.end_offset), DamageKind.SEGMENT, entry.rows, *times)
    try:
        segment = reader.footer(entry)
        problem = _misplaced(entry, segment)
        if problem:
            return [Damage(key, problem, *all_lost)]
        if entry.object in names and names[entry.object].size_bytes != entry.size_bytes:
            what = f"object has another size than the log says; bytes={entry.size_bytes}"
            return [Damage(key, what, *all_lost)]
        if deep and entry.rows and low < entry.end_offset:
            for _ in reader.read(view, low, entry.end_offset, ROW_COLUMNS, unread=Unread.KEEP):
                pass
    except DataCorrupt as error:
        try:
            segment = reader.footer(entry)
        except DataCorrupt:
            return [Damage(key, str(error), *all_lost)]
        return _batch_damages(reader, view, entry, segment)
    return []


def _index_damages(
    store: ObjectStore, layout: PartitionLayout, entry: Entry, segment: Segment
) -> Iterator[Damage]:
    """Yield a damage if an object's key filter fails a checksum."""
    key = layout.key(entry.object)
    for span in segment.keys.pages() if segment.keys is not None else ():
        try:
            page = store.get(key, span.start, span.start + span.length)
        except ObjectNotFound:  # replaced meanwhile
            return
        if crc32c(page) != span.crc:
            what = f"key filter fails its checksum. position={span.start} object={key}"
            yield Damage(key, what, kind=DamageKind.INDEX)
            return


def _batch_damages(
    reader: SegmentReader, view: PartitionView, entry: Entry, segment: Segment
) -> list[Damage]:
    key = view.layout.key(entry.object)
    runs: list[tuple[str, list[BatchIndex]]] = []
    joins = False
    for batch in segment.batches:
        what = batch_problem(reader, view, entry, batch)
        if what and joins:
            runs[-1][1].append(batch)
        elif what:
            runs.append((what, [batch]))
        joins = bool(what)
    return [
        Damage(
            key,
            what,
            *clipped(view, entry, lost[0].base, lost[-1].end),
            DamageKind.SEGMENT,
            sum(b.rows for b in lost),
            min(b.min_timestamp_ms for b in lost),
            max(b.max_timestamp_ms for b in lost),
        )
        for what, lost in runs
    ]


def batch_problem(
    reader: SegmentReader, view: PartitionView, entry: Entry, batch: BatchIndex
) -> str:
    """Return the reason why a record batch of an entry's object is unreadable, or ''."""
    low, high = clipped(view, entry, batch.base, batch.end)
    if low >= high:
        return ""
    try:
        for _ in reader.read(view, low, high, ROW_COLUMNS, unread=Unread.KEEP):
            pass
    except DataCorrupt as error:
        return str(error)
    return ""


def clipped(view: PartitionView, entry: Entry, base: int, end: int) -> tuple[int, int]:
    """Return the offsets of the log for a range of an entry's object."""
    low = max(entry.base_offset + base, view.log_start_offset)
    return low, max(low, min(entry.base_offset + end, entry.end_offset))


def _misplaced(entry: Entry, segment: Segment) -> str:
    """Return how a segment's own offsets contradict those of its entry, or ''."""
    if entry.end_offset - entry.base_offset > segment.end_offset - segment.base_offset:
        return "object covers fewer offsets than the log says"
    if any(a.end != b.base for a, b in pairwise(segment.batches)):
        return "record batches of the object do not join"
    if segment.rows != sum(batch.rows for batch in segment.batches):
        return "record batches of the object do not have its rows"
    return ""


def _unreadable(reader: SegmentReader, view: PartitionView) -> Iterator[Damage]:
    """Yield the unreadable batches of producers, which were acknowledged."""
    for entry in view.entries:
        if entry.rows == entry.end_offset - entry.base_offset:
            continue
        try:
            segment = reader.footer(entry)
        except DataCorrupt:  # reported as damage of the object
            continue
        for one in segment.unread:
            base, end = clipped(view, entry, one.base, one.end)
            what = why_unreadable(one) if base < end else ""
            if what:
                rows = parse_header(one.data).record_count
                key = view.layout.key(entry.object)
                text = f"a producer's batch, acknowledged by an older version: {what}"
                yield Damage(key, text, base, end, DamageKind.UNREAD, rows)


def _epoch_damages(view: PartitionView) -> Iterator[Damage]:
    """Yield damages where leader epochs fall; a direct append counts for the epoch before it."""
    highest = UNLED_EPOCH
    for entry in view.entries:
        if UNLED_EPOCH < entry.leader_epoch < highest:
            yield Damage(
                view.layout.key(entry.object),
                f"leader epoch falls. epoch={entry.leader_epoch} before={highest}",
                kind=DamageKind.EPOCH,
            )
        highest = max(highest, entry.leader_epoch)
