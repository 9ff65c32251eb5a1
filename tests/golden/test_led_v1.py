"""Logs of leaders under version 1 of the format: they read the same for ever.

There a leader's mark was a control segment, which took an offset, and the first epoch was 1.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.core.errors import NotServing
from sparklog.core.types import TimestampType
from sparklog.log.effects import run
from sparklog.log.manifest.change import absorb_tail, change
from sparklog.log.manifest.refresh import refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.history_reader import HistoryCache, HistoryReader
from sparklog.log.partition.leader_append import flush_at, hand_back, take_leadership
from sparklog.log.partition.offset_lookup import epoch_at
from sparklog.log.partition.partition_log import PartitionLog
from sparklog.log.tail.to_segment import build_flush
from sparklog.protocol.records.control import end_transaction, read_control
from sparklog.protocol.records.record_batch import BatchSettings, decode, encode
from sparklog.store.file import FileStore
from sparklog.store.memory import MemoryStore
from tests.golden.log.make_led import LED
from tests.harness.log_records import batch

STORE = FileStore(Path(__file__).parent / "log" / "v1")


def test_rows_and_epochs_are_those_that_were_written() -> None:
    view = run(refresh(PartitionView(LED)), STORE)
    assert (view.end_offset, view.is_led, view.leader_epoch) == (10, True, 3)
    assert view.manifest.led
    assert [epoch_at(view, offset) for offset in range(10)] == [-1, 1, 1, 1, 1, 1, 2, 2, 3, 3]
    table = pa.Table.from_batches(PartitionLog(STORE, LED).read(0, 10))
    assert table["offset"].to_pylist() == [0, 2, 3, 4, 7, 9]
    assert table["value"].to_pylist() == [
        b"direct",
        b"plain",
        None,
        b"aborted",
        b"between",
        b"last",
    ]
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [1000, 2000, 2001, 2002, 3000, 4000]


def test_consumers_get_transactions_and_markers_back() -> None:
    view = run(refresh(PartitionView(LED)), STORE)
    history = run(HistoryReader(LED, HistoryCache(1 << 20)).read(view, 0, 1 << 20), STORE)
    batches = {b.header.base_offset: b for b in map(decode, history.batches)}
    assert sorted(batches) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert [at for at, b in batches.items() if b.header.is_control] == [5]
    assert [at for at, b in batches.items() if not b.records.num_rows] == [1, 6, 8]
    aborted = batches[4].header
    assert aborted.is_transactional
    assert (aborted.producer_id, aborted.producer_epoch, aborted.base_sequence) == (4711, 2, 7)
    (record,) = read_control(batches[5])
    marker = end_transaction(record)
    assert marker is not None
    assert (marker.is_commit, marker.coordinator_epoch) == (False, 5)
    assert batches[5].header.producer_id == 4711
    assert batches[9].header.timestamp_type is TimestampType.LOG_APPEND_TIME


def test_a_direct_writer_leaves_it_alone() -> None:
    with pytest.raises(NotServing):
        PartitionLog(STORE, LED).append([batch([b"mine"])])


def test_leaders_and_direct_writers_go_on_with_it() -> None:
    store = MemoryStore("old")
    for info in STORE.list(LED.folder):
        store.put(info.key, STORE.get(info.key))
    old = run(refresh(PartitionView(LED)), store)
    view = run(take_leadership(old, 4, "a" * 32), store)
    assert (view.position, view.leader_epoch) == ((10, 1), 4)
    data = encode(batch([b"new"]), BatchSettings(leader_epoch=4), base_offset=10)
    view = run(flush_at(view, build_flush(LED, [data], "b" * 32, codec="none"), 4), store)
    view = run(change(view, absorb_tail(1, 0), "c" * 32), store)
    assert [e.leader_epoch for e in view.manifest.entries] == [-1, 1, 1, 2, -1, 3, 3, 4]
    run(hand_back(view, 5, "d" * 32), store)
    log = PartitionLog(store, LED)
    assert log.append([batch([b"direct again"])]).base_offset == 11
    table = pa.Table.from_batches(log.read(0, 12, ("value",)))
    assert table["value"].to_pylist()[-3:] == [b"last", b"new", b"direct again"]
