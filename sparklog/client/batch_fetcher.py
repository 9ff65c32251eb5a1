"""Reads a range of one partition's offsets from its leader, as wire batches.

All offsets are below the high watermark, so any leader has them, now or soon. If a leader moved or
lags, the fetch is repeated until `patience_s`. The fetch uses the topic id, so a new topic under
the old name is never read. Source: KIP-516.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from sparklog.client.addresses import BrokerAddress
from sparklog.client.connections import BrokerConnections, RequestDraft
from sparklog.client.errors import of_code
from sparklog.client.metadata import read_metadata
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.errors import (
    NotServing,
    OffsetOutOfRange,
    OutcomeUnknown,
    SparklogError,
    Unavailable,
    UnknownTopicOrPartition,
)
from sparklog.core.types import TopicPartition
from sparklog.protocol.api_keys import Api
from sparklog.protocol.records.control import without_aborted
from sparklog.protocol.records.memory_records import BatchSlice, split_batches
from sparklog.protocol.topic_ids import uuid_of

VERSIONS: Final = (13, 13)
"""The first version with topic ids; later ones add fields for replicas only."""
FETCH_BYTES: Final = 8 << 20
FETCH_WAIT: Final = timedelta(milliseconds=500)
PATIENCE_S: Final = 60.0
"""Time that fetches may return nothing; an election takes seconds."""
NEWS_PATIENCE_S: Final = 5.0
"""Time that a broker may not know a new topic, or its own deposition."""
AGAIN_S: Final = 0.1
CONSUMER: Final = -1

_SOON_FINAL: Final = (UnknownTopicOrPartition, OffsetOutOfRange)
_MAY_PASS: Final = (NotServing, Unavailable, OutcomeUnknown, *_SOON_FINAL)


@dataclass(frozen=True, slots=True)
class FetchedSpan:
    """Offsets [base_offset, end_offset) of a partition, with its topic id."""

    topic_partition: TopicPartition
    topic_id: str
    base_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """The result of one fetch."""

    batches: list[BatchSlice]
    """In order; the first has the requested offset."""
    aborted: tuple[tuple[int, int], ...] = ()
    """Producer ids and first offsets of aborted transactions among these batches."""


@dataclass(frozen=True, slots=True)
class Leader:
    """A partition's leader and leader epoch; a deposed leader does not know later epochs."""

    address: BrokerAddress
    epoch: int


def fetch_span(
    brokers: BrokerConnections,
    span: FetchedSpan,
    *,
    committed_only: bool = False,
    patience_s: float = PATIENCE_S,
    clock: Clock = SYSTEM_CLOCK,
) -> Iterator[FetchedBatches]:
    """Yield the batches of a range, in order; the first and last may extend beyond it.

    With `committed_only` the leader returns nothing beyond the last stable offset, and lists
    aborted transactions; the caller must drop their records.

    Raises:
        OffsetOutOfRange: some offsets are no longer in the log.
        UnknownTopicOrPartition: the topic was deleted, or another one has its name.
        Unavailable: no broker returned records for `patience_s`.
        DataCorrupt: the response is damaged.
    """
    at = span.base_offset
    since_s = clock.monotonic_s()
    leader: Leader | None = None
    while at < span.end_offset:
        found = FetchedBatches([])
        trouble: SparklogError | None = None
        try:
            leader = leader or _leader(brokers, span)
            found = _fetched(brokers, leader, span, at, committed_only=committed_only)
        except _MAY_PASS as error:
            leader, trouble = None, error
        if found.batches:
            yield found
            at = found.batches[-1].header.end_offset
            since_s = clock.monotonic_s()
            continue
        waited_s = clock.monotonic_s() - since_s
        if isinstance(trouble, _SOON_FINAL) and waited_s >= NEWS_PATIENCE_S:
            raise trouble
        if waited_s >= patience_s:
            raise Unavailable(
                "no broker hands out records that are committed; see that brokers run and that "
                f"the partition has a leader. partition={span.topic_partition} offset={at} "
                f"waited_s={waited_s:.0f} reason={trouble}"
            ) from trouble
        if trouble is not None:
            clock.sleep_s(AGAIN_S)


def kept(fetched: FetchedBatches, committed_only: bool) -> list[BatchSlice]:
    """Return the batches of records, as a consumer of Kafka picks them. Source: KIP-98."""
    if not committed_only:
        return [batch for batch in fetched.batches if not batch.header.is_control]
    return without_aborted(fetched.batches, fetched.aborted)


def _leader(brokers: BrokerConnections, span: FetchedSpan) -> Leader:
    tp = span.topic_partition
    metadata = read_metadata(brokers, [tp.topic])
    topic = metadata.topics.get(tp.topic)
    if topic is None or topic.topic_id != span.topic_id:
        raise UnknownTopicOrPartition(
            "the brokers know no such topic. "
            f"topic={tp.topic} topic_id={span.topic_id} "
            f"known_topic_id={topic.topic_id if topic is not None else None}"
        )
    address = metadata.leader(tp)
    if address is None:
        raise NotServing(f"nobody leads the partition now. partition={tp}")
    return Leader(address, topic.partition_states[tp.partition].leader_epoch)


def _fetched(
    brokers: BrokerConnections,
    leader: Leader,
    span: FetchedSpan,
    at: int,
    *,
    committed_only: bool,
) -> FetchedBatches:
    def draft(of: RequestDraft) -> Any:
        partition = of.part(
            "FetchPartition",
            partition=span.topic_partition.partition,
            current_leader_epoch=leader.epoch,
            fetch_offset=at,
            partition_max_bytes=FETCH_BYTES,
        )
        topic = of.part("FetchTopic", topic_id=uuid_of(span.topic_id), partitions=(partition,))
        return of.request(
            replica_id=CONSUMER,
            max_wait=FETCH_WAIT,
            min_bytes=1,
            max_bytes=2 * FETCH_BYTES,
            isolation_level=int(committed_only),
            topics=(topic,),
            forgotten_topics_data=(),
        )

    answer = brokers.tell(leader.address, Api.FETCH, *VERSIONS, draft)
    doing, where = "records could not be fetched", span.topic_partition
    if answer.error_code != 0:
        raise of_code(answer.error_code, None, doing, partition=where, offset=at)
    parts = [part for topic in answer.responses for part in topic.partitions]
    for part in parts:
        if part.error_code != 0:
            raise of_code(part.error_code, None, doing, partition=where, offset=at)
    batches = [
        batch
        for part in parts
        if part.records
        for batch in split_batches(part.records, allow_cut_tail=True)
        if batch.header.end_offset > at
    ]
    aborted = tuple(
        (int(one.producer_id), int(one.first_offset))
        for part in parts
        for one in part.aborted_transactions or ()
    )
    return FetchedBatches(batches, aborted)
