"""Members of a share group while brokers die and come back: coordinators of group and of states.

Members send heartbeats as clients do: they find the coordinator again, repeat what had no answer,
and join anew where it fences them. At rest the members have all partitions between them, the loads
are even, and each partition has its state.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from sparklog.broker.runtime.environment import Unreachable
from sparklog.coordinator.share.delivery_state import SharePartitionKey
from sparklog.core.errors import SparklogError
from sparklog.protocol.api_keys import Api
from sparklog.protocol.topic_ids import uuid_of
from tests.harness.live_cluster import RETRIED
from tests.harness.plain_requests import plain_request
from tests.harness.share_cluster import ShareCluster

PARTITIONS = 6
BROKERS = 3
GROUP = "g"
PATIENCE_S = 120
FENCED = {ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id, ErrorCode.group_id_not_found}


@dataclass
class SharingMember:
    """A member of the group: the epoch and the partitions that it knows."""

    cluster: ShareCluster
    member_id: str
    epoch: int = 0
    parts: frozenset[int] = frozenset()
    interval_s: float = 0.1
    fenced: int = 0
    is_full: bool = True

    async def beat(self) -> None:
        """Send a heartbeat to the coordinator, if one answers."""
        names = ["t"] if self.is_full or self.epoch == 0 else None
        request = plain_request(
            Api.SHARE_GROUP_HEARTBEAT, 1, group_id=GROUP, member_id=self.member_id,
            member_epoch=self.epoch, subscribed_topic_names=names,
        )  # fmt: skip
        answer = await asked(self.cluster, request)
        self.is_full = answer is None
        if answer is None:
            return
        if answer.error_code in FENCED:
            self.epoch, self.parts, self.fenced = 0, frozenset(), self.fenced + 1
            return
        assert answer.error_code is ErrorCode.none, answer
        self.epoch = int(answer.member_epoch)
        self.interval_s = answer.heartbeat_interval.total_seconds()
        if answer.assignment is not None:
            topics = answer.assignment.topic_partitions
            self.parts = frozenset(number for topic in topics for number in topic.partitions)

    async def run(self) -> None:
        """Send heartbeats, until the task is cancelled."""
        while True:
            await self.beat()
            await asyncio.sleep(self.interval_s)


async def asked(cluster: ShareCluster, request: Any) -> Any:
    """Return the answer of the group's coordinator; None where no broker has one now."""
    for broker_id in sorted(cluster.nodes):
        find = plain_request(Api.FIND_COORDINATOR, 6, coordinator_keys=[GROUP])
        try:
            (found,) = (await cluster.ask(broker_id, find, 2.0)).coordinators
            if found.error_code is not ErrorCode.none or int(found.node_id) not in cluster.nodes:
                continue
            answer = await cluster.ask(int(found.node_id), request, 2.0)
        except (Unreachable, TimeoutError):
            continue
        return None if answer.error_code in RETRIED else answer
    return None


async def states_of(cluster: ShareCluster) -> set[SharePartitionKey]:
    """Return the partitions that have a state, as the group's coordinator knows them."""
    for started in cluster.nodes.values():
        if not started.node.has_started:
            continue
        try:
            return set(await started.node.groups.share_partitions(GROUP))
        except SparklogError:
            continue
    return set()


@pytest.mark.parametrize("seed", range(4))
def test_members_have_all_partitions_after_a_storm(seed: int) -> None:
    cluster, draw = ShareCluster(seed), Random(seed)

    async def story() -> None:
        await cluster.begin(BROKERS, PARTITIONS)
        members = [SharingMember(cluster, f"m{number}") for number in range(3)]
        tasks = [asyncio.create_task(member.run()) for member in members]
        for _ in range(6):
            await asyncio.sleep(draw.choice([0.05, 0.5, 2.0]))
            victim = draw.choice(sorted(cluster.nodes))
            if draw.random() < 0.6:
                cluster.kill(victim)
            else:
                await cluster.leave(victim)
            await asyncio.sleep(draw.choice([0.05, 3.0]))
            cluster.start(victim)
        await cluster.until(lambda image: len(image.live_brokers()) == BROKERS)
        topic = cluster.nodes[1].node.metadata.image.topics["t"]
        wanted = {
            SharePartitionKey(GROUP, uuid_of(topic.topic_id), number)
            for number in range(PARTITIONS)
        }
        for _ in range(PATIENCE_S):
            if is_at_rest(members) and await states_of(cluster) == wanted:
                break
            await asyncio.sleep(1)  # members learn of a change with their next heartbeats
        assert is_at_rest(members)
        assert await states_of(cluster) == wanted
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert not any(member.fenced for member in members), "an epoch outlives the coordinator"

    cluster.run(story())


def is_at_rest(members: list[SharingMember]) -> bool:
    """Return True if the members have one epoch, and even shares of all partitions."""
    counts = sorted(len(member.parts) for member in members)
    together = frozenset().union(*(member.parts for member in members))
    epochs = {member.epoch for member in members}
    return len(epochs) == 1 and counts == [2, 2, 2] and len(together) == PARTITIONS
