"""Whole brokers in a virtual world, and a transactional client that speaks Kafka's messages."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import Any

import pyarrow as pa
from kio.schema.errors import ErrorCode

from sparklog.broker.node.node import BrokerNode
from sparklog.broker.node.replicas import Replicas
from sparklog.broker.runtime.environment import Address, Unreachable
from sparklog.coordinator.effects import ProducerIdentity
from sparklog.coordinator.internal_topics import TRANSACTIONS_TOPIC, partition_for
from sparklog.core.config.broker import parse_broker_configs
from sparklog.core.types import PartitionId
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request, build_request_part
from sparklog.protocol.records.columns import TIMESTAMP_TYPE
from sparklog.protocol.records.control import end_transaction, read_control
from sparklog.protocol.records.memory_records import split_batches
from sparklog.protocol.records.record_batch import BatchSettings, decode, encode
from sparklog.testing.sim.network import SimNetwork
from sparklog.testing.virtual_loop import Process
from tests.harness.handler_requests import create_topics, produce
from tests.harness.metadata_cluster import Started, ToyCluster
from tests.harness.replica_cluster import batch

SETTINGS = {
    "broker_session_timeout_ms": "1000",
    "broker_heartbeat_interval_ms": "250",
    "wal_linger_ms": "10",
    "transaction_state_log_num_partitions": "2",
    "share_coordinator_state_topic_num_partitions": "2",
    "offsets_topic_num_partitions": "2",
}
RETRIED = {
    ErrorCode.concurrent_transactions,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.leader_not_available,
    ErrorCode.network_exception,
    ErrorCode.not_coordinator,
    ErrorCode.not_enough_replicas,
    ErrorCode.not_leader_or_follower,
    ErrorCode.request_timed_out,
}
PATIENCE_S = 120.0
SOON = timedelta(seconds=10)


class LiveCluster(ToyCluster):
    """Nodes with real replicas, which a client asks over the simulated network."""

    def __init__(self, seed: int = 1, **settings: str) -> None:
        super().__init__(seed, **{**SETTINGS, **settings})
        self.nodes: dict[int, Started] = {}
        self.client = SimNetwork(self.net, "client")

    def start(self, broker_id: int, host: str = "", rack: str = "") -> Started:
        host = host or f"b{broker_id}"
        config = parse_broker_configs({"node.id": str(broker_id), **self.settings})
        process, address = Process(self.loop, host), Address(host, 9092)
        node = BrokerNode(config, self.environment(host), address, make_replicas=Replicas)
        self.nodes[broker_id] = Started(process, node, [])
        return self.serve(address, self.nodes[broker_id])

    async def begin(self, brokers: int = 1, partitions: int = 1, **configs: str) -> None:
        """Start brokers, and make topic `t`."""
        for broker_id in range(1, brokers + 1):
            self.start(broker_id)
        await self.until(lambda image: len(image.live_brokers()) == brokers)
        named: dict[str, str | None] = {k.replace("_", "."): v for k, v in configs.items()}
        request = create_topics("t", partitions=partitions, configs=named)
        assert (await self.ask(1, request)).topics[0].error_code is ErrorCode.none

    async def ask(self, broker_id: int, request: Any, timeout_s: float = 20.0) -> Any:
        return await self.client.call(Address(f"b{broker_id}", 9092), request, timeout_s=timeout_s)

    async def leader(self, topic: str, partition: int) -> int:
        """Return the leader of a partition, once it has one."""
        image = await self.until(
            lambda image: (
                topic in image.topics
                and image.topics[topic].partition_states[partition].leader in self.nodes
            ),
            within_s=PATIENCE_S,
        )
        return image.topics[topic].partition_states[partition].leader

    async def coordinator(self, transactional_id: str) -> int:
        """Return who coordinates a transactional id, as clients find out."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for broker_id in list(self.nodes):
                    request = build_request(
                        Api.FIND_COORDINATOR, 3, key=transactional_id, key_type=1
                    )
                    try:
                        found = await self.ask(broker_id, request)
                    except (Unreachable, TimeoutError):
                        continue
                    if found.error_code is ErrorCode.none and int(found.node_id) in self.nodes:
                        return int(found.node_id)
                await asyncio.sleep(0.05)

    def kill(self, broker_id: int) -> None:
        self.nodes.pop(broker_id).process.kill()

    async def leave(self, broker_id: int) -> None:
        """Have a broker hand over everything and end."""
        started = self.nodes[broker_id]
        leaving = started.process.spawn(started.node.stop())
        await asyncio.sleep(0.01)
        del self.nodes[broker_id]
        await leaving
        started.process.kill()

    def led(self, broker_id: int, partition: int = 0, topic: str = "t") -> Any:
        """Return a led partition."""
        node = self.nodes[broker_id].node
        topic_id = node.metadata.image.topics[topic].topic_id
        replicas: Any = node.replicas
        return replicas.roles.replicas[PartitionId(topic_id, partition)].led

    async def fetched(self, offset: int = 0, partition: int = 0, *, committed: bool = True) -> Any:
        """Return what a partition's leader answers to a fetch."""
        topic = build_request_part(
            Api.FETCH,
            12,
            "FetchTopic",
            topic="t",
            partitions=(
                build_request_part(
                    Api.FETCH,
                    12,
                    "FetchPartition",
                    partition=partition,
                    fetch_offset=offset,
                    partition_max_bytes=1 << 20,
                ),
            ),
        )
        request = build_request(
            Api.FETCH,
            12,
            max_wait=timedelta(0),
            min_bytes=0,
            isolation_level=int(committed),
            topics=(topic,),
            forgotten_topics_data=(),
        )
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    answer = await self.ask(await self.leader("t", partition), request)
                except (Unreachable, TimeoutError):
                    continue
                (found,) = answer.responses[0].partitions
                if found.error_code not in RETRIED:
                    assert found.error_code is ErrorCode.none, found
                    return found
                await asyncio.sleep(0.05)

    async def read(self, partition: int = 0, *, committed: bool = True) -> list[str]:
        """Return the values that a consumer sees of a partition, from its start to its end."""
        values: list[str] = []
        offset = 0
        while True:
            found = await self.fetched(offset, partition, committed=committed)
            aborted = [
                (int(a.producer_id), int(a.first_offset)) for a in found.aborted_transactions or ()
            ]
            before = offset
            for one in split_batches(found.records or b""):
                offset = max(offset, one.header.end_offset)
                values += visible(one.data, aborted)
            if offset == before:
                return values

    async def send(self, value: bytes, acks: int = -1) -> None:
        """Have a record of partition 0 acknowledged, however often it takes."""
        request = produce("t", (0, batch(value)), acks=acks)
        while True:
            try:
                answer = await self.ask(await self.leader("t", 0), request)
            except (Unreachable, TimeoutError):
                continue
            if answer.responses[0].partition_responses[0].error_code is ErrorCode.none:
                return
            await asyncio.sleep(0.01)

    async def end_offset(self, *, committed: bool, partition: int = 0) -> int:
        """Return what ListOffsets says is the end."""
        request = build_request(
            Api.LIST_OFFSETS,
            7,
            replica_id=-1,
            isolation_level=int(committed),
            topics=(
                build_request_part(
                    Api.LIST_OFFSETS,
                    7,
                    "ListOffsetsTopic",
                    name="t",
                    partitions=(
                        build_request_part(
                            Api.LIST_OFFSETS,
                            7,
                            "ListOffsetsPartition",
                            partition_index=partition,
                            timestamp=-1,
                        ),
                    ),
                ),
            ),
        )
        answer = await self.ask(await self.leader("t", partition), request)
        (found,) = answer.topics[0].partitions
        assert found.error_code is ErrorCode.none
        return int(found.offset)


