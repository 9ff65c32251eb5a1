"""Version 1 of the write-ahead log decodes for ever: with sparklog, and without it."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from sparklog.log.effects import run
from sparklog.log.wal.objects import WalKind, decode
from sparklog.log.wal.sealing import Sealed, read_tail, seal
from sparklog.store.file import FileStore
from tests.golden.wal.make import LOG, TOPIC_ID, UNFORCED_LOG, UNFORCED_WAL, WAL

ROOT = Path(__file__).parent / "wal" / "v1"


def test_every_kind_of_object_is_read_as_it_was_written() -> None:
    store = FileStore(ROOT)
    found = [decode(store.get(WAL.key(sequence)), WAL, sequence) for sequence in range(len(LOG))]
    assert tuple(found) == LOG
    assert {one.header.kind for one in found} == set(WalKind)


def test_the_golden_log_is_sealed_and_its_tail_is_read() -> None:
    store = FileStore(ROOT)
    assert run(seal(WAL, "f" * 32), store) == Sealed(3, 1)
    assert run(read_tail(WAL, Sealed(3, 1)), store).windows == LOG[1:3]


def test_unforced_log_is_marked_as_unforced() -> None:
    store = FileStore(ROOT)
    data = [store.get(UNFORCED_WAL.key(sequence)) for sequence in range(len(UNFORCED_LOG))]
    found = tuple(decode(one, UNFORCED_WAL, sequence) for sequence, one in enumerate(data))
    assert found == UNFORCED_LOG
    assert run(seal(UNFORCED_WAL, "f" * 32), store) == Sealed(2, 0, forced=False)


def test_another_arrow_reader_opens_a_window() -> None:
    frame = pl.read_ipc(ROOT / WAL.key(1))
    assert frame["topic_id"].to_list() == [TOPIC_ID, TOPIC_ID]
    assert frame["base_offset"].to_list() == [0, 2**40]
    assert frame["batch"].to_list() == [one.data for one in LOG[1].batches]
