"""Fetchers: replica fetch loops, one per leader broker, for all partitions followed from it.

A loop has one long poll under way. A partition that joins does not wait for the poll to end. The
loop cancels the poll, and the next one uses another connection. So a new leader soon gets fetches
from its followers and can commit. The next poll fetches the cancelled poll's records again.
  FETCHER-1: a response changes only the `FollowerPartition` that sent the request, while it is
      live
  FETCHER-2: a fetch begins at the end of the tail and names its newest epoch, so the leader finds
      divergence
  FETCHER-3: an error of one partition pauses that partition; an unreachable leader pauses the loop
  FETCHER-4: a request has only the changes since the last one, in a session that the leader
      remembers
Source: Kafka's ReplicaFetcherThread; Fetch version 16; KIP-227.

FetchSessionHandler (pure): the follower's side of a fetch session. It leaves out of the next
request all that the leader remembers. The leader's side is in `broker.fetch.session`.
  FETCHER-5: if a response was lost or not understood, the leader's state of the session is
      unknown. The next request begins a new session, and names the old one so that the leader
      drops it.
Source: KIP-227; Kafka's FetchSessionHandler.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import ceil, inf
from typing import Any

from sparklog.broker.fetch.session import FIRST_EPOCH, NO_SESSION, next_epoch
from sparklog.broker.partition.follower import FetchPosition, FollowerPartition
from sparklog.broker.runtime.environment import Address, Environment, TaskScope, Unreachable, spawn
from sparklog.broker.runtime.identity import Identity
from sparklog.broker.runtime.memory_budget import MemoryBudget
from sparklog.broker.runtime.metadata_access import MetadataAccess
from sparklog.broker.runtime.metrics import BrokerMetrics
from sparklog.core.config.broker import BrokerConfig
from sparklog.core.errors import DataCorrupt
from sparklog.core.types import PartitionId
from sparklog.log.tail.batch_validator import CheckedBatch, check_replicated
from sparklog.log.tail.tail import EpochEnd
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request, build_request_part
from sparklog.protocol.topic_ids import topic_id_of, uuid_of


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """The session fields and the partitions of the next request."""

    session_id: int
    epoch: int
    changed: Mapping[PartitionId, FetchPosition]
    """The partitions that are new or have a new position; in a new session, all partitions."""
    forgotten: Sequence[PartitionId]


class FetchSessionHandler:
    """The session of this broker's fetches from one leader."""

    def __init__(self) -> None:
        """Begin without a session."""
        self._session_id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self._known: dict[PartitionId, FetchPosition] = {}

    def build_request(self, wanted: Mapping[PartitionId, FetchPosition]) -> SessionRequest:
        """Return the request with which the leader reads `wanted`."""
        known, self._known = self._known, dict(wanted)
        if self._epoch == FIRST_EPOCH:
            return SessionRequest(self._session_id, FIRST_EPOCH, self._known, ())
        changed = {
            where: at
            for where, at in wanted.items()
            if (before := known.get(where)) is not at and before != at
        }
        forgotten = [where for where in known if where not in wanted]
        return SessionRequest(self._session_id, self._epoch, changed, forgotten)

    def handle_response(self, session_id: int) -> None:
        """Record a response: with it the leader may have created or ended the session."""
        self._epoch = FIRST_EPOCH if session_id == NO_SESSION else next_epoch(self._epoch)
        self._session_id = session_id

    def handle_error(self) -> None:
        """Record that the response was lost or not understood (FETCHER-5)."""
        self._epoch = FIRST_EPOCH


logger = logging.getLogger(__name__)

FETCH_VERSION = 16
CHECKED_INLINE_BYTES = 256 * 1024
"""Up to this size checksums are computed on the event loop: a worker thread would take longer."""
ANSWER_GRACE_S = 5.0
"""Time beyond the request's longest wait after which the call times out."""
OUT_OF_RANGE = 1
SESSION_ERRORS = (70, 71, 106)
"""FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """The limits of a follower's fetch requests."""

    max_wait_s: float = 0.5
    partition_max_bytes: int = 1 << 20
    response_max_bytes: int = 10 << 20
    backoff_s: float = 0.2

    @classmethod
    def of(cls, settings: BrokerConfig) -> FetchLimits:
        """Return the limits that a broker's settings give."""
        return cls(
            max_wait_s=settings.whole("replica.fetch.wait.max.ms") / 1000,
            partition_max_bytes=settings.whole("replica.fetch.max.bytes"),
            response_max_bytes=settings.whole("replica.fetch.response.max.bytes"),
            backoff_s=settings.whole("replica.fetch.backoff.ms") / 1000,
        )


