"""Brokers go on while jobs compact, merge, move the log start and delete beneath them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from sparklog.broker.fetch.read import FetchedPartition
from sparklog.broker.produce.request import ProducedPartition
from sparklog.broker.replication.offset_lookup import EARLIEST
from sparklog.core.config.topic import parse_topic_configs
from sparklog.core.errors import OffsetOutOfRange
from sparklog.core.types import PartitionId
from sparklog.log.cleanup.compaction_policy import CompactionPolicy
from sparklog.log.cleanup.compaction_shares import ShareOutcome
from sparklog.log.cleanup.compactor import Compactor
from sparklog.log.cleanup.garbage import GarbageRules, find_garbage, list_folder
from sparklog.log.cleanup.retention import RetentionPolicy, raise_to_retained
from sparklog.log.cleanup.rewriter import Encoding
from sparklog.log.effects import run
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest.change import change
from sparklog.log.manifest.refresh import refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.protocol.records.columns import TIMESTAMP_TYPE
from sparklog.protocol.records.record_batch import BatchSettings, encode
from sparklog.testing.virtual_world import VirtualClock
from tests.harness.broker_world import World
from tests.harness.live_cluster import (
    TRANSACTIONS_TOPIC,
    LiveCluster,
    TxClient,
    coordinating_partition,
)
from tests.harness.replica_cluster import TOPIC, TOPIC_ID, ReplicaCluster

LAYOUT = PartitionLayout(TOPIC, TOPIC_ID, 0)


def keyed(pairs: list[tuple[bytes, bytes | None]], sequence: int = -1) -> bytes:
    """Return a batch of keys and values; with a sequence number, of idempotent producer 7."""
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array([1_000] * len(pairs), pa.int64()).view(TIMESTAMP_TYPE),
            pa.array([key for key, _ in pairs], pa.binary()),
            pa.array([value for _, value in pairs], pa.binary()),
        ],
        names=["timestamp", "key", "value"],
    )
    settings = BatchSettings()
    if sequence >= 0:
        settings = BatchSettings(producer_id=7, producer_epoch=0, base_sequence=sequence)
    return bytes(encode(rows, settings, base_offset=0))


class Jobs:
    """The jobs, run on the world's store at one moment each."""

    def __init__(
        self,
        world: World | LiveCluster,
        configs: Mapping[str, str],
        layout: PartitionLayout = LAYOUT,
    ) -> None:
        self.store = world.objects.objects
        self.clock = VirtualClock(world.loop)
        self.configs = parse_topic_configs(dict(configs))
        self.layout = layout

    def compact(self) -> tuple[ShareOutcome | None, ShareOutcome | None]:
        with ThreadPoolExecutor(2) as pool:
            work = Compactor(
                self.store, self.layout, CompactionPolicy.of(self.configs), Encoding("lz4"), pool,
                clock=self.clock,
            )  # fmt: skip
            return work.compact(force=True), work.merge()

    def retain(self) -> int:
        """Move the log start and collect; return how many objects were deleted."""
        policy = RetentionPolicy.of(self.configs)
        listed = run(list_folder(self.layout), self.store)
        plan = raise_to_retained(policy, self.clock.now_ms())
        view = run(change(PartitionView(self.layout), plan, "d" * 32), self.store)
        rules = GarbageRules(self.clock.now_ms(), policy.file_delete_delay_ms)
        doomed = run(find_garbage(view, listed, rules), self.store).doomed
        for info in doomed:
            self.store.delete(info.key)
        return len(doomed)


async def led(world: World, configs: Mapping[str, str]) -> tuple[ReplicaCluster, PartitionId]:
    cluster = ReplicaCluster(world)
    await cluster.start(1)
    await cluster.start(2)
    (where,) = cluster.create([1, 2], 1, configs)
    return cluster, where