def visible(data: Any, aborted: list[tuple[int, int]]) -> list[str]:
    """Return the values of a batch that a consumer shows, as Kafka's clients decide it."""
    batch = decode(data)
    header = batch.header
    begun = [f for pid, f in aborted if pid == header.producer_id and f <= header.base_offset]
    if header.is_control:
        for record in read_control(batch):
            marker = end_transaction(record)
            # A marker that was sent again finds none.
            if marker is not None and not marker.is_commit and begun:
                aborted.remove((header.producer_id, min(begun)))
        return []
    if header.is_transactional and begun:
        return []
    return [value.decode() for value in batch.records.column("value").to_pylist()]


class Failed(Exception):
    """A request was refused for good."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class TxClient:
    """A transactional producer. Version 2 leaves partitions to the brokers (KIP-890)."""

    def __init__(
        self, cluster: LiveCluster, name: str = "tx", version: int = 2, timeout_ms: int = 60_000
    ) -> None:
        self.cluster, self.name, self.version = cluster, name, version
        self.timeout = timedelta(milliseconds=timeout_ms)
        self.identity = ProducerIdentity(-1, -1)
        self.sequences: dict[int, int] = {}
        self.added: set[int] = set()

    async def asked(self, request: Any, code_of: Any = lambda answer: answer.error_code) -> Any:
        """Ask the coordinator until it is done or refused for good."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    who = await self.cluster.coordinator(self.name)
                    answer = await self.cluster.ask(who, request)
                except (Unreachable, TimeoutError):
                    continue
                code = code_of(answer)
                if code is ErrorCode.none:
                    return answer
                if code not in RETRIED:
                    raise Failed(code)
                await asyncio.sleep(0.05)

    async def init(self, *, goes_on: bool = False) -> TxClient:
        """Get an identity; `goes_on` keeps the one it has, with the next epoch."""
        identity = self.identity if goes_on else ProducerIdentity(-1, -1)
        answer = await self.asked(
            build_request(
                Api.INIT_PRODUCER_ID,
                4,
                transactional_id=self.name,
                transaction_timeout=self.timeout,
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
            )
        )
        self.identity = ProducerIdentity(int(answer.producer_id), int(answer.producer_epoch))
        self.sequences, self.added = {}, set()
        return self

    async def add(self, *partitions: int, topic: str = "t") -> None:
        """Add partitions, as version 1 does."""
        request = build_request(
            Api.ADD_PARTITIONS_TO_TXN,
            3,
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.producer_epoch,
            v3_and_below_topics=(
                build_request_part(
                    Api.ADD_PARTITIONS_TO_TXN,
                    3,
                    "AddPartitionsToTxnTopic",
                    name=topic,
                    partitions=partitions,
                ),
            ),
        )

        def code_of(answer: Any) -> ErrorCode:
            (result,) = answer.results_by_topic_v3_and_below
            codes = [ErrorCode(r.partition_error_code) for r in result.results_by_partition]
            return codes[0]

        await self.asked(request, code_of)
        self.added.update(partitions)

    async def send(self, *values: str, partition: int = 0) -> int:
        """Produce a batch; return its base offset."""
        if self.version < 2 and partition not in self.added:
            await self.add(partition)
        sequence = self.sequences.get(partition, 0)
        data = self.batch(values, sequence)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    code, offset = await self.produce(data, partition)
                except (Unreachable, TimeoutError):
                    continue
                if code is ErrorCode.none:
                    break
                if code not in RETRIED:
                    raise Failed(code)
                await asyncio.sleep(0.05)
        self.sequences[partition] = sequence + len(values)
        return offset

    def batch(self, values: Iterable[str], sequence: int) -> bytes:
        rows = [value.encode() for value in values]
        records = pa.RecordBatch.from_arrays(
            [
                pa.array([1_000] * len(rows), pa.int64()).view(TIMESTAMP_TYPE),
                pa.array([None] * len(rows), pa.binary()),
                pa.array(rows, pa.binary()),
            ],
            names=["timestamp", "key", "value"],
        )
        settings = BatchSettings(
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        return bytes(encode(records, settings, base_offset=0))

    async def produce(self, data: bytes, partition: int = 0) -> tuple[ErrorCode, int]:
        """Send one batch once."""
        version = 12 if self.version >= 2 else 9
        request = build_request(
            Api.PRODUCE,
            version,
            transactional_id=self.name,
            acks=-1,
            timeout=SOON,
            topic_data=(
                build_request_part(
                    Api.PRODUCE,
                    version,
                    "TopicProduceData",
                    name="t",
                    partition_data=(
                        build_request_part(
                            Api.PRODUCE,
                            version,
                            "PartitionProduceData",
                            index=partition,
                            records=data,
                        ),
                    ),
                ),
            ),
        )
        leader = await self.cluster.leader("t", partition)
        answer = await self.cluster.ask(leader, request)
        (found,) = answer.responses[0].partition_responses
        return ErrorCode(found.error_code), int(found.base_offset)

    async def end(self, *, commit: bool) -> None:
        """Commit or abort."""
        answer = await self.asked(
            build_request(
                Api.END_TXN,
                5 if self.version >= 2 else 3,
                transactional_id=self.name,
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.producer_epoch,
                committed=commit,
            )
        )
        if self.version >= 2:
            self.identity = ProducerIdentity(int(answer.producer_id), int(answer.producer_epoch))
            self.sequences = {}
        self.added = set()

    async def settled(self, states: Collection[str] = ("CompleteCommit", "CompleteAbort")) -> Any:
        """Return what is known of the transactional id, once it is in one of these states."""
        request = build_request(Api.DESCRIBE_TRANSACTIONS, 0, transactional_ids=(self.name,))
        async with asyncio.timeout(PATIENCE_S):
            while True:
                answer = await self.asked(request, lambda a: a.transaction_states[0].error_code)
                (found,) = answer.transaction_states
                if found.transaction_state in states:
                    return found
                await asyncio.sleep(0.05)


def coordinating_partition(name: str) -> int:
    """Return the partition that keeps a transactional id, in these clusters."""
    return partition_for(name, int(SETTINGS["transaction_state_log_num_partitions"]))


__all__ = ["TRANSACTIONS_TOPIC", "Failed", "LiveCluster", "TxClient", "coordinating_partition"]