class Fetchers:
    """The fetch loops of one broker."""

    def __init__(
        self,
        environment: Environment,
        identity: Identity,
        metadata: MetadataAccess,
        tasks: TaskScope,
        *,
        limits: FetchLimits,
        budget: MemoryBudget,
        metrics: BrokerMetrics,
    ) -> None:
        """Fetch as the broker that `identity` names."""
        self.environment = environment
        self.identity = identity
        self.metadata = metadata
        self.limits = limits
        self.budget = budget
        self.metrics = metrics
        self._tasks = tasks
        self._loops: dict[int, LeaderLoop] = {}

    def follow(self, followed: FollowerPartition) -> None:
        """Start to fetch a partition."""
        loop = self._loops.get(followed.leader)
        if loop is None:
            loop = LeaderLoop(self, followed.leader)
            self._loops[followed.leader] = loop
            loop.add(followed)
            self._tasks.start(self._run(loop), f"fetch from {followed.leader}")
        else:
            loop.add(followed)

    def unfollow(self, followed: FollowerPartition) -> None:
        """Stop fetching a partition and retire it."""
        followed.retire()
        loop = self._loops.get(followed.leader)
        if loop is not None:
            loop.remove(followed)

    async def _run(self, loop: LeaderLoop) -> None:
        try:
            await loop.run()
        finally:
            if self._loops.get(loop.leader) is loop:
                del self._loops[loop.leader]


class LeaderLoop:
    """Fetches from one leader until nothing is followed from it."""

    def __init__(self, owner: Fetchers, leader: int) -> None:
        """Fetch from broker `leader`."""
        self.leader = leader
        self._owner = owner
        self._partitions: dict[PartitionId, FollowerPartition] = {}
        self._waiting: asyncio.Future[Any] | None = None
        self._turn = 0
        self._session = FetchSessionHandler()

    def add(self, followed: FollowerPartition) -> None:
        """Fetch a partition from now on; cancel the loop's present wait for it."""
        self._partitions[followed.where] = followed
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def remove(self, followed: FollowerPartition) -> None:
        """Stop fetching a partition."""
        if self._partitions.get(followed.where) is followed:
            del self._partitions[followed.where]

    async def run(self) -> None:
        """Fetch until no partition is left."""
        limits = self._owner.limits
        joined = True
        while self._partitions:
            if joined:
                # All partitions that join at the same moment go into one request.
                await asyncio.sleep(0)
            address = self._address()
            requested = self._due()
            if address is None or not requested or self._is_memory_full:
                pause_s = min(limits.backoff_s, self._shortest_pause_s())
                await self._interruptible(asyncio.sleep(pause_s))
                continue
            try:
                response = await self._interruptible(self._call(address, requested))
            except (Unreachable, TimeoutError) as error:
                self._session.handle_error()
                logger.info("fetch failed leader=%d %r", self.leader, error)
                await self._interruptible(asyncio.sleep(limits.backoff_s))
                continue
            joined = response is None
            if joined:
                self._session.handle_error()
                self._turn ^= 1
            elif int(response.error_code) in SESSION_ERRORS:
                self._session.handle_error()
            elif int(response.error_code):
                self._session.handle_error()
                logger.warning(
                    "fetch rejected leader=%d error=%r", self.leader, response.error_code
                )
                await self._interruptible(asyncio.sleep(limits.backoff_s))
            else:
                self._session.handle_response(response.session_id)
                await self._handle_response(response, requested)

    async def _interruptible(self, work: Any) -> Any:
        """Return the result of `work`, or None if a partition joined meanwhile."""
        task = spawn(work)
        self._waiting = task
        try:
            return await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if self._waiting is task or current is None or current.cancelling():
                raise
            return None
        finally:
            if self._waiting is task:
                self._waiting = None

    @property
    def _is_memory_full(self) -> bool:
        """Return True if more than twice the budget of this broker's own producers is used."""
        return self._owner.budget.used_bytes > 2 * self._owner.budget.limit_bytes

    def _address(self) -> Address | None:
        broker = self._owner.metadata.image.brokers.get(self.leader)
        return None if broker is None else Address(broker.host, broker.port)

    def _due(self) -> dict[PartitionId, FollowerPartition]:
        now = asyncio.get_running_loop().time()
        return {w: f for w, f in self._partitions.items() if f.live and f.paused_until <= now}

    async def _call(
        self, address: Address, requested: Mapping[PartitionId, FollowerPartition]
    ) -> Any:
        owner = self._owner
        max_wait_s = min(owner.limits.max_wait_s, self._shortest_pause_s())
        part_bytes = owner.limits.partition_max_bytes
        request = self._session.build_request(
            {where: followed.fetch_at(part_bytes) for where, followed in requested.items()}
        )
        return await owner.environment.network.call(
            address,
            _request(owner.identity, owner.limits, request, max_wait_s),
            timeout_s=max_wait_s + ANSWER_GRACE_S,
            purpose=f"replica fetch {self._turn}",
        )

    def _shortest_pause_s(self) -> float:
        """Return the time until the next paused partition is due: no long poll may last longer."""
        now = asyncio.get_running_loop().time()
        pauses = (f.paused_until - now for f in self._partitions.values() if f.paused_until > now)
        return min(pauses, default=inf)

    async def _handle_response(
        self, response: Any, requested: Mapping[PartitionId, FollowerPartition]
    ) -> None:
        serving = dict(requested)
        for topic in response.responses:
            topic_id = topic_id_of(topic.topic_id)
            for data in topic.partitions:
                where = PartitionId(topic_id, data.partition_index)
                followed = requested.get(where)
                if followed is None or not followed.live:
                    continue
                if int(data.error_code):
                    serving.pop(where, None)
                    self._handle_error(followed, int(data.error_code))
                    continue
                try:
                    await self._handle_partition(followed, data)
                except DataCorrupt as error:
                    logger.warning("fetched data rejected partition=%s %s", followed.where, error)
                    serving.pop(where, None)
                    self._pause(followed)
        # A partition that the response leaves out has no changes; its leader serves nevertheless.
        for followed in serving.values():
            followed.leader_responded()

    def _handle_error(self, followed: FollowerPartition, code: int) -> None:
        if code == OUT_OF_RANGE:
            followed.out_of_range()
        else:
            # Leader and follower have different metadata; one of them is about to catch up.
            self._pause(followed)

    async def _handle_partition(self, followed: FollowerPartition, data: Any) -> None:
        diverging = data.diverging_epoch
        if diverging.end_offset >= 0:
            followed.diverged(EpochEnd(diverging.epoch, diverging.end_offset))
            return
        records = data.records
        if records:
            batches = await self._checked(records)
            if not followed.live:
                return
            size_bytes = followed.append(batches)
            # Partitions without data come first next time, so each gets its share of the bytes.
            if self._partitions.pop(followed.where, None) is followed:
                self._partitions[followed.where] = followed
            self._owner.metrics.replicated_in(followed.topic, size_bytes)
        if data.log_start_offset >= 0:
            followed.flushed(data.log_start_offset)

    async def _checked(self, records: bytes) -> list[CheckedBatch]:
        if len(records) <= CHECKED_INLINE_BYTES:
            return list(check_replicated(records))
        return await self._owner.environment.compute(_check_all, records)

    def _pause(self, followed: FollowerPartition) -> None:
        followed.pause(asyncio.get_running_loop().time())


