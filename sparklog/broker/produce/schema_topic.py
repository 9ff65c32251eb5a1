"""SchemaTopic: the schemas of the registry, read from the topic `_schemas` while records need them.

A broker reads as a consumer of committed records does: from itself if it leads the topic, else from
the leader. Nothing is read before a producer writes to a topic with schema validation.

  SCHEMA-TOPIC-1: a schema is unknown only to a look that began after the record arrived. So what a
      registry has acknowledged before is accepted
  SCHEMA-TOPIC-2: one look is under way at a time, and all requests that wait share it
  SCHEMA-TOPIC-3: a schema that is deleted permanently is refused a minute later at the latest

Offsets count records, times are seconds on the event loop's clock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from math import inf
from typing import Any, Final

import pyarrow.compute as pc

from sparklog.broker.fetch.fetch import FetchService
from sparklog.broker.fetch.read import CONSUMER, READ_COMMITTED, FetchSpec
from sparklog.broker.partition.follower import FetchPosition
from sparklog.broker.runtime.environment import Address, Environment, TaskScope, Unreachable
from sparklog.broker.runtime.metadata_access import MetadataAccess
from sparklog.cluster.metadata.image import Topic
from sparklog.core.errors import DataCorrupt, LeaderNotAvailable, SparklogError, Unavailable
from sparklog.core.topic_names import SCHEMAS_TOPIC
from sparklog.core.types import PartitionId
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request, build_request_part
from sparklog.protocol.records.control import without_aborted
from sparklog.protocol.records.decoder import decode
from sparklog.protocol.records.memory_records import split_batches
from sparklog.protocol.records.schema_check import NO_SCHEMAS, KnownSchemas
from sparklog.protocol.topic_ids import uuid_of
from sparklog.registry.schema_index import SchemaIndex

logger = logging.getLogger(__name__)

FETCH_VERSION: Final = 16
FETCH_BYTES: Final = 1 << 20
FETCH_TIMEOUT_S: Final = 5.0
EMPTY_FETCHES_MAX: Final = 50
"""Fetches without records before the last stable offset: history that is being flushed."""
EMPTY_PAUSE_S: Final = 0.02
FRESH_S: Final = 60.0
PURPOSE: Final = "schemas"

_Fetched = tuple[bytes, Sequence[tuple[int, int]], int]
"""Batches, the aborted transactions among them, and the last stable offset."""


class SchemaTopic:
    """See the module. The event loop's only."""

    def __init__(
        self,
        environment: Environment,
        metadata: MetadataAccess,
        fetch_service: FetchService,
        tasks: TaskScope,
        broker_id: int,
    ) -> None:
        """Know nothing yet; `tasks` runs the looks."""
        self.known: KnownSchemas = NO_SCHEMAS
        """As of the last look."""
        self._environment = environment
        self._metadata = metadata
        self._fetch_service = fetch_service
        self._tasks = tasks
        self._broker_id = broker_id
        self._index = SchemaIndex()
        self._topic_id = ""
        self._end = 0
        """The offset up to which the topic was read."""
        self._looked_s = -inf
        self._looking: asyncio.Future[SparklogError | None] | None = None

    @property
    def is_old(self) -> bool:
        """Return True if the last look was long ago (SCHEMA-TOPIC-3)."""
        return asyncio.get_running_loop().time() - self._looked_s > FRESH_S

    async def look(self) -> None:
        """Return after a look that began after this call (SCHEMA-TOPIC-1).

        Raises:
            SparklogError: the topic cannot be read now.
        """
        asked_s = asyncio.get_running_loop().time()
        while self._looked_s < asked_s:
            if self._looking is None:
                self._looking = asyncio.get_running_loop().create_future()
                self._tasks.start(self._run(self._looking), PURPOSE)
            error = await asyncio.shield(self._looking)
            if error is not None:
                raise Unavailable(
                    "the schemas of the registry cannot be read now; send the records again. "
                    f"topic={SCHEMAS_TOPIC} reason={error}"
                )

    async def _run(self, done: asyncio.Future[SparklogError | None]) -> None:
        began_s = asyncio.get_running_loop().time()
        error: SparklogError | None = Unavailable("the broker ends")
        try:
            await self._read()
            self._looked_s, error = began_s, None
        except (Unreachable, TimeoutError) as trouble:
            error = Unavailable(f"the leader does not answer: {trouble!r}")
        except SparklogError as trouble:
            error = trouble
        finally:
            self._looking = None
            if not done.done():
                done.set_result(error)

    async def _read(self) -> None:
        """Read up to the last stable offset. Raises SparklogError, Unreachable, TimeoutError."""
        topic = self._metadata.image.topics.get(SCHEMAS_TOPIC)
        if topic is None:
            topic = (await self._metadata.catch_up()).topics.get(SCHEMAS_TOPIC)
        topic_id = "" if topic is None else topic.topic_id
        if topic_id != self._topic_id:
            self._index, self._end, self._topic_id = SchemaIndex(), 0, topic_id
            self.known = NO_SCHEMAS
        empty = 0
        while topic is not None and empty < EMPTY_FETCHES_MAX:
            records, aborted, stable_end = await self._fetch(topic)
            if records:
                read = self._environment.compute(
                    _followed, self._index, records, aborted, self._end
                )
                self._end, self.known = await read
            if self._end >= stable_end:
                return
            if not records:
                empty += 1
                await asyncio.sleep(EMPTY_PAUSE_S)
        if topic is not None:
            raise Unavailable(f"no broker hands out the records. offset={self._end}")

    async def _fetch(self, topic: Topic) -> _Fetched:
        where = PartitionId(topic.topic_id, 0)
        leader = topic.partition_states[0].leader
        if leader == self._broker_id:
            found = (await self._fetch_service.fetch(_spec(where, self._end)))[where]
            if isinstance(found, SparklogError):
                raise found
            return b"".join(found.batches), found.aborted or (), found.last_stable_offset
        peer = self._metadata.image.brokers.get(leader)
        if peer is None:
            raise LeaderNotAvailable(f"nobody leads the partition now. partition={where}")
        response = await self._environment.network.call(
            Address(peer.host, peer.port),
            _request(where, self._end),
            timeout_s=FETCH_TIMEOUT_S,
            purpose=PURPOSE,
        )
        parts = [part for one in response.responses for part in one.partitions]
        code = int(response.error_code) or next((int(part.error_code) for part in parts), -1)
        if code:
            await self._metadata.catch_up()
            raise Unavailable(f"the leader refused a fetch. partition={where} error={code}")
        (part,) = parts
        aborted = [(a.producer_id, a.first_offset) for a in part.aborted_transactions or ()]
        return bytes(part.records or b""), aborted, part.last_stable_offset


