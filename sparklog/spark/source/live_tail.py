"""Live tail: the records that a task reads beyond its plan's segments, from a leader or the log.

The leader hands it out, from memory or from segments it has made of it meanwhile. When no leader
does for a while, the task reads the partition's own log. Brokers that ended, or were lost with all
they had, leave everything in segments in the end. The task looks up the brokers' addresses anew
each time.
  LIVE-TAIL-1: offsets are read in order, each from one place, so there is no gap and nothing twice
  LIVE-TAIL-2: a task ends with all its records, or an error; or, where data may be lost, a warning
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from sparklog.client.batch_fetcher import PATIENCE_S, FetchedSpan, fetch_span, kept
from sparklog.client.security import SecuritySettings
from sparklog.cluster.log import Log
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.errors import (
    DataCorrupt,
    OffsetOutOfRange,
    SparklogError,
    Unavailable,
    UnknownTopicOrPartition,
)
from sparklog.log.effects import run
from sparklog.log.manifest.refresh import unreadable
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.partition_log import PartitionLog
from sparklog.log.partition.read_committed import decided
from sparklog.log.partition.segment_reader import SegmentReader
from sparklog.log.segment.unread_batches import Unread, report_unreadable
from sparklog.protocol.records.decoder import decode_runs, read_headers
from sparklog.protocol.records.header import INT32_MAX, check_crc
from sparklog.protocol.records.memory_records import BatchSlice
from sparklog.spark.access.leaders import REQUEST_TIMEOUT_S, connect_brokers, registered

logger = logging.getLogger(__name__)

ROUND_S: Final = 5.0
"""The time without records from a leader after which the task reads the partition's own log."""
AGAIN_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class TailRequest:
    """The offsets to read, and the way to read them."""

    span: FetchedSpan
    columns: Sequence[str]
    """Without the columns that the partition's name gives."""
    bootstrap: str
    """Brokers to begin with."""
    committed_only: bool = False
    """Leave out what aborted transactions wrote."""
    security: SecuritySettings | None = None
    """TLS and SASL; None takes those of the process."""


