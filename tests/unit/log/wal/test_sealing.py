"""Sealing, reading back and clearing a write-ahead log, one situation at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from sparklog.core.errors import DataCorrupt, Fenced
from sparklog.log.effects import Delete, Effect, GetMany, ListAfter, Program, Put, perform, run
from sparklog.log.layout import WalLayout
from sparklog.log.wal import objects
from sparklog.log.wal.objects import WalBatch, WalHeader, WalKind, WalObject, encode
from sparklog.log.wal.recovery import read_early
from sparklog.log.wal.sealing import (
    MARK_BYTES_MAX,
    OBJECTS_READ_AT_ONCE,
    LogTail,
    Sealed,
    clear,
    read_sealed,
    read_tail,
    seal,
)
from sparklog.log.wal.writer import PutOutcomes, PutWindow, place, register
from sparklog.store.memory import MemoryStore
from tests.harness.counted_requests import run_noting

WAL = WalLayout(1, "f" * 32)


def _log(*boundaries: int) -> MemoryStore:
    """Return a log of a registration and one window for each boundary."""
    store = MemoryStore("wal")
    run(register(WAL, "r"), store)
    for sequence, boundary in enumerate(boundaries, start=1):
        assert _write(store, sequence, boundary) is PutOutcomes.DURABLE
    return store


def _write(
    store: MemoryStore, sequence: int, boundary: int = 0, data: bytes = b"batch"
) -> PutOutcomes:
    batch = WalBatch("t" * 22, 0, sequence, 0, data)
    return run(place(PutWindow(sequence, boundary).placed(WAL, [batch], f"w{sequence}")), store)


def _mark(store: MemoryStore, kind: WalKind, sequence: int) -> None:
    store.put(WAL.key(sequence), encode(WAL, WalHeader(kind, sequence, 0, "m")))


def _names(store: MemoryStore) -> list[int | None]:
    return [WAL.sequence(info.key) for info in store.list(WAL.folder)]


def _sequences(windows: Sequence[WalObject]) -> list[int]:
    return [one.header.sequence for one in windows]


def _effects(protocol: Program[Any], store: MemoryStore) -> list[Effect]:
    """Run a protocol; return what it asked for."""
    effects: list[Effect] = []
    run_noting(protocol, store, effects)
    return effects


def test_a_dead_brokers_log_is_sealed_at_its_end_by_one_put() -> None:
    store = _log(0, 0)
    effects = _effects(seal(WAL, "s"), store)
    assert [type(e) for e in effects].count(Put) == 1
    assert [type(e) for e in effects].count(ListAfter) == 2
    assert run(seal(WAL, "another"), store) == Sealed(3, 0)
    assert _names(store) == [0, 1, 2, 3]


def _read(effects: list[Effect]) -> list[int]:
    """Return the sequences of the objects that were read, in any order."""
    asked = [one for effect in effects if isinstance(effect, GetMany) for one in effect.ranges]
    return sorted(WAL.sequence(one.key) or 0 for one in asked)


def test_however_little_windows_hold_only_the_newest_is_looked_at() -> None:
    store = _log(0, 0, 1, 1, 2)
    effects = _effects(seal(WAL, "s"), store)
    assert _read(effects) == [0, 5], "the registration and the newest window; each once"
    store = MemoryStore("wal")
    run(register(WAL, "r"), store)
    run(place(PutWindow(1, 0).placed(WAL, [], "empty")), store)
    (window,) = [info for info in store.list(WAL.folder) if WAL.sequence(info.key) == 1]
    assert window.size_bytes > MARK_BYTES_MAX
    assert run(seal(WAL, "s"), store) == Sealed(2, 0)


def test_survey_reads_the_newest_large_window_and_finds_a_seal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as older:
        older.setattr(objects, "WINDOW_BYTES_MIN", 0)
        store = _log(0)
    for sequence in (2, 3, 5, 6):
        _write(store, sequence, 1 if sequence > 3 else 0, bytes(MARK_BYTES_MAX))
    effects = _effects(seal(WAL, "s"), store)
    assert _read(effects) == [0, 1, 6], "the small objects and the newest window; each once"
    assert run(seal(WAL, "another"), store) == Sealed(4, 1)


def test_a_sealed_log_is_read_in_one_look_each_object_once() -> None:
    store = _log(0, 0, 1, 1)
    sealed = run(seal(WAL, "s"), store)
    found: list[Effect] = []
    assert run_noting(read_sealed(WAL), store, found) == (
        sealed,
        run(read_tail(WAL, sealed), store),
    )
    assert [type(effect) for effect in found] == [ListAfter, GetMany]
    assert _read(found) == [0, 1, 2, 3, 4, 5]


def test_windows_that_were_read_early_are_not_read_again() -> None:
    store = _log(0, 0, 1)
    early = run(read_early(WAL, 1 << 20), store)
    assert sorted(early) == [0, 1, 2, 3]
    _write(store, 4)
    sealed = run(seal(WAL, "s"), store)
    found: list[Effect] = []
    assert run_noting(read_sealed(WAL, early), store, found) == run(read_sealed(WAL), store)
    assert _read(found) == [4, sealed.sequence]


def test_early_reading_takes_the_newest_objects_of_a_number_of_bytes() -> None:
    store = _log(0, 0, 0)
    (newest,) = [info for info in store.list(WAL.folder) if WAL.sequence(info.key) == 3]
    assert sorted(run(read_early(WAL, 2 * newest.size_bytes), store)) == [2, 3]
    assert not run(read_early(WAL, newest.size_bytes - 1), store)


def test_log_that_was_cleared_since_it_was_read_early_is_no_damage() -> None:
    store = _log(0, 0)
    window = PutWindow(3, 0, acknowledged=2).placed(WAL, [], "w3")
    assert run(place(window), store) is PutOutcomes.DURABLE
    early = run(read_early(WAL, 1 << 20), store)
    sealed = run(seal(WAL, "s"), store)
    run(clear(WAL, sealed), store)
    _mark(store, WalKind.SEAL, 3)  # by a slow sealer, under a name that was cleared
    assert run(read_sealed(WAL, early), store) == (sealed, LogTail(()))


def test_long_sealed_log_is_read_from_its_newest_boundary() -> None:
    store = _log(*[0] * OBJECTS_READ_AT_ONCE, OBJECTS_READ_AT_ONCE)
    run(seal(WAL, "s"), store)
    found: list[Effect] = []
    run_noting(read_sealed(WAL), store, found)
    seal_at, boundary = OBJECTS_READ_AT_ONCE + 2, OBJECTS_READ_AT_ONCE
    assert _read(found) == [*range(boundary, seal_at + 1), seal_at]


def test_a_log_that_shows_no_seal_is_not_taken_for_a_sealed_one() -> None:
    assert run(read_sealed(WAL), _log(0, 0)) is None
    assert run(read_sealed(WAL), MemoryStore("wal")) is None


def test_a_sealed_log_fences_its_broker() -> None:
    store = _log(0)
    assert run(seal(WAL, "s"), store) == Sealed(2, 0)
    assert _write(store, 2) is PutOutcomes.FENCED


def test_an_incarnation_sealed_before_it_registers_never_does() -> None:
    store = MemoryStore("wal")
    assert run(seal(WAL, "s"), store) == Sealed(0, 0)
    with pytest.raises(Fenced):
        run(register(WAL, "r"), store)


def test_seal_goes_to_the_first_gap_and_later_names_are_ignored() -> None:
    store = _log(0, 0, 0, 0)
    store.delete(WAL.key(3))  # a put still under way when a later one had arrived
    sealed = run(seal(WAL, "s"), store)
    assert sealed == Sealed(3, 0)
    assert _sequences(run(read_tail(WAL, sealed), store).windows) == [1, 2]


def test_trimmed_names_are_not_gaps() -> None:
    store = _log(0, 0, 2)
    for sequence in (0, 1):
        store.delete(WAL.key(sequence))
    sealed = run(seal(WAL, "s"), store)
    assert sealed == Sealed(4, 2)
    assert _sequences(run(read_tail(WAL, sealed), store).windows) == [2, 3]


def test_a_seal_on_a_trimmed_name_does_not_count() -> None:
    store = _log(0, 0, 2)
    store.delete(WAL.key(0))
    store.delete(WAL.key(1))
    _mark(store, WalKind.SEAL, 1)
    assert run(seal(WAL, "s"), store) == Sealed(4, 2)


def test_a_busy_broker_is_stopped_by_a_barrier_and_then_sealed() -> None:
    store = _log(0)
    sealing = seal(WAL, "s")
    effect, last, fenced = next(sealing), 1, False
    result = None
    while result is None:
        # Faster than the sealer: it writes before each of its requests, until it is fenced.
        fenced = fenced or _write(store, last + 1) is PutOutcomes.FENCED
        last += not fenced
        try:
            effect = sealing.send(perform(effect, store))
        except StopIteration as end:
            result = end.value
    assert result.sequence > last
    assert _sequences(run(read_tail(WAL, result), store).windows) == list(range(1, last + 1))


def test_a_tail_that_is_trimmed_while_it_is_read_is_listed_again() -> None:
    store = _log(0, 0, 2)
    run(seal(WAL, "s"), store)
    reading = read_tail(WAL, Sealed(4, 0))
    listing = perform(next(reading), store)
    asked = reading.send(listing)
    store.delete(WAL.key(0))
    store.delete(WAL.key(1))
    again = reading.send(perform(asked, store))
    assert isinstance(again, ListAfter)
    asked = reading.send(perform(again, store))
    with pytest.raises(StopIteration) as end:
        reading.send(perform(asked, store))
    assert _sequences(end.value.value.windows) == [2, 3]


def test_windows_behind_a_barrier_are_not_read() -> None:
    store = _log(0, 0, 0)
    _mark(store, WalKind.BARRIER, 2)
    sealed = run(seal(WAL, "s"), store)
    assert sealed == Sealed(4, 0)
    assert _sequences(run(read_tail(WAL, sealed), store).windows) == [1]


def test_a_cleared_log_keeps_its_seal_and_stays_sealed() -> None:
    store = _log(0, 0)
    sealed = run(seal(WAL, "s"), store)
    run(clear(WAL, sealed), store)
    assert _names(store) == [3]
    assert run(seal(WAL, "later"), store) == sealed
    assert run(read_tail(WAL, sealed), store) == LogTail(())
    _mark(store, WalKind.SEAL, 2)  # a slow sealer's, on a name that was free again
    assert run(seal(WAL, "latest"), store) == sealed


def test_foreign_objects_are_ignored() -> None:
    store = _log(0)
    store.put(WAL.folder + "notes.txt", b"?")
    sealed = run(seal(WAL, "s"), store)
    assert sealed == Sealed(2, 0)
    assert _sequences(run(read_tail(WAL, sealed), store).windows) == [1]


def test_a_damaged_window_is_reported_and_not_skipped() -> None:
    store = _log(0, 0)
    sealed = run(seal(WAL, "s"), store)
    data = bytearray(store.get(WAL.key(1)))
    data[data.index(b"batch")] ^= 1
    store.put(WAL.key(1), bytes(data))
    with pytest.raises(DataCorrupt, match="checksum"):
        run(read_tail(WAL, sealed), store)


def _log_of_a_broker(windows: int) -> MemoryStore:
    """Return the log of a broker that has one window in flight, and trims nothing."""
    store = MemoryStore("wal")
    run(register(WAL, "r"), store)
    for sequence in range(1, windows + 1):
        batch = WalBatch("t" * 22, 0, sequence, 0, b"batch")
        window = PutWindow(sequence, 0, acknowledged=sequence - 1)
        run(place(window.placed(WAL, [batch], f"w{sequence}")), store)
    return store


@pytest.mark.parametrize("lost", [0, 1, 3, 4])
@pytest.mark.parametrize("sealed_before", [True, False])
def test_reading_names_a_missing_object_and_continues_once_it_is_back(
    lost: int, sealed_before: bool
) -> None:
    store = _log_of_a_broker(5)
    if sealed_before:
        run(seal(WAL, "s"), store)
    whole = store.get(WAL.key(lost))
    store.delete(WAL.key(lost))
    sealed = run(seal(WAL, "s"), store)
    assert sealed.sequence == 6, "not where the missing object belongs"
    for read in (lambda: read_tail(WAL, sealed), lambda: read_sealed(WAL)):
        with pytest.raises(DataCorrupt, match=f"is missing.*object={WAL.key(lost)}"):
            run(read(), store)
    store.put(WAL.key(lost), whole)
    tail = run(read_tail(WAL, sealed), store)
    assert _sequences(tail.windows) == [1, 2, 3, 4, 5]
    assert run(read_sealed(WAL), store) == (sealed, tail)


def test_reading_goes_on_without_windows_that_were_never_acknowledged() -> None:
    store = _log_of_a_broker(3)
    for sequence in (5, 6):  # in flight with 4, which never arrived
        window = PutWindow(sequence, 0, acknowledged=3)
        run(place(window.placed(WAL, [], f"w{sequence}")), store)
    sealed = run(seal(WAL, "s"), store)
    assert sealed.sequence == 4
    assert _sequences(run(read_tail(WAL, sealed), store).windows) == [1, 2, 3]


def test_clearing_leaves_no_hole_at_any_moment() -> None:
    store = _log_of_a_broker(5)
    sealed = run(seal(WAL, "s"), store)
    effects = _effects(clear(WAL, sealed), store)
    deleted = [WAL.sequence(one.key) for one in effects if isinstance(one, Delete)]
    assert deleted == [5, 4, 3, 2, 1, 0]
    store = _log_of_a_broker(5)
    run(seal(WAL, "s"), store)
    for sequence in deleted[:3]:
        store.delete(WAL.key(sequence or 0))
        assert run(read_sealed(WAL), store) is not None