def _check_all(records: bytes) -> list[CheckedBatch]:
    return list(check_replicated(records))


def _request(
    identity: Identity, limits: FetchLimits, request: SessionRequest, max_wait_s: float
) -> Any:
    topics: dict[str, list[Any]] = {}
    for where, at in request.changed.items():
        topics.setdefault(where.topic_id, []).append(
            build_request_part(
                Api.FETCH,
                FETCH_VERSION,
                "FetchPartition",
                partition=where.partition,
                current_leader_epoch=at.current_leader_epoch,
                fetch_offset=at.offset,
                last_fetched_epoch=at.last_fetched_epoch,
                partition_max_bytes=at.max_bytes,
            )
        )
    forgotten: dict[str, list[int]] = {}
    for where in request.forgotten:
        forgotten.setdefault(where.topic_id, []).append(where.partition)
    state = build_request_part(
        Api.FETCH,
        FETCH_VERSION,
        "ReplicaState",
        replica_id=identity.broker_id,
        replica_epoch=identity.broker_epoch,
    )
    return build_request(
        Api.FETCH,
        FETCH_VERSION,
        replica_state=state,
        max_wait=timedelta(milliseconds=ceil(max_wait_s * 1000)),
        min_bytes=1,
        max_bytes=limits.response_max_bytes,
        session_id=request.session_id,
        session_epoch=request.epoch,
        topics=_by_topic("FetchTopic", topics),
        forgotten_topics_data=_by_topic("ForgottenTopic", forgotten),
    )


def _by_topic(structure: str, partitions: Mapping[str, Sequence[Any]]) -> tuple[Any, ...]:
    return tuple(
        build_request_part(
            Api.FETCH,
            FETCH_VERSION,
            structure,
            topic_id=uuid_of(topic_id),
            partitions=tuple(parts),
        )
        for topic_id, parts in partitions.items()
    )
