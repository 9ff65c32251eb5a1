"""Adds a partition that leaders wrote: `python -m tests.golden.log.make_led FOLDER`.

Never over an existing one. The partition is in no registry: it is read by its place.
"""

from __future__ import annotations

import sys

from sparklog.core.types import TimestampType
from sparklog.log.effects import Program, Result, run
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest.change import absorb_tail, change
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.leader_append import flush_at, hand_back, take_leadership
from sparklog.log.partition.partition_log import PartitionLog
from sparklog.log.tail.to_segment import build_flush
from sparklog.protocol.records.control import EndTransactionMarker, encode_end_transaction
from sparklog.protocol.records.record_batch import BatchSettings, Codec, encode
from sparklog.store.file import FileStore
from tests.harness.log_records import batch

LED = PartitionLayout("golden-led", "R29sZGVuTGVkUGFydGl0aQ", 0)


def make(folder: str) -> None:
    """Write what direct writers and two leaders did, one after the other."""
    store = FileStore(folder)

    def do(protocol: Program[Result]) -> Result:
        return run(protocol, store)

    direct = PartitionLog(store, LED)
    direct.append([batch([b"direct"], timestamps_ms=[1_000])])
    view = do(take_leadership(PartitionView(LED), 1, "1" * 32))
    batches = [
        encode(
            batch([b"plain", None], timestamps_ms=[2_000, 2_001], keys=[b"k", None]),
            BatchSettings(leader_epoch=1, codec=Codec.GZIP),
            base_offset=2,
        ),
        encode(
            batch([b"aborted"], timestamps_ms=[2_002]),
            BatchSettings(
                leader_epoch=1,
                producer_id=4711,
                producer_epoch=2,
                base_sequence=7,
                is_transactional=True,
            ),
            base_offset=4,
        ),
        encode_end_transaction(
            EndTransactionMarker(is_commit=False, coordinator_epoch=5),
            base_offset=5,
            timestamp_ms=2_003,
            leader_epoch=1,
            producer_id=4711,
            producer_epoch=2,
        ),
    ]
    view = do(flush_at(view, build_flush(LED, batches, "2" * 32, codec="zstd"), 1))
    view = do(hand_back(view, 2, "3" * 32))
    direct.append([batch([b"between"], timestamps_ms=[3_000])])
    view = do(take_leadership(PartitionView(LED), 3, "4" * 32))
    do(change(view, absorb_tail(1, 0), "5" * 32))
    stamped = BatchSettings(leader_epoch=3, timestamp_type=TimestampType.LOG_APPEND_TIME)
    last = [encode(batch([b"last"], timestamps_ms=[4_000]), stamped, base_offset=9)]
    do(flush_at(view, build_flush(LED, last, "6" * 32, codec="lz4"), 3))


if __name__ == "__main__":
    make(sys.argv[1])
