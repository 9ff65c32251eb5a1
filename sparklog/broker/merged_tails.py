"""What a new leader has beyond the partition's own log: sealed WALs, and its own replica's tail.

Pure. Batches of one leader epoch are one sequence, of which every copy is a prefix; a leader begins
only after all it found is in the partition's own log. So among batches at one offset the highest
epoch is right, and a batch of a lower epoch than what lies before it was never committed.
  J1  what is returned joins the end of the log, batch to batch, and epochs never fall
  J2  everything in the sealed logs is in it; the tail only goes on where they end
"""

from __future__ import annotations

from collections.abc import Sequence

from sparklog.core.errors import DataCorrupt
from sparklog.log.tail import Tail
from sparklog.log.view import PartitionView
from sparklog.log.wal_object import WalBatch
from sparklog.protocol.batch_header import parse_header


def merged(view: PartitionView, sealed: Sequence[WalBatch], tail: Tail) -> list[bytes]:
    """Return the batches from the end of `view` on that the new leader brings into the log.

    Args:
        view: of the partition's own log, looked at after the sealed logs were read.
        sealed: from `recover_batches`.
        tail: what this broker's replica holds, as a follower or as a leader of earlier epochs.

    Raises:
        DataCorrupt: the tail has a later epoch where a sealed log has an older one.
    """
    batches = [batch.data for batch in sealed]
    end, epoch = view.end_offset, view.leader_epoch
    if sealed:
        last = parse_header(sealed[-1].data)
        end, epoch = last.end_offset, last.leader_epoch
        known = tail.epoch_at(last.base_offset)
        in_tail = tail.start_offset <= last.base_offset < tail.end_offset
        if in_tail and known > epoch:
            raise DataCorrupt(
                "a replica has records of a later leader than a sealed write-ahead log for the "
                f"same offset; run verify. partition={view.layout.folder} "
                f"offset={last.base_offset} epoch={epoch} epoch_in_replica={known}"
            )
        if not in_tail or known != epoch:
            return batches
    return [*batches, *_continued(tail, end, epoch)]


def _continued(tail: Tail, end: int, epoch: int) -> list[bytes]:
    """Return the tail's batches from `end` on, if one begins there and is not of an older epoch."""
    if not tail.start_offset <= end < tail.end_offset:
        return []
    batches = tail.batches(end, tail.end_offset)
    if not batches:
        return []
    first = parse_header(batches[0])
    return batches if first.base_offset == end and first.leader_epoch >= epoch else []
