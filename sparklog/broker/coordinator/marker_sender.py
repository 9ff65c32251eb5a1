"""MarkerSender: sends the markers of prepared transactions until each partition has its marker.

While a request to a broker is under way, further markers for it gather and go with the next one.
  MARKER-SENDER-1: a marker is sent again until its partition has it, its topic is deleted, or
      another coordinator has taken over. There is no timeout: the outcome of a transaction is
      final
  MARKER-SENDER-2: a transaction is completed after its last marker is committed, not before
  MARKER-SENDER-3: a broker that no longer leads the coordinator's partition sends no more markers
      for it.
Source: Kafka's TransactionMarkerChannelManager and TransactionMarkerRequestCompletionHandler.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.runtime.environment import Address, Network, TaskScope, Unreachable
from sparklog.broker.runtime.metadata_access import MetadataAccess
from sparklog.coordinator.transaction.shard import WriteMarkers
from sparklog.coordinator.transaction.state import Partition
from sparklog.coordinator.transaction.transaction import EPOCH_BUMP_SINCE
from sparklog.core.backoff import Backoff
from sparklog.core.types import PartitionId
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request, build_request_part

logger = logging.getLogger(__name__)

RETRY_FIRST_S: Final = 0.02
RETRY_LONGEST_S: Final = 0.3
WRITE_TIMEOUT_S: Final = 10.0
REQUEST_MARKERS_MAX: Final = 1000
"""Partitions in one request."""
VERSION: Final = 2
"""The first version of WriteTxnMarkers with a field that the epoch was raised for the marker."""
PURPOSE: Final = "markers"

Codes = Mapping[Partition, ErrorCode]
WriteHere = Callable[[Sequence[WriteMarkers]], Awaitable[Sequence[Codes]]]
"""Appends markers to partitions led here; returns a code for every partition of each."""
Complete = Callable[[int, WriteMarkers], Coroutine[Any, Any, None]]

SUPERSEDED: Final = frozenset({ErrorCode.invalid_producer_epoch})
"""A later epoch of the producer has written there, so the marker was there already."""
STOPPED: Final = frozenset({ErrorCode.transaction_coordinator_fenced})


@dataclass(slots=True, eq=False)
class _PendingMarkers:
    """The markers of one transaction that are not confirmed yet."""

    coordinator_partition: int
    """The partition of `__transaction_state` whose shard coordinates the transaction."""
    wanted: WriteMarkers
    remaining: set[Partition]
    live: bool = True
    backoff: Backoff = field(default_factory=lambda: Backoff(RETRY_FIRST_S, RETRY_LONGEST_S))


@dataclass(slots=True)
class _Peer:
    """The markers that wait for a request to one broker."""

    gathered: dict[_PendingMarkers, set[Partition]] = field(default_factory=dict)
    busy: bool = False


class MarkerSender:
    """See the module."""

    def __init__(
        self,
        network: Network,
        metadata: MetadataAccess,
        broker_id: int,
        tasks: TaskScope,
        write_here: WriteHere,
        complete: Complete,
    ) -> None:
        """Send through `network`; call `complete` for each transaction with all its markers."""
        self._network = network
        self._metadata = metadata
        self._broker_id = broker_id
        self._tasks = tasks
        self._write_here = write_here
        self._complete = complete
        self._sending: dict[tuple[int, str], _PendingMarkers] = {}
        self._peers: defaultdict[int, _Peer] = defaultdict(_Peer)

    def send(self, coordinator_partition: int, wanted: WriteMarkers) -> None:
        """Send every partition of a transaction its marker, until all have it."""
        key = coordinator_partition, wanted.transactional_id
        before = self._sending.get(key)
        if before is not None:
            before.live = False
        sending = self._sending[key] = _PendingMarkers(
            coordinator_partition, wanted, set(wanted.partitions)
        )
        self._route(sending, wanted.partitions)

    def forget(self, coordinator_partition: int) -> None:
        """Stop sending markers for a coordinator's partition that another broker leads."""
        for key in [key for key in self._sending if key[0] == coordinator_partition]:
            self._sending.pop(key).live = False

    def _route(self, sending: _PendingMarkers, partitions: Iterable[Partition]) -> None:
        """Queue each partition's marker for the leader of that partition."""
        if not sending.live:
            return
        image = self._metadata.image
        lost: set[Partition] = set()
        for partition in sorted(partitions):
            topic = image.topics.get(partition[0])
            if topic is None or partition[1] >= topic.partitions:
                sending.remaining.discard(partition)  # deleted together with its records
                continue
            state = image.partition(PartitionId(topic.topic_id, partition[1]))
            if state is None or state.leader not in image.brokers:
                lost.add(partition)
                continue
            peer = self._peers[state.leader]
            peer.gathered.setdefault(sending, set()).add(partition)
            if not peer.busy:
                peer.busy = True
                self._tasks.start(
                    self._send_gathered(state.leader, peer), f"markers to {state.leader}"
                )
        if lost:
            self._retry_later(sending, lost)
        self._complete_if_done(sending)

    def _retry_later(self, sending: _PendingMarkers, partitions: set[Partition]) -> None:
        """Route the markers of some partitions again after a pause."""
        loop = asyncio.get_running_loop()
        loop.call_later(sending.backoff.next_s(), self._route, sending, partitions)

    def _complete_if_done(self, sending: _PendingMarkers) -> None:
        if sending.live and not sending.remaining:
            sending.live = False
            key = sending.coordinator_partition, sending.wanted.transactional_id
            self._sending.pop(key, None)
            self._tasks.start(
                self._complete(sending.coordinator_partition, sending.wanted),
                "complete a transaction",
            )

    async def _send_gathered(self, broker_id: int, peer: _Peer) -> None:
        """Send the gathered markers to one broker, until none is left."""
        while peer.gathered:
            taken = _next_request(peer)
            if not taken:
                continue
            wanted = [s.wanted._replace(partitions=frozenset(p)) for s, p in taken.items()]
            codes = await self._write(broker_id, wanted)
            for (sending, asked), found in zip(taken.items(), codes, strict=True):
                self._handle_codes(sending, asked, found)
        peer.busy = False

    def _handle_codes(self, sending: _PendingMarkers, asked: set[Partition], codes: Codes) -> None:
        if not sending.live:
            return
        again: set[Partition] = set()
        for partition in asked:
            code = codes.get(partition, ErrorCode.unknown_server_error)
            if code in STOPPED:
                logger.warning("another coordinator ends the transaction %s", sending.wanted)
                self._abandon(sending)
                return
            if code is ErrorCode.none or code in SUPERSEDED:
                sending.remaining.discard(partition)
            else:
                again.add(partition)
        if again:
            logger.info("markers are sent again partitions=%s codes=%s", sorted(again), codes)
            self._retry_later(sending, again)
        self._complete_if_done(sending)

    def _abandon(self, sending: _PendingMarkers) -> None:
        sending.live = False
        self._sending.pop((sending.coordinator_partition, sending.wanted.transactional_id), None)

    async def _write(self, broker_id: int, wanted: Sequence[WriteMarkers]) -> Sequence[Codes]:
        """Write markers at a broker. If the whole request fails, return no codes: send again."""
        if broker_id == self._broker_id:
            return await self._write_here(wanted)
        broker = self._metadata.image.brokers.get(broker_id)
        if broker is None:
            return [{}] * len(wanted)
        try:
            response = await self._network.call(
                Address(broker.host, broker.port),
                _request(wanted),
                timeout_s=WRITE_TIMEOUT_S,
                purpose=PURPOSE,
            )
        except (Unreachable, TimeoutError) as error:
            logger.info("markers were not delivered broker=%d %s", broker_id, error)
            return [{}] * len(wanted)
        return _codes(wanted, response)


