"""A member of a share group that speaks Kafka's messages, in a virtual world."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from sparklog.broker.runtime.environment import Address, Unreachable
from sparklog.coordinator.share.delivery_state import SharePartitionKey
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request, build_request_part
from sparklog.protocol.records.memory_records import split_batches
from sparklog.protocol.records.record_batch import decode
from sparklog.protocol.topic_ids import uuid_of
from tests.harness.live_cluster import PATIENCE_S, RETRIED, LiveCluster

Acked = tuple[int, int, int]
"""First and last offset, and the type of an acknowledgement."""
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
SESSION_LOST = {ErrorCode.share_session_not_found, ErrorCode.invalid_share_session_epoch}


SETTINGS = {
    "share_coordinator_state_topic_num_partitions": "2",
    "group_share_min_heartbeat_interval_ms": "100",
    "group_share_heartbeat_interval_ms": "100",
}


def share_cluster(seed: int = 1) -> LiveCluster:
    """Return a cluster whose members of share groups send heartbeats often."""
    return LiveCluster(seed, **SETTINGS)


@dataclass
class Delivered:
    """One record that a member was given."""

    offset: int
    value: bytes
    count: int


@dataclass
class ShareMember:
    """One member; it reads partition 0 of `topic`."""

    cluster: LiveCluster
    group: str
    name: str
    topic: str = "t"
    member_epoch: int = 0
    session_epoch: int = 0
    leader: int = -1
    assigned: list[int] = field(default_factory=list)

    async def heartbeat(self, epoch: int | None = None) -> Any:
        request = build_request(
            Api.SHARE_GROUP_HEARTBEAT,
            1,
            group_id=self.group,
            member_id=self.name,
            member_epoch=self.member_epoch if epoch is None else epoch,
            rack_id=None,
            subscribed_topic_names=(self.topic,),
        )
        async with asyncio.timeout(PATIENCE_S):
            while True:
                coordinator = await self._coordinator()
                try:
                    answer = await self.cluster.ask(coordinator, request)
                except (Unreachable, TimeoutError):
                    continue
                if answer.error_code not in RETRIED:
                    break
                await asyncio.sleep(0.05)
        assert answer.error_code is ErrorCode.none, answer
        self.member_epoch = answer.member_epoch
        if answer.assignment is not None:
            parts = [p for t in answer.assignment.topic_partitions for p in t.partitions]
            self.assigned = [int(part) for part in parts]
        return answer

    async def join(self) -> None:
        """Join, and return once partition 0 is assigned."""
        await self.heartbeat(0)
        async with asyncio.timeout(PATIENCE_S):
            while 0 not in self.assigned:
                await asyncio.sleep(0.1)
                await self.heartbeat()

    async def fetch(
        self,
        acknowledged: Iterable[Acked] = (),
        *,
        records: int = 500,
        wait_ms: int = 0,
        strict: bool = True,
        renew: bool = False,
    ) -> list[Delivered]:
        """Acknowledge, and return the records that the member gets."""
        part = await self._part(
            Api.SHARE_FETCH, tuple(acknowledged), wait_ms, records, strict, renew
        )
        assert part is None or part.error_code is ErrorCode.none, part
        if part is None:
            return []
        assert part.acknowledge_error_code == 0, part
        values: dict[int, bytes] = {}
        for batch in split_batches(part.records or b""):
            rows = decode(batch.data).records
            values |= dict(
                zip(
                    rows.column("offset").to_pylist(), rows.column("value").to_pylist(), strict=True
                )
            )
        return [
            Delivered(offset, values[offset], int(one.delivery_count))
            for one in part.acquired_records
            for offset in range(one.first_offset, one.last_offset + 1)
            if offset in values
        ]

    async def acknowledge(self, *acknowledged: Acked, renew: bool = False) -> ErrorCode:
        """Acknowledge, and return the code of the partition, or that the session was lost."""
        part = await self._part(Api.SHARE_ACKNOWLEDGE, acknowledged, 0, 0, strict=True, renew=renew)
        return ErrorCode.share_session_not_found if part is None else ErrorCode(part.error_code)

    async def close_session(self) -> None:
        self.session_epoch = -1
        await self._part(Api.SHARE_FETCH, (), 0, 0, strict=True, renew=False)
        self.session_epoch = 0

    async def _ask(self, broker_id: int, request: Any) -> Any:
        """Ask on a connection of the member's own: others may wait on theirs."""
        address = Address(f"b{broker_id}", 9092)
        client = self.cluster.client
        return await client.call(address, request, timeout_s=PATIENCE_S, purpose=self.name)

    async def _part(
        self,
        api: Api,
        acknowledged: tuple[Acked, ...],
        wait_ms: int,
        records: int,
        strict: bool,
        renew: bool,
    ) -> Any:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                leader = await self.cluster.leader(self.topic, 0)
                if leader != self.leader:
                    self.leader, self.session_epoch = leader, 0
                if self.session_epoch == 0 and api is Api.SHARE_FETCH:
                    acknowledged = ()
                request = self._request(api, acknowledged, wait_ms, records, strict, renew)
                try:
                    answer = await self._ask(leader, request)
                except (Unreachable, TimeoutError):
                    self.session_epoch = 0
                    continue
                if answer.error_code in SESSION_LOST:
                    self.session_epoch = 0
                    if api is Api.SHARE_ACKNOWLEDGE:
                        return None
                    continue
                assert answer.error_code is ErrorCode.none, answer
                if self.session_epoch >= 0:
                    self.session_epoch += 1
                parts = [p for t in answer.responses for p in t.partitions]
                if parts and parts[0].error_code in RETRIED and api is Api.SHARE_FETCH:
                    await asyncio.sleep(0.05)
                    continue
                return parts[0] if parts else None

    def _request(
        self,
        api: Api,
        acknowledged: tuple[Acked, ...],
        wait_ms: int,
        records: int,
        strict: bool,
        renew: bool,
    ) -> Any:
        version = 2
        batches = tuple(
            build_request_part(
                api,
                version,
                "AcknowledgementBatch",
                first_offset=first,
                last_offset=last,
                acknowledge_types=(kind,),
            )
            for first, last, kind in acknowledged
        )
        kind = "Fetch" if api is Api.SHARE_FETCH else "Acknowledge"
        part = build_request_part(
            api,
            version,
            f"{kind}Partition",
            partition_index=0,
            acknowledgement_batches=batches,
        )
        topic = build_request_part(
            api, version, f"{kind}Topic", topic_id=self._topic_id(), partitions=(part,)
        )
        same = {
            "group_id": self.group,
            "member_id": self.name,
            "share_session_epoch": self.session_epoch,
            "is_renew_ack": renew,
            "topics": (topic,),
        }
        if api is Api.SHARE_ACKNOWLEDGE:
            return build_request(api, version, **same)
        return build_request(
            api,
            version,
            **same,
            max_wait=timedelta(milliseconds=wait_ms),
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=records,
            batch_size=records,
            share_acquire_mode=int(strict),
            forgotten_topics_data=(),
        )

    def share_key(self) -> SharePartitionKey:
        return SharePartitionKey(self.group, self._topic_id(), 0)

    def _topic_id(self) -> UUID:
        node = next(iter(self.cluster.nodes.values())).node
        return uuid_of(node.metadata.image.topics[self.topic].topic_id)

    async def _coordinator(self) -> int:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for broker_id in list(self.cluster.nodes):
                    request = build_request(Api.FIND_COORDINATOR, 3, key=self.group, key_type=0)
                    try:
                        found = await self.cluster.ask(broker_id, request)
                    except (Unreachable, TimeoutError):
                        continue
                    if (
                        found.error_code is ErrorCode.none
                        and int(found.node_id) in self.cluster.nodes
                    ):
                        return int(found.node_id)
                await asyncio.sleep(0.05)


async def set_group(cluster: LiveCluster, group: str, **settings: str) -> None:
    """Set settings of a group, with dots for underscores."""
    api = Api.INCREMENTAL_ALTER_CONFIGS
    configs = tuple(
        build_request_part(
            api,
            1,
            "AlterableConfig",
            name=name.replace("_", "."),
            config_operation=0,
            value=value,
        )
        for name, value in settings.items()
    )
    resource = build_request_part(
        api, 1, "AlterConfigsResource", resource_type=32, resource_name=group, configs=configs
    )
    request = build_request(api, 1, resources=(resource,), validate_only=False)
    answer = await cluster.ask(next(iter(cluster.nodes)), request)
    assert answer.responses[0].error_code is ErrorCode.none, answer
