"""The leaders of partitions that brokers serve: what they have beyond the segments.

An end is the high watermark, as a Kafka consumer sees it. What is below the end of the segments is
read from them; the rest is fetched from whoever leads, by offset, so that neither a flush nor a new
leader in between makes a gap or a record twice.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from sparklog.client.addresses import bootstrap_addresses
from sparklog.client.asking import Brokers
from sparklog.client.fetching import Stretch, fetch_stretch
from sparklog.client.offsets import find_offsets
from sparklog.client.values import LATEST, FoundOffset
from sparklog.cluster.image import MetadataImage
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.errors import DataCorrupt, SparklogError, Unavailable
from sparklog.core.types import TopicPartition
from sparklog.protocol.batch_header import check_crc
from sparklog.protocol.batch_run import decode_runs, read_headers
from sparklog.protocol.memory_records import BatchSlice

logger = logging.getLogger(__name__)

REQUEST_TIMEOUT_S: Final = 10.0
"""A broker that is silent for so long is asked again, or another one is."""
NOBODY: Final = Unavailable(
    "brokers lead the topic, and none is registered; start brokers, name one that can be reached "
    "with the option kafka.bootstrap.servers, or read without what is not flushed yet with the "
    "option includeUnflushed=false"
)


class Leaders:
    """Asks the leaders of partitions. Keeps its connections; not for threads."""

    def __init__(self, bootstrap: str | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        """Find brokers at `bootstrap`, or else where the cluster's metadata says they are."""
        self._bootstrap = bootstrap
        self._clock = clock
        self._brokers: Brokers | None = None
        self._addresses = ""

    def ends(
        self, image: MetadataImage, places: Collection[TopicPartition], patience_s: float
    ) -> dict[TopicPartition, int | SparklogError]:
        """Return the high watermarks, or why a partition's is not known after `patience_s`."""
        found = self._offsets(image, dict.fromkeys(places, LATEST), patience_s)
        return {
            place: answer if isinstance(answer, SparklogError) else answer.offset
            for place, answer in found.items()
        }

    def offset_at_time(
        self, image: MetadataImage, place: TopicPartition, timestamp_ms: int, patience_s: float
    ) -> int | None:
        """Return the first offset at or after a time, or None.

        Raises:
            SparklogError: the leader does not say.
        """
        answer = self._offsets(image, {place: timestamp_ms}, patience_s)[place]
        if isinstance(answer, SparklogError):
            raise answer
        return answer.offset if answer.offset >= 0 else None

    def addresses(self, image: MetadataImage) -> str:
        """Return brokers for a task to start from, as bootstrap servers."""
        if self._bootstrap is not None:
            return self._bootstrap
        return ",".join(f"{b.host}:{b.port}" for b in image.live_brokers())

    def close(self) -> None:
        """Drop the connections."""
        if self._brokers is not None:
            self._brokers.close()
            self._brokers = None

    def _offsets(
        self, image: MetadataImage, wanted: Mapping[TopicPartition, int], patience_s: float
    ) -> Mapping[TopicPartition, FoundOffset | SparklogError]:
        addresses = self.addresses(image)
        if not addresses:
            return dict.fromkeys(wanted, NOBODY)
        if self._brokers is None or addresses != self._addresses:
            self.close()
            self._addresses = addresses
            self._brokers = Brokers(bootstrap_addresses(addresses), REQUEST_TIMEOUT_S)
        ids = {place.topic: image.topics[place.topic].topic_id for place in wanted}
        try:
            return find_offsets(
                self._brokers, wanted, self._clock, patience_s=patience_s, topic_ids=ids
            )
        except Unavailable as error:
            return dict.fromkeys(wanted, error)


def fetch_rows(
    bootstrap: str, stretch: Stretch, columns: Sequence[str], clock: Clock = SYSTEM_CLOCK
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a stretch, with these columns, from whoever leads the partition.

    Raises:
        As `fetch_stretch`.
    """
    brokers = Brokers(bootstrap_addresses(bootstrap), REQUEST_TIMEOUT_S)
    try:
        for batches in fetch_stretch(brokers, stretch, clock=clock):
            for rows in _decoded([b for b in batches if not b.header.is_control], stretch):
                wanted = _within(rows, stretch)
                if wanted.num_rows:
                    yield wanted.select(columns)
    finally:
        brokers.close()


def _decoded(batches: Sequence[BatchSlice], stretch: Stretch) -> Iterator[pa.RecordBatch]:
    """Yield the records of batches; a batch that cannot be read is passed over, as by a flush."""
    for batch in batches:
        check_crc(batch.data, batch.header)
    try:
        yield from _rows(batches)
    except DataCorrupt:
        if len(batches) == 1:
            logger.exception(
                "a producer's batch cannot be read and is passed over. partition=%s offset=%d",
                stretch.topic_partition,
                batches[0].header.base_offset,
            )
            return
        for batch in batches:
            yield from _decoded([batch], stretch)


def _rows(batches: Sequence[BatchSlice]) -> list[pa.RecordBatch]:
    if not batches:
        return []
    data = [batch.data for batch in batches]
    found, at = [], 0
    for count, rows in decode_runs(data, read_headers(data)):
        headers = [batch.header for batch in batches[at : at + count]]
        types = np.repeat(
            np.array([header.timestamp_type for header in headers], np.int32),
            [header.record_count for header in headers],
        )
        found.append(rows.append_column("timestampType", pa.array(types)))
        at += count
    return found


def _within(rows: pa.RecordBatch, stretch: Stretch) -> pa.RecordBatch:
    offsets = rows.column("offset").to_numpy()
    first, end = offsets.searchsorted([stretch.base_offset, stretch.end_offset]).tolist()
    return rows.slice(first, end - first)
