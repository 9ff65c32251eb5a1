"""The broker's side of the write-ahead log: the writer's instructions, and settling a put."""

from __future__ import annotations

import pytest

from sparklog.core.errors import DataCorrupt, Fenced, OutcomeUnknown
from sparklog.log.effects import Effect, GetMany, Put, run
from sparklog.log.layout import WalLayout, wal_of_key
from sparklog.log.segment.file import footer_start
from sparklog.log.wal.objects import (
    FOOTER_READ_BYTES,
    WINDOW_BYTES_MIN,
    WalBatch,
    WalHeader,
    WalKind,
    decode,
    encode,
)
from sparklog.log.wal.writer import (
    UNKNOWN_TRIES_MAX,
    Acknowledge,
    Flushed,
    PutOutcomes,
    PutSettled,
    PutWindow,
    Stop,
    Trim,
    WalWriter,
    WindowReady,
    WindowRow,
    place,
    register,
)
from sparklog.store.base import PutOutcome
from sparklog.store.memory import MemoryStore

WAL = WalLayout(3, "0123456789abcdef" * 2)
KEY = WAL.key(1)


def _durable(sequence: int) -> PutSettled:
    return PutSettled(sequence, PutOutcomes.DURABLE)


def _window(nonce: str) -> WindowRow:
    return PutWindow(1, 0).placed(WAL, [WalBatch("t" * 22, 0, 7, 2, b"batch")], nonce)


def _seal() -> bytes:
    return encode(WAL, WalHeader(WalKind.SEAL, 1, 0, "s"))


def window(sequence: int, boundary: int, acknowledged: int) -> PutWindow:
    return PutWindow(sequence, boundary, acknowledged=acknowledged)


def test_windows_are_acknowledged_in_order_for_any_order_of_puts() -> None:
    writer = WalWriter(in_flight_max=3)
    put = [writer.handle(WindowReady()) for _ in range(3)]
    assert put == [(window(1, 0, 0),), (window(2, 0, 0),), (window(3, 0, 0),)]
    assert not writer.has_capacity
    assert writer.handle(_durable(3)) == ()
    assert writer.handle(_durable(1)) == (Acknowledge(2),)
    assert writer.handle(_durable(2)) == (Acknowledge(4),)
    assert writer.in_flight == 0


def test_names_are_trimmed_once_a_durable_window_has_the_boundary() -> None:
    writer = WalWriter(in_flight_max=2)
    writer.handle(WindowReady())
    writer.handle(_durable(1))
    assert writer.handle(Flushed(2)) == ()
    # All of 1 is flushed, but it is the newest acknowledged object and stays.
    assert writer.handle(WindowReady()) == (window(2, 1, 1),)
    assert writer.handle(WindowReady()) == (window(3, 1, 1),)
    assert writer.handle(_durable(3)) == ()
    assert writer.handle(_durable(2)) == (Acknowledge(4),), "the registration stays"
    writer.handle(Flushed(3))
    assert writer.handle(WindowReady()) == (window(4, 3, 3),)
    assert writer.handle(_durable(4)) == (Acknowledge(5), Trim(1, 3))


def test_window_flushed_before_its_acknowledgement_is_not_trimmed() -> None:
    writer = WalWriter(in_flight_max=2)
    writer.handle(WindowReady())
    writer.handle(Flushed(2))  # the in-sync brokers had it, and L1 was faster than the put
    assert writer.handle(WindowReady()) == (window(2, 0, 0),)


def test_a_fenced_writer_acknowledges_nothing_more() -> None:
    writer = WalWriter(in_flight_max=2)
    writer.handle(WindowReady())
    writer.handle(WindowReady())
    assert writer.handle(PutSettled(2, PutOutcomes.FENCED)) == (Stop(2),)
    assert writer.handle(_durable(1)) == ()
    assert writer.handle(PutSettled(2, PutOutcomes.FENCED)) == ()
    assert not writer.has_capacity