@pytest.mark.parametrize("killed", [False, True])
def test_a_compacted_topic_is_served_while_it_is_compacted(killed: bool) -> None:
    world = World()
    configs = {"cleanup.policy": "compact", "flush.ms": "1000", "delete.retention.ms": "1000000"}

    async def story() -> None:
        cluster, where = await led(world, configs)
        jobs = Jobs(world, configs)
        newest: dict[bytes, tuple[int, bytes | None]] = {}
        deleted = sequence = base = 0
        pairs: list[tuple[bytes, bytes | None]] = []
        for turn in range(24):
            pairs = [
                (b"k%d" % ((turn + n) % 5), b"v%d-%d" % (turn, n) if n else None) for n in range(3)
            ]
            base = await cluster.produced(where, keyed(pairs, sequence))
            newest |= {key: (base + n, value) for n, (key, value) in enumerate(pairs)}
            await asyncio.sleep(2)
            if turn % 6 == 5:
                compacted, _ = jobs.compact()
                assert compacted is not None
                assert not compacted.overtaken
                deleted += jobs.retain()
                await asyncio.sleep(11)
                found = await cluster.consumed(where)
                assert found == dict(newest.values())
                await asyncio.sleep(61)
            sequence += 3
        assert deleted > 0
        if killed:
            cluster.kill(1)
            await cluster.fence(1)
            cluster.elect(where)
        # A batch sent twice is recognised, by a new leader too.
        again = await cluster.produce(where, keyed(pairs, sequence - 3))
        assert isinstance(again, ProducedPartition)
        assert again.base_offset == base
        base = await cluster.produced(where, keyed([(b"k0", b"last")], sequence))
        newest[b"k0"] = (base, b"last")
        await asyncio.sleep(2)
        jobs.compact()
        await asyncio.sleep(61)
        jobs.retain()
        found = await cluster.consumed(where)
        assert found == dict(newest.values())
        stored = [e for e in cluster.stored(where).entries if e.rows]
        assert sum(e.rows for e in stored) == 5

    world.run(story())


def test_leaders_notice_that_retention_moved_the_log_start() -> None:
    world = World()
    configs = {"retention.bytes": "0", "flush.ms": "1000", "file.delete.delay.ms": "1000"}

    async def story() -> None:
        cluster, where = await led(world, configs)
        jobs = Jobs(world, configs)
        await cluster.produced(where, keyed([(b"a", b"1"), (b"b", b"2")]))
        await asyncio.sleep(2)
        kept = await cluster.produced(where, keyed([(b"c", b"3")]))
        assert jobs.retain() == 0
        await asyncio.sleep(11)
        jobs.retain()
        await asyncio.sleep(11)
        assert jobs.retain() > 0
        leader: Any = cluster.brokers[1].replicas
        earliest = await leader.offset_lookup.list_offset(where, EARLIEST, 0, -1)
        assert earliest.offset == cluster.stored(where).log_start_offset == kept + 1
        assert isinstance(await cluster.fetch(where, 0), OffsetOutOfRange)
        base = await cluster.produced(where, keyed([(b"d", b"4")]))
        assert await cluster.consumed_from(where, earliest.offset) == {base: b"4"}
        fetched = await cluster.fetch(where, earliest.offset)
        assert isinstance(fetched, FetchedPartition)
        assert fetched.log_start_offset == earliest.offset

    world.run(story())


def test_compacted_state_loads_and_merged_transactions_are_read() -> None:
    cluster = LiveCluster()

    async def story() -> None:
        await cluster.begin(2, flush_ms="100", retention_ms="-1")
        tx = await TxClient(cluster).init()
        for turn in range(8):
            await tx.send(f"a{turn}")
            await tx.end(commit=turn % 3 != 0)
            await tx.settled()
            await asyncio.sleep(0.5)
        lasting = await TxClient(cluster, "lasting", timeout_ms=600_000).init()
        first = await lasting.send("pending")
        await tx.send("behind")
        await tx.end(commit=True)
        await tx.settled()
        await asyncio.sleep(15)
        image = cluster.nodes[1].node.metadata.image
        kept = [f"a{turn}" for turn in range(8) if turn % 3]
        (plain,) = image.topics["t"].layouts()
        merged = Jobs(cluster, image.topics["t"].configs, plain).compact()[1]
        assert merged is not None
        assert merged.objects_after < merged.objects_before
        state = image.topics[TRANSACTIONS_TOPIC]
        assert "compact" in parse_topic_configs(state.configs).words("cleanup.policy")
        for layout in state.layouts():
            Jobs(cluster, state.configs, layout).compact()
        layout = state.layouts()[coordinating_partition("tx")]
        stored = run(refresh(PartitionView(layout)), cluster.objects.objects)
        left = sum(e.rows for e in stored.manifest.entries)
        assert 0 < left <= 2, "one record for each transactional id"
        await asyncio.sleep(61)
        for one, configs in ((plain, image.topics["t"].configs), (layout, state.configs)):
            assert Jobs(cluster, configs, one).retain() > 0
        assert await cluster.read() == kept
        assert (await cluster.fetched(first)).last_stable_offset == first
        cluster.kill(await cluster.leader(TRANSACTIONS_TOPIC, coordinating_partition("tx")))
        epoch = tx.identity.producer_epoch
        again = await tx.init(goes_on=True)
        assert again.identity.producer_epoch > epoch
        await again.send("after")
        await again.end(commit=True)
        await lasting.end(commit=False)
        await again.settled()
        await lasting.settled()
        assert await cluster.read() == [*kept, "behind", "after"]

    cluster.run(story())
