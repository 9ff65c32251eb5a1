"""Direct append, model-checked: the product's own protocols in every order, with every fault.

What must hold in each state: an acknowledged append is in the log once, at the offset it was told,
and nothing is in the log twice. What a reader believed to have seen never turns out otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

from sparklog.core.errors import OutcomeUnknown
from sparklog.log import append as append_module
from sparklog.log import manifest_change
from sparklog.log.append import Appended, Candidate, append
from sparklog.log.arrow_file import finish_file, write_stream
from sparklog.log.draft import SegmentDraft
from sparklog.log.effects import Protocol, create, delete, run
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest import REWRITTEN_NONCE, Entry, Manifest
from sparklog.log.manifest_change import absorb_tail, change, raise_log_start, with_tail
from sparklog.log.segment import Append, Commit, CommitKey, Segment, to_metadata
from sparklog.log.view import PartitionView, read_segment, refresh
from sparklog.store.memory import MemoryStore
from tests.model.explorer import Actor, Explorer, State

LAYOUT = PartitionLayout("t", "A" * 22, 0)
COLD = PartitionView(LAYOUT)
_PART = write_stream(pa.schema([pa.field("value", pa.binary())]), [], "none")


class TinyDraft(SegmentDraft):
    """A draft without rows whose files are made once each; records are beside the point here."""

    def at(self, base_offset: int, commit: Commit | None = None) -> bytes:
        return _file(self.placed(base_offset, commit))


@cache
def _file(segment: Segment) -> bytes:
    return finish_file(_PART, to_metadata(segment))


def _draft(nonce: str, length: int = 1) -> TinyDraft:
    head = (_PART.head.length, _PART.head.crc)
    return TinyDraft(_PART, Segment(LAYOUT.topic_id, 0, 0, length, length, nonce, head=head))


def _writer(
    name: str, appends: int, view: PartitionView = COLD, key: CommitKey | None = None
) -> Actor:
    """Appends one after the other, reporting each acknowledged (nonce, offsets)."""

    def start(done: Callable[[Any], None]) -> Protocol[None]:
        seen = view
        for i in range(appends):
            nonce = f"{name}{i}"
            commit = None if key is None else Commit(key, 0)
            seen, got = yield from append(seen, Candidate(_draft(nonce), commit))
            done((nonce, got))

    return Actor(name, start)


def _merger(nonce: str = "f" * 32) -> Actor:
    """Rewrites everything into one object, then deletes what the manifest no longer names."""

    def start(done: Callable[[Any], None]) -> Protocol[None]:
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
                segment.appends or [Append(entry.base_offset, entry.end_offset, 0, segment.nonce)]
            )
        end = view.end_offset
        name = LAYOUT.rewritten_name(0, nonce)
        merged = Segment(LAYOUT.topic_id, 0, 0, end, end, nonce, appends=tuple(appends))
        data = _file(replace(merged, head=(_PART.head.length, _PART.head.crc)))
        yield from create(LAYOUT.key(name), data)

        def plan(now: PartitionView) -> Manifest | None:
            whole = with_tail(now, 0)
            replaced = tuple(e for e in whole.entries if e.base_offset < end)
            if replaced != view.entries:
                return None  # done already, or overtaken by another merge
            kept = whole.entries[len(replaced) :]
            entry = Entry(0, end, name, 0, len(data), end, -1, -1, 0, REWRITTEN_NONCE)
            return replace(whole, entries=(entry, *kept))

        published = yield from change(view, plan, nonce)
        if all(e.object != name for e in published.manifest.entries):
            return
        for entry in view.entries:
            if all(e.object != entry.object for e in published.manifest.entries):
                yield from delete(LAYOUT.key(entry.object))

    return Actor("merger", start)


def _trimmer() -> Actor:
    """Deletes all records, then the objects."""

    def start(done: Callable[[Any], None]) -> Protocol[None]:
        view = yield from change(COLD, raise_log_start(-1), "d" * 32)
        for base in range(view.log_start_offset):
            yield from delete(LAYOUT.key(LAYOUT.chain_name(base)))

    return Actor("trimmer", start)


def _absorber() -> Actor:
    def start(done: Callable[[Any], None]) -> Protocol[None]:
        yield from change(COLD, absorb_tail(1, 0), "c" * 32)

    return Actor("absorber", start)


def _reader(view: PartitionView = COLD) -> Actor:
    def start(done: Callable[[Any], None]) -> Protocol[None]:
        done((yield from refresh(view)))

    return Actor("reader", start)


def _log_of(view: PartitionView, store: MemoryStore) -> dict[int, str]:
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

    def __init__(self, explorer: Explorer) -> None:
        self.explorer = explorer
        self.finals = 0
        self._logs: dict[Any, tuple[PartitionView, dict[int, str]]] = {}

    def __call__(self, state: State, final: bool) -> None:
        self.finals += final
        view, log = self._cold_look(state)
        written = list(log.values())
        assert len(written) == len(set(written)), f"an append is in the log twice: {log}"
        for actor, history in enumerate(state.histories):
            standing = self.explorer.standing(actor, history)
            assert standing.error is None or isinstance(standing.error, OutcomeUnknown), standing
            for report in standing.reports:
                self._judge(report, view, log)

    def _cold_look(self, state: State) -> tuple[PartitionView, dict[int, str]]:
        if state.objects not in self._logs:
            store = MemoryStore("model")
            for key, data in state.objects:
                store.put(key, data)
            view = run(refresh(COLD), store)
            self._logs[state.objects] = view, _log_of(view, store)
        return self._logs[state.objects]

    def _judge(self, report: Any, view: PartitionView, log: dict[int, str]) -> None:
        if isinstance(report, PartitionView):
            for one in report.tail:
                base = one.segment.base_offset
                if base >= view.log_start_offset:
                    assert log.get(base) == one.segment.nonce, "a reader saw what is not in the log"
            return
        nonce, got = report
        assert isinstance(got, Appended)
        if got.base_offset >= view.log_start_offset:
            if not got.repeated:
                assert log.get(got.base_offset) == nonce, f"lost: {nonce} at {got} in {log}"
            else:
                assert got.base_offset in log


def _explore(actors: list[Actor], **budget: int) -> tuple[int, Checker]:
    explorer = Explorer(actors)
    checker = Checker(explorer)
    blank: tuple[Any, ...] = ()
    start = State(blank, (blank,) * len(actors), (False,) * len(actors), **budget)
    return explorer.explore(start, checker), checker


CASES: dict[str, tuple[list[Actor], dict[str, int]]] = {
    "two writers, two appends each": ([_writer("a", 2), _writer("b", 2)], {}),
    "two writers, lost replies": ([_writer("a", 1), _writer("b", 1)], {"lost_replies": 2}),
    "two writers, a put that arrives late": ([_writer("a", 1), _writer("b", 1)], {"late_puts": 1}),
    "two writers and a merge that deletes": ([_writer("a", 1), _writer("b", 1), _merger()], {}),
    "a writer with a lost reply and a merge": (
        [_writer("a", 2), _merger()],
        {"lost_replies": 1, "crashes": 1},
    ),
    "a writer, a late put and a merge": (
        [_writer("a", 1), _writer("b", 1), _merger()],
        {"late_puts": 1},
    ),
    "two writers, two appends each, and a merge": (
        [_writer("a", 2), _writer("b", 2), _merger()],
        {},
    ),
    "three writers and a merge": (
        [_writer("a", 1), _writer("b", 1), _writer("c", 1), _merger()],
        {},
    ),
    "a writer and two merges": ([_writer("a", 2), _merger(), _merger("9" * 32)], {}),
    "two writers and a trim": ([_writer("a", 1), _writer("b", 1), _trimmer()], {}),
    "a writer and two who change the manifest": ([_writer("a", 2), _absorber(), _absorber()], {}),
    "a reader beside a writer and a merge": (
        [_writer("a", 1), _merger(), _reader()],
        {"crashes": 1},
    ),
    "one commit key, two writers": (
        [_writer("a", 1, key=CommitKey("q", 7)), _writer("b", 1, key=CommitKey("q", 7))],
        {"lost_replies": 1, "crashes": 1},
    ),
    "one commit key, two writers and an absorber": (
        [
            _writer("a", 1, key=CommitKey("q", 7)),
            _writer("b", 1, key=CommitKey("q", 7)),
            _absorber(),
        ],
        {},
    ),
}


SLOW = {"three writers and a merge"}


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=pytest.mark.soak) if c in SLOW else c for c in CASES]
)
def test_every_interleaving_keeps_acknowledged_appends_once(case: str) -> None:
    actors, budget = CASES[case]
    states, checker = _explore(actors, **budget)
    assert checker.finals > 0
    print(f"{case}: {states} states, {checker.finals} ends")


def test_a_commit_key_is_taken_once_whoever_writes_it() -> None:
    key = CommitKey("q", 7)
    actors = [_writer("a", 1, key=key), _writer("b", 1, key=key)]
    explorer = Explorer(actors)

    def one_at_most(state: State, final: bool) -> None:
        segments = [k for k, _ in state.objects if "/log/" in k]
        assert len(segments) <= 1
        if final:
            assert len(segments) == 1

    explorer.explore(State((), ((), ()), (False, False), lost_replies=1), one_at_most)


def test_without_the_confirming_look_the_model_finds_a_lost_append(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def believe(
        view: PartitionView, candidate: Candidate, base: int, size_bytes: int
    ) -> Protocol[tuple[PartitionView, Appended]]:
        yield from ()
        return view, Appended(base, base + 1, repeated=False)

    monkeypatch.setattr(append_module, "_confirm", believe)
    with pytest.raises(AssertionError, match="lost"):
        _explore([_writer("a", 1), _writer("b", 1), _merger()])


def test_without_comparing_nonces_the_model_finds_a_double_append(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def somebody_elses(
        view: PartitionView, candidate: Candidate, base: int
    ) -> Protocol[tuple[PartitionView, None]]:
        return (yield from refresh(view)), None

    monkeypatch.setattr(append_module, "_taken", somebody_elses)
    with pytest.raises(AssertionError, match="twice"):
        _explore([_writer("a", 1)], lost_replies=1)


def test_without_looking_for_newer_manifests_the_model_finds_a_lost_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def believe(view: PartitionView) -> Protocol[tuple[PartitionView, bool]]:
        yield from ()
        return view, False

    # Appends still confirm; only the tail is believed without a second look.
    monkeypatch.setattr("sparklog.log.append.newer_manifest", believe)
    monkeypatch.setattr(manifest_change, "newer_manifest", believe)
    with pytest.raises(AssertionError):
        _explore([_writer("a", 1), _writer("b", 1), _merger()])