def _followed(
    index: SchemaIndex, records: bytes, aborted: Sequence[tuple[int, int]], base_offset: int
) -> tuple[int, KnownSchemas]:
    """Apply fetched records; return the offset behind them and the schemas that are known now.

    Raises:
        DataCorrupt: the records are damaged.
    """
    batches = list(split_batches(records, allow_cut_tail=True))
    if not batches:
        raise DataCorrupt(f"a fetch returned no whole batch. bytes={len(records)}")
    for batch in without_aborted(batches, aborted):
        rows = decode(batch.data).records
        if batch.header.base_offset < base_offset:
            rows = rows.filter(pc.greater_equal(rows.column("offset"), base_offset))
        keys, values = (rows.column(name).to_pylist() for name in ("key", "value"))
        index.apply(zip(keys, values, strict=True))
    return batches[-1].header.end_offset, index.known()


def _spec(where: PartitionId, offset: int) -> FetchSpec:
    return FetchSpec(
        replica_id=CONSUMER,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        isolation=READ_COMMITTED,
        partitions={where: FetchPosition(offset, FETCH_BYTES)},
    )


def _request(where: PartitionId, offset: int) -> Any:
    api, version = Api.FETCH, FETCH_VERSION
    part = build_request_part(
        api, version, "FetchPartition",
        partition=where.partition, current_leader_epoch=-1, fetch_offset=offset,
        last_fetched_epoch=-1, partition_max_bytes=FETCH_BYTES,
    )  # fmt: skip
    topic = build_request_part(
        api, version, "FetchTopic", topic_id=uuid_of(where.topic_id), partitions=(part,)
    )
    return build_request(
        api, version,
        max_wait=timedelta(0), min_bytes=1, max_bytes=FETCH_BYTES, isolation_level=READ_COMMITTED,
        topics=(topic,), forgotten_topics_data=(),
    )  # fmt: skip
