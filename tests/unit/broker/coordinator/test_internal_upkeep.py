"""The jobs on `__consumer_offsets`: a coordinator that loads afterwards knows what it knew before.

Whole brokers write the topic: joins and leaves of members, repeated commits, deleted groups, and
commits of transactions with either outcome. The jobs run beside them.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from sparklog.broker.coordinator.shard_loader import load
from sparklog.coordinator.internal_topics import GROUPS_TOPIC, partition_for
from sparklog.core.config.topic import parse_topic_configs
from sparklog.log.effects import run
from sparklog.log.manifest.refresh import refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.log.repair.verify import verify
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request_part
from tests.harness.live_cluster import SETTINGS, LiveCluster, TxClient
from tests.unit.broker.handlers.test_classic_groups import GroupClient
from tests.unit.broker.replication.test_beside_jobs import Jobs

QUICK = {"group_initial_rebalance_delay_ms": "100"}
GROUPS_PARTITIONS = int(SETTINGS["offsets_topic_num_partitions"])
NAMES = {
    "members": "has members, and commits often",
    "empty": "had members, which left",
    "simple": "has offsets and never had members",
    "deleted": "was deleted with its offsets",
    "transactional": "has offsets of transactions",
}


async def commit_in_transaction(tx: TxClient, group: str, offset: int) -> None:
    """Commit an offset of partition 0 as part of the producer's transaction."""
    part = build_request_part(
        Api.TXN_OFFSET_COMMIT, 5, "TxnOffsetCommitRequestPartition", partition_index=0,
        committed_offset=offset, committed_leader_epoch=-1, committed_metadata="",
    )  # fmt: skip
    topic = build_request_part(
        Api.TXN_OFFSET_COMMIT, 5, "TxnOffsetCommitRequestTopic", name="t", partitions=(part,)
    )
    client = GroupClient(tx.cluster, group)
    answer = await client.ask(
        Api.TXN_OFFSET_COMMIT,
        5,
        lambda a: a.topics[0].partitions[0].error_code,
        transactional_id=tx.name,
        group_id=group,
        producer_id=tx.identity.producer_id,
        producer_epoch=tx.identity.producer_epoch,
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        topics=(topic,),
    )
    assert answer.topics[0].partitions[0].error_code is ErrorCode.none


async def known(cluster: LiveCluster) -> dict[str, Any]:
    """Return what the coordinators report of every group."""
    found: dict[str, Any] = {}
    for name in NAMES:
        client = GroupClient(cluster, name)
        group = await client.described()
        members = [(m.member_id, m.member_assignment) for m in group.members]
        state = group.group_state, group.protocol_data, group.error_code, members
        found[name] = (*state, await client.committed(0, 1))
    return found


def check_whole(cluster: LiveCluster) -> int:
    """Verify every partition, beside running brokers; return the snapshots of producers met."""
    hints = 0
    with ThreadPoolExecutor(2) as pool:
        for topic in next(iter(cluster.nodes.values())).node.metadata.image.topics.values():
            for layout in topic.layouts():
                store = cluster.objects.objects
                found = verify(store, layout, pool, deep=True, now_ms=1 << 42)
                assert found.damages == ()
                hints += len(list(store.list(layout.snapshot_prefix)))
    return hints


def rows(cluster: LiveCluster, jobs: Jobs) -> int:
    view = run(refresh(PartitionView(jobs.layout)), cluster.objects.objects)
    return sum(entry.rows for entry in view.entries)


async def joined(client: GroupClient) -> tuple[str, int]:
    """Be the only member of a group, for longer than the story lasts."""
    patience: dict[str, Any] = {"session_timeout": timedelta(minutes=10)}
    told = await client.join(**patience)
    if told.error_code is ErrorCode.member_id_required:
        told = await client.join(told.member_id, **patience)
    member = told.member_id, int(told.generation_id)
    synced = await client.sync(*member, b"mine")
    assert synced.error_code is ErrorCode.none
    return member


async def told(cluster: LiveCluster) -> tuple[str, int]:
    """Have groups do what groups do, again and again; return the member of `members`."""
    clients = {name: GroupClient(cluster, name) for name in NAMES}
    mine = await joined(clients["members"])
    gone = await joined(clients["empty"])
    tx = await TxClient(cluster).init()
    for turn in range(40):
        await clients["members"].commit((0, turn), (1, 2 * turn), member=mine)
        await clients["simple"].commit((turn % 2, turn))
        await clients["deleted"].commit((0, turn))
        await commit_in_transaction(tx, "transactional", turn)
        await tx.send(f"{turn}")
        await tx.end(commit=turn % 4 != 3)
        await asyncio.sleep(0.3)  # a flush of `t` for each, so that leaders store producers
        if turn % 10 == 0:
            await tx.settled()
            await clients["members"].heartbeat(*mine)
    await clients["empty"].commit((1, 77), member=gone)
    await clients["empty"].leave(gone[0])
    assert await clients["deleted"].delete() is ErrorCode.none
    assert await clients["simple"].delete_offset(1) == (ErrorCode.none, ErrorCode.none)
    await tx.settled()
    return mine


@pytest.mark.parametrize("is_killed", [True, False])
def test_coordinator_has_the_same_state_after_compaction(
    is_killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = LiveCluster(1, **QUICK)
    loaded: list[int] = []

    async def counted(*args: Any) -> int:
        loaded.append(await load(*args))
        return loaded[-1]

    async def move() -> None:
        """Have another broker coordinate: by a restart in good order, or by a sudden end."""
        victim = await cluster.leader(GROUPS_TOPIC, partition_for("members", GROUPS_PARTITIONS))
        if is_killed:
            cluster.kill(victim)
        else:
            await cluster.leave(victim)

    async def story() -> None:
        await cluster.begin(3, partitions=2, flush_ms="100")
        mine = await told(cluster)
        before = await known(cluster)
        assert before["members"][0] == "Stable"
        assert before["empty"][0] == "Empty"
        assert [offset for offset, _ in before["transactional"][-1]] == [38, -1]
        assert [offset for offset, _ in before["simple"][-1]] == [38, -1]
        assert before["deleted"][0] == "Dead"
        await asyncio.sleep(15)  # flush.ms
        assert check_whole(cluster) > 0
        topic = cluster.nodes[1].node.metadata.image.topics[GROUPS_TOPIC]
        assert "compact" in parse_topic_configs(topic.configs).words("cleanup.policy")
        configs = {**topic.configs, "delete.retention.ms": "1000", "file.delete.delay.ms": "1000"}
        jobs = [Jobs(cluster, configs, layout) for layout in topic.layouts()]
        written = sum(rows(cluster, one) for one in jobs)
        for one in jobs:
            one.compact()
        kept = sum(rows(cluster, one) for one in jobs)
        assert kept < written / 5
        await asyncio.sleep(11)
        # Members go on with their sessions; now that tombstones are old enough, they go, too.
        await GroupClient(cluster, "members").commit((1, 78), member=mine)
        await asyncio.sleep(11)
        for one in jobs:
            one.compact()
        assert sum(rows(cluster, one) for one in jobs) < kept
        await asyncio.sleep(11)
        assert sum(one.retain() for one in jobs) > 0
        offsets = before["members"][-1]
        offsets[1] = (78, offsets[1][1])
        assert await known(cluster) == before
        loaded.clear()
        monkeypatch.setattr("sparklog.broker.coordinator.shard_loader.load", counted)
        await move()
        assert await known(cluster) == before
        assert 0 < sum(loaded) <= kept + 1
        check_whole(cluster)

    cluster.run(story())
