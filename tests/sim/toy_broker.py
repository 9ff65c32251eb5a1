"""The smallest broker that keeps a log: any of them may append, and the store's names decide.

It has no leader, no replicas and no memory that matters. It is here to try the simulation itself:
it passes under every fault, and each of its mutants is caught.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from sparklog.broker.runtime.request import RequestContext
from sparklog.core.errors import Unavailable
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import ResponseBuilder
from sparklog.protocol.records.header import BatchHeader, parse_header
from sparklog.store.base import PutOutcome
from sparklog.testing.sim.cluster import BrokerSide

NOT_LEADER = 6
OUT_OF_ORDER = 45
STORE_TROUBLE = 56


class ToyLog:
    """One partition, as far as one broker has read it."""

    def __init__(self, number: int) -> None:
        self.prefix = f"toy/{number}/"
        self.batches: list[tuple[BatchHeader, bytes]] = []
        self.lock = asyncio.Lock()

    @property
    def end_offset(self) -> int:
        return self.batches[-1][0].end_offset if self.batches else 0

    def key(self, offset: int) -> str:
        return f"{self.prefix}{offset:020d}"

    def add(self, data: bytes) -> None:
        self.batches.append((parse_header(data), data))

    def of_producer(self, producer_id: int) -> Iterator[BatchHeader]:
        return (header for header, _ in self.batches if header.producer_id == producer_id)


class ToyBroker:
    """A node for `SimCluster`."""

    def __init__(self, side: BrokerSide, brokers: int = 3) -> None:
        self.side = side
        self.store = side.environment.store
        self._brokers = brokers
        self._logs: dict[int, ToyLog] = {}

        self._stopped = asyncio.Event()

    async def run(self) -> None:
        await self._stopped.wait()

    async def stop(self) -> None:
        self._stopped.set()

    async def handle(self, request: Any, context: RequestContext) -> Any:
        answer = ResponseBuilder.to(request)
        match Api(request.__api_key__):
            case Api.METADATA:
                return self._metadata(request, answer)
            case Api.CREATE_TOPICS:
                result = answer.entity("CreatableTopicResult", **_CREATED)
                return answer.response(throttle_time=_NO_TIME, topics=(result,))
            case Api.INIT_PRODUCER_ID:
                producer_id = int.from_bytes(self.side.environment.entropy.random_bytes(6), "big")
                return answer.response(
                    throttle_time=_NO_TIME, error_code=0, producer_id=producer_id, producer_epoch=0
                )
            case Api.PRODUCE:
                return await self._produce(request, answer)
            case _:
                return await self._fetch(request, answer)

    def log(self, number: int) -> ToyLog:
        return self._logs.setdefault(number, ToyLog(number))

    async def catch_up(self, log: ToyLog) -> None:
        after = log.key(log.batches[-1][0].base_offset) if log.batches else ""
        for info in await self.store.list(log.prefix, after):
            log.add(await self.store.get(info.key))

    async def append(self, log: ToyLog, data: bytes) -> tuple[int, int]:
        """Return an error code and the base offset."""
        header = parse_header(data)
        while True:
            await self.catch_up(log)
            known = list(log.of_producer(header.producer_id))
            for one in known:
                if one.base_sequence == header.base_sequence:
                    return 0, one.base_offset
            expected = known[-1].last_sequence + 1 if known else 0
            if header.base_sequence > expected:
                return NOT_LEADER, -1  # one before it is on its way
            if header.base_sequence < expected:
                return OUT_OF_ORDER, -1
            base = log.end_offset
            if await self.put(log, base, data):
                log.add(_placed(data, base))
                return 0, base

    async def put(self, log: ToyLog, base: int, data: bytes) -> bool:
        outcome = await self.store.put_if_absent(log.key(base), _placed(data, base))
        return outcome is PutOutcome.CREATED

    async def _produce(self, request: Any, answer: ResponseBuilder) -> Any:
        part = request.topic_data[0].partition_data[0]
        log = self.log(part.index)
        async with log.lock:
            try:
                code, base = await self.append(log, bytes(part.records))
            except Unavailable:
                code, base = STORE_TROUBLE, -1
        told = answer.entity(
            "PartitionProduceResponse",
            index=part.index,
            error_code=code,
            base_offset=base,
            log_append_time=None,
            log_start_offset=0,
            record_errors=(),
            error_message=None,
        )
        topic = answer.entity(
            "TopicProduceResponse",
            name=request.topic_data[0].name,
            partition_responses=(told,),
        )
        return answer.response(responses=(topic,), throttle_time=_NO_TIME)

    async def _fetch(self, request: Any, answer: ResponseBuilder) -> Any:
        part = request.topics[0].partitions[0]
        log = self.log(part.partition)
        code, records = 0, b""
        async with log.lock:
            try:
                await self.catch_up(log)
            except Unavailable:
                code = STORE_TROUBLE
            found = [d for header, d in log.batches if header.end_offset > part.fetch_offset]
            records = b"".join(found[:3]) if code == 0 else b""
        if not records:
            await asyncio.sleep(0.1)
        told = answer.entity(
            "PartitionData",
            partition_index=part.partition,
            error_code=code,
            high_watermark=log.end_offset,
            last_stable_offset=log.end_offset,
            log_start_offset=0,
            aborted_transactions=None,
            preferred_read_replica=-1,
            records=records,
        )
        topic = answer.entity(
            "FetchableTopicResponse", topic=request.topics[0].topic, partitions=(told,)
        )
        return answer.response(
            throttle_time=_NO_TIME, error_code=0, session_id=0, responses=(topic,)
        )

    def _metadata(self, request: Any, answer: ResponseBuilder) -> Any:
        brokers = tuple(
            answer.entity("MetadataResponseBroker", node_id=n, host=f"b{n}", port=9092, rack=None)
            for n in range(self._brokers)
        )
        partitions = tuple(
            answer.entity(
                "MetadataResponsePartition",
                error_code=0,
                partition_index=n,
                leader_id=int(self.side.environment.entropy.random() * self._brokers),
                leader_epoch=0,
                replica_nodes=(0,),
                isr_nodes=(0,),
                offline_replicas=(),
            )
            for n in range(2)
        )
        topic = answer.entity(
            "MetadataResponseTopic",
            error_code=0,
            name=request.topics[0].name,
            is_internal=False,
            partitions=partitions,
            topic_authorized_operations=0,
        )
        return answer.response(
            throttle_time=_NO_TIME,
            brokers=brokers,
            cluster_id="toy",
            controller_id=0,
            topics=(topic,),
            cluster_authorized_operations=0,
        )


def _placed(data: bytes, base: int) -> bytes:
    return base.to_bytes(8, "big") + data[8:]


_NO_TIME = 0
_CREATED = {
    "name": "any",
    "topic_id": None,
    "error_code": 0,
    "error_message": None,
    "topic_config_error_code": 0,
    "num_partitions": 2,
    "replication_factor": 1,
    "configs": (),
}