def test_a_put_is_durable_when_the_name_was_free() -> None:
    store = MemoryStore("wal")
    assert run(place(_window("n")), store) is PutOutcomes.DURABLE
    found = decode(store.get(KEY), WAL, 1)
    assert found.header == WalHeader(WalKind.WINDOW, 1, 0, "n")
    assert found.batches == (WalBatch("t" * 22, 0, 7, 2, b"batch"),)


@pytest.mark.parametrize("outcome", [PutOutcome.EXISTS, PutOutcome.UNKNOWN])
def test_our_own_object_under_the_name_is_durable(outcome: PutOutcome) -> None:
    placing = place(_window("n"))
    assert isinstance(next(placing), Put)
    assert isinstance(placing.send(outcome), GetMany)
    with pytest.raises(StopIteration) as end:
        placing.send([_window("n").data])
    assert end.value.value is PutOutcomes.DURABLE


@pytest.mark.parametrize("outcome", [PutOutcome.EXISTS, PutOutcome.UNKNOWN])
@pytest.mark.parametrize("there", [_seal(), _window("other").data], ids=["seal", "window"])
def test_foreign_object_under_the_name_fences(outcome: PutOutcome, there: bytes) -> None:
    placing = place(_window("n"))
    next(placing)
    placing.send(outcome)
    with pytest.raises(StopIteration) as end:
        placing.send([there])
    assert end.value.value is PutOutcomes.FENCED


def test_a_put_that_did_not_arrive_is_sent_again_unchanged() -> None:
    placing = place(_window("n"))
    first: Effect = next(placing)
    placing.send(PutOutcome.UNKNOWN)
    assert placing.send([None]) == first
    with pytest.raises(StopIteration) as end:
        placing.send(PutOutcome.CREATED)
    assert end.value.value is PutOutcomes.DURABLE


def test_put_without_any_answer_has_an_unknown_outcome() -> None:
    placing = place(_window("n"))
    next(placing)
    for _ in range(UNKNOWN_TRIES_MAX - 1):
        placing.send(PutOutcome.UNKNOWN)
        placing.send([None])
    placing.send(PutOutcome.UNKNOWN)
    with pytest.raises(OutcomeUnknown, match="place it again"):
        placing.send([None])


def test_an_incarnation_registers_once_and_again_with_the_same_nonce() -> None:
    store = MemoryStore("wal")
    run(register(WAL, "n"), store)
    run(register(WAL, "n"), store)
    with pytest.raises(Fenced, match="start again with a new one"):
        run(register(WAL, "other"), store)


def test_small_windows_are_no_marks_and_their_footers_alike() -> None:
    header = WalHeader(WalKind.WINDOW, 1000, 900, "b" * 32)
    footers = set()
    for size in range(1, WINDOW_BYTES_MIN + 100, 8):
        row = WalBatch("t" * 22, 0, 5, 1, bytes(size))
        data = encode(WAL, header, [row])
        assert len(data) >= WINDOW_BYTES_MIN
        assert decode(data, WAL, 1000).batches == (row,)
        footers.add(len(data) - footer_start(data, len(data), "object"))
    assert len(footers) < 50, "each length is made by Arrow once, and so many are kept"
    assert max(footers) <= FOOTER_READ_BYTES


def test_a_damaged_object_under_the_name_is_reported() -> None:
    store = MemoryStore("wal")
    store.put(KEY, b"not an Arrow file")
    with pytest.raises(DataCorrupt):
        run(place(_window("n")), store)


def test_names_are_parsed_as_they_are_built() -> None:
    assert KEY == "wal/3-0123456789abcdef0123456789abcdef/00000000000000000001.arrow"
    assert wal_of_key(KEY) == (WAL, 1)
    assert WAL.sequence(KEY) == 1
    assert WalLayout(4, WAL.incarnation).sequence(KEY) is None
    for foreign in ("wal/03-" + KEY[6:], KEY + ".tmp", KEY.replace("a", "A"), "x" + KEY):
        assert wal_of_key(foreign) is None
