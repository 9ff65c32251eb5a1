"""A write-ahead log that is not forced to the disk: what a power cut leaves, and how it is read."""

from __future__ import annotations

import pytest

from sparklog.core.errors import DataCorrupt
from sparklog.log.effects import Put, run
from sparklog.log.layout import WalLayout
from sparklog.log.wal.objects import FOOTER_READ_BYTES, WalBatch, decode_header
from sparklog.log.wal.recovery import seal_and_read
from sparklog.log.wal.sealing import (
    FOOTERS_READ_AT_ONCE,
    LogTail,
    Sealed,
    clear,
    read_sealed,
    read_tail,
    seal,
)
from sparklog.log.wal.writer import (
    Flushed,
    PutOutcomes,
    PutSettled,
    PutWindow,
    WalWriter,
    WindowReady,
    place,
    register,
)
from sparklog.store.base import PutOutcome
from sparklog.store.memory import MemoryStore

WAL = WalLayout(1, "f" * 32)
TORN = [b"", b"torn", bytes(100_000)]
TEARS = pytest.mark.parametrize("torn", TORN, ids=["empty", "short", "zeros"])


def _log(windows: int, *, boundary: int = 0, forced: bool = False) -> MemoryStore:
    """Return a log of a registration and windows; the newest carries `boundary`."""
    store = MemoryStore("wal")
    run(register(WAL, "r", forced=forced), store)
    for sequence in range(1, windows + 1):
        carried = boundary if sequence == windows else 0
        batch = WalBatch("t" * 22, 0, sequence, 0, b"batch")
        window = PutWindow(sequence, carried, forced, forced)
        run(place(window.placed(WAL, [batch], f"w{sequence}")), store)
    return store


def _tear(store: MemoryStore, sequence: int, torn: bytes) -> None:
    store.put(WAL.key(sequence), torn)


def _read(store: MemoryStore) -> tuple[list[int], int | None]:
    """Seal and read the log, in each of the two ways, which must agree."""
    sealed = run(seal(WAL, "s"), store)
    tail = run(read_tail(WAL, sealed), store)
    assert run(read_sealed(WAL), store) == (sealed, tail)
    found = run(seal_and_read(WAL, "other"), store)
    assert (found.sealed, found.broken_at) == (sealed, tail.broken_at)
    return [one.header.sequence for one in tail.windows], tail.broken_at


def test_a_log_that_lost_nothing_is_read_like_any_other() -> None:
    assert _read(_log(4)) == ([1, 2, 3, 4], None)


@TEARS
def test_a_log_ends_before_its_first_torn_object(torn: bytes) -> None:
    for at in range(1, 5):
        store = _log(4)
        _tear(store, at, torn)
        assert _read(store) == (list(range(1, at)), at)


@TEARS
def test_torn_object_of_a_forced_log_is_damage(torn: bytes) -> None:
    for at in range(1, 5):
        store = _log(4, forced=True)
        _tear(store, at, torn)
        with pytest.raises(DataCorrupt, match=WAL.key(at)):
            _read(store)


@TEARS
def test_a_log_of_which_nothing_can_be_read_is_damaged(torn: bytes) -> None:
    store = _log(2)
    for at in range(3):
        _tear(store, at, torn)
    with pytest.raises(DataCorrupt):
        run(seal(WAL, "s"), store)


@TEARS
def test_the_boundary_is_found_behind_however_many_torn_objects(torn: bytes) -> None:
    newest = 2 * FOOTERS_READ_AT_ONCE + 3
    store = _log(newest, boundary=newest - 1)
    for at in range(newest - 1):
        store.delete(WAL.key(at))
    for beyond in range(1, newest):
        _tear(store, newest + beyond, torn)
    assert _read(store) == ([newest - 1, newest], newest + 1)


def test_a_name_that_is_gone_below_a_seal_ends_the_log() -> None:
    store = _log(4)
    sealed = run(seal(WAL, "s"), store)
    store.delete(WAL.key(2))
    assert _read(store) == ([1], 2)
    assert run(seal(WAL, "again"), store) == sealed


def test_missing_windows_of_a_forced_log_were_flushed() -> None:
    store = _log(4, forced=True)
    run(seal(WAL, "s"), store)
    store.delete(WAL.key(2))
    assert _read(store) == ([1, 3, 4], None)


def test_marks_show_a_torn_log_when_nothing_else_is_left() -> None:
    store = _log(2)
    sealed = run(seal(WAL, "s"), store)
    assert sealed == Sealed(3, 0, forced=False)
    mark = decode_header(store.get(WAL.key(3), -FOOTER_READ_BYTES), WAL, 3)
    assert not mark.forced
    for at in range(3):
        _tear(store, at, b"torn")
    assert _read(store) == ([], 0)
    run(clear(WAL, sealed), store)
    assert run(read_tail(WAL, sealed), store) == LogTail(())


def test_objects_with_a_new_boundary_alone_are_forced() -> None:
    writer = WalWriter(in_flight_max=2, forced=False)
    assert writer.handle(WindowReady()) == (PutWindow(1, 0, False, False, 0),)
    assert writer.handle(WindowReady()) == (PutWindow(2, 0, False, False, 0),)
    for sequence in (1, 2):
        writer.handle(PutSettled(sequence, PutOutcomes.DURABLE))
    writer.handle(Flushed(2))
    assert writer.handle(WindowReady()) == (PutWindow(3, 2, False, True, 2),)
    assert writer.handle(WindowReady()) == (PutWindow(4, 2, False, False, 2),)


@pytest.mark.parametrize("forced", [True, False])
def test_the_registration_is_always_forced(forced: bool) -> None:
    asked = register(WAL, "r", forced=forced)
    put = next(asked)
    assert isinstance(put, Put)
    assert put.forced, "a log without its registration does not say what it is"
    with pytest.raises(StopIteration):
        asked.send(PutOutcome.CREATED)
    assert decode_header(bytes(put.data), WAL, 0).forced is forced