def _next_request(peer: _Peer) -> dict[_PendingMarkers, set[Partition]]:
    """Remove and return the markers of the next request."""
    taken: dict[_PendingMarkers, set[Partition]] = {}
    count = 0
    producers: set[int] = set()
    for sending in list(peer.gathered):
        producer_id = sending.wanted.producer.producer_id
        if producer_id in producers:
            continue  # the response identifies a marker by its producer id
        if count >= REQUEST_MARKERS_MAX:
            break
        partitions = peer.gathered.pop(sending)
        if sending.live:
            producers.add(producer_id)
            taken[sending] = partitions
            count += len(partitions)
    return taken


def _request(wanted: Sequence[WriteMarkers]) -> Any:
    return build_request(
        Api.WRITE_TXN_MARKERS,
        VERSION,
        markers=tuple(
            build_request_part(
                Api.WRITE_TXN_MARKERS,
                VERSION,
                "WritableTxnMarker",
                producer_id=one.producer.producer_id,
                producer_epoch=one.producer.producer_epoch,
                transaction_result=one.is_commit,
                topics=tuple(
                    build_request_part(
                        Api.WRITE_TXN_MARKERS,
                        VERSION,
                        "WritableTxnMarkerTopic",
                        name=topic,
                        partition_indexes=tuple(sorted(numbers)),
                    )
                    for topic, numbers in sorted(_by_topic(one.partitions).items())
                ),
                coordinator_epoch=one.coordinator_epoch,
                transaction_version=EPOCH_BUMP_SINCE
                if one.client_version >= EPOCH_BUMP_SINCE
                else 0,
            )
            for one in wanted
        ),
    )


def _by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, number in partitions:
        by_topic[topic].append(number)
    return by_topic


def _codes(wanted: Sequence[WriteMarkers], response: Any) -> list[Codes]:
    by_producer: dict[int, dict[Partition, ErrorCode]] = defaultdict(dict)
    for marker in response.markers:
        for topic in marker.topics:
            for part in topic.partitions:
                by_producer[marker.producer_id][topic.name, part.partition_index] = part.error_code
    return [by_producer[one.producer.producer_id] for one in wanted]
