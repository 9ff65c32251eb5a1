"""What leaders wrote under version 1 of the log's format reads the same for ever."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.core.errors import NotServing
from sparklog.core.types import TimestampType
from sparklog.log.effects import run
from sparklog.log.epochs import epoch_at
from sparklog.log.history import HistoryReader
from sparklog.log.history_cache import HistoryCache
from sparklog.log.partition_log import PartitionLog
from sparklog.log.refresh import refresh
from sparklog.log.view import PartitionView
from sparklog.protocol.control import end_transaction, read_control
from sparklog.protocol.record_batch import decode
from sparklog.store.file import FileStore
from tests.golden.log.make_led import LED
from tests.unit.log.records import batch

STORE = FileStore(Path(__file__).parent / "log" / "v1")


def test_rows_and_epochs_are_those_that_were_written() -> None:
    view = run(refresh(PartitionView(LED)), STORE)
    assert (view.end_offset, view.is_led, view.leader_epoch) == (10, True, 3)
    assert view.manifest.led
    assert [epoch_at(view, offset) for offset in range(10)] == [0, 1, 1, 1, 1, 1, 2, 2, 3, 3]
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
    assert [at for at, b in batches.items() if b.header.is_control] == [1, 5, 6, 8]
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
