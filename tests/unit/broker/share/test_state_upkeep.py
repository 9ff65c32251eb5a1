"""Compaction of `__share_group_state`: the next coordinator has each state as it was."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from sparklog.broker.coordinator.shard_loader import load
from sparklog.coordinator.internal_topics import SHARE_STATE_TOPIC
from sparklog.coordinator.share.delivery_state import SharePartitionKey, ShareState
from sparklog.log.effects import run
from sparklog.log.manifest.refresh import refresh
from sparklog.log.manifest.view import PartitionView
from tests.harness.share_cluster import ShareCluster, finished, share_key, update_of
from tests.unit.broker.replication.test_beside_jobs import Jobs

KEYS = [share_key("g", number) for number in range(6)]
WRITES = 120


def rows(cluster: ShareCluster, jobs: list[Jobs]) -> int:
    """Return the number of stored records."""
    views = [run(refresh(PartitionView(one.layout)), cluster.objects.objects) for one in jobs]
    return sum(entry.rows for view in views for entry in view.entries)


async def write_all(cluster: ShareCluster, random: Random) -> None:
    """Finish records here and there, with a start offset that moves on."""
    for step in range(WRITES):
        for key in KEYS:
            batches = [
                finished(at, at, 1 + at % 4) for at in random.sample(range(step, step + 30), 2)
            ]
            broker_id = random.choice(sorted(cluster.nodes))
            await cluster.write_state(broker_id, update_of(key, *batches, start=step))
        await asyncio.sleep(0.05)


async def states(cluster: ShareCluster, leader_epoch: int) -> dict[SharePartitionKey, ShareState]:
    broker_id = min(cluster.nodes)
    return {key: await cluster.read_state(broker_id, key, leader_epoch) for key in KEYS}


@pytest.mark.parametrize("updates", ["0", "7", "500"])
def test_a_coordinator_has_the_same_states_after_compaction(
    updates: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = ShareCluster(1, share_coordinator_snapshot_update_records_per_snapshot=updates)
    loaded: list[int] = []

    async def counted(*args: Any) -> int:
        loaded.append(await load(*args))
        return loaded[-1]

    async def story() -> None:
        await cluster.begin(3)
        assert set((await cluster.at(1, initialize)).values()) == {None}
        await write_all(cluster, Random(7))
        assert await cluster.at(1, lambda client: client.delete(KEYS[:1])) == {KEYS[0]: None}
        before = await states(cluster, 2)
        assert before[KEYS[0]] == ShareState(0)
        assert all(len(before[key].batches) > 3 for key in KEYS[1:])
        await asyncio.sleep(15)  # flush.ms
        topic = cluster.nodes[1].node.metadata.image.topics[SHARE_STATE_TOPIC]
        jobs = [Jobs(cluster, dict(topic.configs), layout) for layout in topic.layouts()]
        written = rows(cluster, jobs)
        assert written > WRITES * len(KEYS)
        for one in jobs:
            one.compact()
        kept = rows(cluster, jobs)
        assert kept <= 2 * len(KEYS) + len(jobs)
        await asyncio.sleep(11)
        monkeypatch.setattr("sparklog.broker.coordinator.shard_loader.load", counted)
        for victim in {await cluster.coordinator_of(key) for key in KEYS}:
            cluster.kill(victim)
            assert await states(cluster, 2) == before
            cluster.start(victim)
            await cluster.nodes[victim].node.wait_started()
        assert sum(loaded) > 0

    async def initialize(client: Any) -> Any:
        return await client.initialize(dict.fromkeys(KEYS, (1, 0)))

    cluster.run(story())