class LiveTailReader:
    """Reads one stretch, once."""

    def __init__(
        self,
        wanted: TailRequest,
        open_log: Callable[[], Log] | None,
        reader: Callable[[PartitionLog], SegmentReader],
        lost: Callable[[str], None],
        clock: Clock = SYSTEM_CLOCK,
        patience_s: float = PATIENCE_S,
        unread: Unread = Unread.FAIL,
    ) -> None:
        """Read what is wanted.

        Args:
            `wanted`: the records.
            `open_log`: the log they are in; None reads from leaders alone.
            `reader`: reads segments of its partitions.
            `lost`: called with records that are gone; raises if that is to fail.
            `clock`: for the waiting.
            `patience_s`: the time without records after which the read fails.
            `unread`: the action for unreadable batches.
        """
        self._wanted = wanted
        self._at = wanted.span.base_offset
        self._bootstrap = wanted.bootstrap
        self._open_log = open_log
        self._reader = reader
        self._lost = lost
        self._clock = clock
        self._patience_s = patience_s
        self._unread = unread

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the records, in order.

        Raises:
            Unavailable: neither brokers nor the store have handed them out for long.
            DataCorrupt: what came is damaged.
        """
        since_s = self._clock.monotonic_s()
        end = self._wanted.span.end_offset
        while self._at < end:
            before = self._at
            trouble: SparklogError | None = None
            try:
                yield from self._from_leader()
            except (Unavailable, OffsetOutOfRange, UnknownTopicOrPartition) as error:
                trouble = error
                yield from self._from_segments(error)
            if self._at > before:
                since_s = self._clock.monotonic_s()
            elif self._clock.monotonic_s() - since_s >= self._patience_s:
                raise Unavailable(
                    "records that are committed are handed out by no broker and are in no segment; "
                    "see that brokers run and that the partition has a leader. "
                    f"partition={self._wanted.span.topic_partition} offset={self._at} "
                    f"waited_s={self._clock.monotonic_s() - since_s:.0f} reason={trouble}"
                ) from trouble
            else:
                self._clock.sleep_s(AGAIN_S)

    def _from_leader(self) -> Iterator[pa.RecordBatch]:
        wanted = self._wanted
        if not self._bootstrap:
            raise Unavailable("no broker is registered")
        brokers = connect_brokers(self._bootstrap, REQUEST_TIMEOUT_S, wanted.security)
        span = replace(wanted.span, base_offset=self._at)
        try:
            for fetched in fetch_span(
                brokers,
                span,
                committed_only=wanted.committed_only,
                patience_s=min(ROUND_S, self._patience_s),
                clock=self._clock,
            ):
                for rows in _decoded(kept(fetched, wanted.committed_only), span, self._unread):
                    some = _within(rows, self._at, span.end_offset)
                    if some.num_rows:
                        yield some.select(wanted.columns)
                self._at = fetched.batches[-1].header.end_offset
        finally:
            brokers.close()

    def _from_segments(self, trouble: SparklogError) -> Iterator[pa.RecordBatch]:
        span = self._wanted.span
        place = span.topic_partition
        if self._open_log is None:
            if not isinstance(trouble, Unavailable):
                self._lost(f"Offsets of {place} from {self._at} on were to be read: {trouble}")
                self._at = span.end_offset
            return
        log = self._open_log()
        image = log.refresh()
        topic = image.topics.get(place.topic)
        if topic is None or topic.topic_id != span.topic_id:
            self._lost(f"Topic {place.topic} was deleted while it was read.")
            self._at = span.end_offset
            return
        self._bootstrap = self._wanted.bootstrap or registered(image, self._wanted.security)
        partition = log.partition(place.topic, place.partition)
        view = partition.readable()
        if self._at < view.log_start_offset:
            self._lost(
                f"Offsets of {place} from {self._at} on were to be read but the log starts at "
                f"{view.log_start_offset}."
            )
            self._at = min(view.log_start_offset, span.end_offset)
        end = min(view.end_offset, span.end_offset)
        if self._at < end:
            logger.warning("reading from segments instead partition=%s %s", place, trouble)
            yield from self._stored(log, partition, view, end)
        elif view.damage is not None and self._at < span.end_offset:
            raise unreadable(view)
        elif isinstance(trouble, OffsetOutOfRange) and self._at < span.end_offset:
            self._lost(
                f"Offsets of {place} from {self._at} to {span.end_offset} were to be read: "
                f"{trouble}"
            )
            self._at = span.end_offset

    def _stored(
        self, log: Log, partition: PartitionLog, view: PartitionView, end: int
    ) -> Iterator[pa.RecordBatch]:
        reader, columns = self._reader(partition), self._wanted.columns
        if not self._wanted.committed_only:
            yield from reader.read(view, self._at, end, columns, unread=self._unread)
            self._at = end
            return
        known = run(decided(view), log.store)
        end = min(end, known.stable_end)
        if self._at >= end:
            return
        yield from reader.read_committed(view, self._at, end, columns, known, unread=self._unread)
        self._at = end


def _decoded(
    batches: Sequence[BatchSlice], span: FetchedSpan, unread: Unread
) -> Iterator[pa.RecordBatch]:
    """Yield the records of batches. Raises UnreadableRecords, unless they are passed over."""
    for batch in batches:
        check_crc(batch.data, batch.header)
    try:
        found = _rows(batches)
    except DataCorrupt as error:
        if len(batches) == 1:
            place, header = span.topic_partition, batches[0].header
            report_unreadable(place, header.base_offset, header.end_offset, error, unread)
            return
        for batch in batches:
            yield from _decoded([batch], span, unread)
        return
    yield from found


def _rows(batches: Sequence[BatchSlice]) -> list[pa.RecordBatch]:
    if not batches:
        return []
    data = [batch.data for batch in batches]
    found, at = [], 0
    for count, rows in decode_runs(data, read_headers(data), max_decompressed_bytes=INT32_MAX):
        headers = [batch.header for batch in batches[at : at + count]]
        types = np.repeat(
            np.array([header.timestamp_type for header in headers], np.int32),
            [header.record_count for header in headers],
        )
        found.append(rows.append_column("timestampType", pa.array(types)))
        at += count
    return found


def _within(rows: pa.RecordBatch, base_offset: int, end_offset: int) -> pa.RecordBatch:
    offsets = rows.column("offset").to_numpy()
    first, end = offsets.searchsorted([base_offset, end_offset]).tolist()
    return rows.slice(first, end - first)
