"""Actors on one partition in the models of this folder, and the invariants for all of them.

An acknowledged append is in the log once, at the acknowledged offset, and no append is in the log
twice. The records that a reader has seen never change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pyarrow as pa

from sparklog.core.errors import OutcomeUnknown, SparklogError
from sparklog.log.effects import (
    GetMany,
    ListAfter,
    Program,
    Range,
    Together,
    create,
    delete,
    run,
)
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest.change import absorb_tail, change, raise_log_start, with_tail
from sparklog.log.manifest.manifest import REWRITTEN_NONCE, Entry, Manifest
from sparklog.log.manifest.refresh import (
    FOOTER_READ_BYTES,
    read_segment,
    readable_at_once,
    refresh,
)
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.append import AppendResult, Candidate, append
from sparklog.log.segment.builder import SegmentBuilder
from sparklog.log.segment.file import Span, StoredBatch, finish_file, write_stream
from sparklog.log.segment.footer import to_metadata
from sparklog.log.segment.segment import Append, BatchIndex, CommitKey, CommitStamp, Segment
from sparklog.store.base import ObjectInfo
from sparklog.store.memory import MemoryStore
from tests.model.explorer import Actor, Explorer, Objects, State

LAYOUT = PartitionLayout("t", "A" * 22, 0)
COLD = PartitionView(LAYOUT)
PART = write_stream(pa.schema([pa.field("value", pa.binary())]), [], "none")


class TinyDraft(SegmentBuilder):
    """A draft without rows whose files are made once each; records are beside the point here."""

    def at(self, base_offset: int, commit: CommitStamp | None = None) -> bytes:
        return file(self.placed(base_offset, commit))


@cache
def file(segment: Segment) -> bytes:
    return finish_file(PART, to_metadata(segment))


def index(rows: int) -> tuple[BatchIndex, ...]:
    """Return an index that says how many rows a segment has; the models read none of them."""
    nowhere = StoredBatch(PART.head.length, Span(PART.head.length, 0, 0), 0, ())
    return (BatchIndex(0, rows, rows, -1, -1, nowhere),)


def draft(nonce: str, length: int = 1) -> TinyDraft:
    head = (PART.head.length, PART.head.crc)
    segment = Segment(LAYOUT.topic_id, 0, 0, length, length, nonce, head=head)
    return TinyDraft(PART, replace(segment, batches=index(length)))


def writer(
    name: str, appends: int, view: PartitionView = COLD, key: CommitKey | None = None
) -> Actor:
    """Appends one after the other, reporting each acknowledged (nonce, offsets)."""

    def start(done: Callable[[Any], None]) -> Program[None]:
        seen = view
        for i in range(appends):
            nonce = f"{name}{i}"
            commit = None if key is None else CommitStamp(key, 0)
            seen, got = yield from append(seen, Candidate(draft(nonce), commit))
            done((nonce, got))

    return Actor(name, start)


def merger(nonce: str = "f" * 32, *, deletes: bool = True) -> Actor:
    """Rewrites everything into one object, then deletes what the manifest no longer names.

    Without regard for snapshots; it leaves deletion to others unless it `deletes`.
    """

    def start(done: Callable[[Any], None]) -> Program[None]:
        view = yield from refresh(COLD)
        if view.end_offset == 0:
            return
        appends: list[Append] = []
        for entry in view.entries:
            found = yield from read_segment(LAYOUT, entry.object)
            if found is None:
                return  # another merge was faster
            segment = found[0]
            appends.extend(
                segment.appends
                or [
                    Append(entry.base_offset, entry.end_offset, segment.leader_epoch, segment.nonce)
                ]
            )
        end = view.end_offset
        epoch = view.leader_epoch
        name = LAYOUT.rewritten_name(0, nonce)
        merged = Segment(LAYOUT.topic_id, 0, 0, end, end, nonce, appends=tuple(appends))
        head = (PART.head.length, PART.head.crc)
        data = file(replace(merged, head=head, batches=index(end)))
        yield from create(LAYOUT.key(name), data)

        def plan(now: PartitionView) -> Manifest | None:
            whole = with_tail(now, 0)
            replaced = tuple(e for e in whole.entries if e.base_offset < end)
            if replaced != view.entries:
                return None  # done already, or overtaken by another merge
            kept = whole.entries[len(replaced) :]
            entry = Entry(0, end, name, len(data), end, -1, -1, epoch, REWRITTEN_NONCE)
            return replace(whole, entries=(entry, *kept))

        published = yield from change(view, plan, nonce)
        if not deletes or all(e.object != name for e in published.manifest.entries):
            return
        for name in (*(e.object for e in view.entries), *_fences(view)):
            if all(e.object != name for e in published.manifest.entries):
                yield from delete(LAYOUT.key(name))

    return Actor("merger", start)


def trimmer() -> Actor:
    """Deletes all records, then the objects."""

    def start(done: Callable[[Any], None]) -> Program[None]:
        view = yield from change(COLD, raise_log_start(-1), "d" * 32)
        for base in range(view.log_start_offset):
            yield from delete(LAYOUT.key(LAYOUT.chain_name(base)))

    return Actor("trimmer", start)


def absorber(nonce: str = "c" * 32) -> Actor:
    """Takes the tail in, then deletes the fences that the manifest covers."""

    def start(done: Callable[[Any], None]) -> Program[None]:
        view = yield from refresh(COLD)
        yield from change(view, absorb_tail(1, 0), nonce)
        for name in _fences(view):
            yield from delete(LAYOUT.key(name))

    return Actor("absorber", start)


def _fences(view: PartitionView) -> list[str]:
    """Return the names of the fences in the tail: no manifest names them."""
    return [one.name for one in view.tail if one.segment.kind == "fence"]


def reader(view: PartitionView = COLD) -> Actor:
    def start(done: Callable[[Any], None]) -> Program[None]:
        done((yield from refresh(view)))

    return Actor("reader", start)


def reader_at_once(
    name: str = "reader", view: PartitionView = COLD, *, ahead: int = 0, twice: bool = True
) -> Actor:
    """Appends, and reads with several requests under way: the view has at least that append.

    With `ahead` it does as a look-up by key. It begins with a listing of the folder, whose parts
    may show different moments, and reads `ahead` footers in advance. If `twice`, it reads again
    from the view of its append.
    """

    def start(done: Callable[[Any], None]) -> Program[None]:
        nonce = f"{name}0"
        seen, got = yield from append(view, Candidate(draft(nonce), None))
        done((nonce, got))
        assert got is not None
        early = (yield from _folder_in_parts()) if ahead else None
        kept: dict[Range, bytes] = {}
        look = readable_at_once(view, early=early, ahead=ahead)
        found = yield from (_with_kept_ends(look, kept) if ahead else look)
        assert found.damage is None, f"damage in a whole log: {found.damage}"
        assert found.end_offset >= got.end_offset, f"the reader misses an append: {got}"
        done(found)
        for entry in found.entries:
            data = kept.get(Range(LAYOUT.key(entry.object), -FOOTER_READ_BYTES))
            if data is not None and entry.nonce != REWRITTEN_NONCE:
                assert _nonce(entry.object, data) == entry.nonce, "kept from another object"
        if twice:
            done((yield from readable_at_once(seen, ahead=ahead)))

    return Actor(name, start)


def _nonce(name: str, data: bytes) -> str:
    store = MemoryStore("kept")
    store.put(LAYOUT.key(name), data)
    found = run(read_segment(LAYOUT, name), store)
    assert found is not None
    return found[0].nonce


def _with_kept_ends(
    program: Program[PartitionView], kept: dict[Range, bytes]
) -> Program[PartitionView]:
    """Run a program as on a store of kind `KeptEnds`: no end of an object is read twice."""
    answer: Any = None
    try:
        while True:
            effect = program.send(answer)
            if not isinstance(effect, GetMany):
                answer = yield effect
                continue
            asked = tuple(wanted for wanted in effect.ranges if wanted not in kept)
            found = dict(zip(asked, (yield GetMany(asked)) if asked else (), strict=True))
            kept |= {r: data for r, data in found.items() if data is not None and r.start}
            answer = [kept.get(wanted, found.get(wanted)) for wanted in effect.ranges]
    except StopIteration as end:
        view: PartitionView = end.value
        return view


def _folder_in_parts() -> Program[list[ObjectInfo]]:
    prefixes = (LAYOUT.chain_prefix, LAYOUT.manifest_prefix)
    parts = yield Together(tuple(ListAfter(prefix, "") for prefix in prefixes))
    return [info for part in parts for info in part]


def log_of(view: PartitionView, store: MemoryStore) -> dict[int, str]:
    """Return who wrote each offset, as a reader of this view sees it."""
    found: dict[int, str] = {}
    for entry in view.entries:
        segment = run(read_segment(LAYOUT, entry.object), store)
        assert segment is not None, f"the log names a missing object {entry.object}"
        for offset in range(max(entry.base_offset, view.log_start_offset), entry.end_offset):
            nonce = segment[0].nonce_at(offset)
            assert nonce is not None
            found[offset] = nonce
    return found


class Checker:
    """Judges a state; `finals` counts how many ends were judged."""

    allowed: tuple[type[SparklogError], ...] = (OutcomeUnknown,)
    """Errors with which an actor may end before it is done."""

    def __init__(self, explorer: Explorer) -> None:
        self.explorer = explorer
        self.finals = 0
        self._logs: dict[Any, tuple[PartitionView, dict[int, str]]] = {}

    def __call__(self, state: State, final: bool) -> None:
        self.finals += final
        view, log = self._cold_look(state)
        self.check_chain(view)
        self.check_log(log)
        for actor, history in enumerate(state.histories):
            standing = self.explorer.standing(actor, history)
            assert standing.error is None or isinstance(standing.error, self.allowed), standing
            for report in standing.reports:
                self.judge(report, view, log)

    def check_chain(self, view: PartitionView) -> None:
        positions = [one.position for one in view.tail]
        assert positions == sorted(set(positions)), f"a position twice: {positions}"

    def check_log(self, log: dict[int, str]) -> None:
        written = list(log.values())
        assert len(written) == len(set(written)), f"an append is in the log twice: {log}"

    def _cold_look(self, state: State) -> tuple[PartitionView, dict[int, str]]:
        if state.objects not in self._logs:
            store = MemoryStore("model")
            for key, data in state.objects:
                store.put(key, data)
            view = run(refresh(COLD), store)
            self._logs[state.objects] = view, log_of(view, store)
        return self._logs[state.objects]

    def judge(self, report: Any, view: PartitionView, log: dict[int, str]) -> None:
        if isinstance(report, PartitionView):
            for one in report.tail:
                base = one.segment.base_offset
                if base >= view.log_start_offset and one.segment.kind != "fence":
                    assert log.get(base) == one.segment.nonce, "a reader saw what is not in the log"
            return
        nonce, got = report
        assert isinstance(got, AppendResult)
        if got.base_offset >= view.log_start_offset:
            if not got.repeated:
                assert log.get(got.base_offset) == nonce, f"lost: {nonce} at {got} in {log}"
            else:
                assert got.base_offset in log


def explore(
    actors: list[Actor],
    checker_type: type[Checker] = Checker,
    objects: Objects = (),
    *,
    lost_replies: int = 0,
    late_puts: int = 0,
    crashes: int = 0,
) -> tuple[int, Checker]:
    """Visit every state that `actors` can reach from `objects` with these numbers of faults."""
    explorer = Explorer(actors)
    checker = checker_type(explorer)
    start = explorer.start(objects, lost_replies=lost_replies, late_puts=late_puts, crashes=crashes)
    return explorer.explore(start, checker), checker
