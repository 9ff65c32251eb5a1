"""A broker that is asked to end leaves its partitions to direct writers, even amid its start."""

from __future__ import annotations

import asyncio

from kio.schema.errors import ErrorCode

from sparklog.broker.node.incarnation import HAND_BACK_MAX_S
from sparklog.log.effects import run
from sparklog.log.manifest.refresh import refresh
from sparklog.log.manifest.view import PartitionView
from tests.harness.handler_requests import produce
from tests.harness.live_cluster import LiveCluster
from tests.harness.replica_cluster import batch

PARTITIONS = 3


async def begin(cluster: LiveCluster) -> None:
    """Start a broker alone, and have it hold a record of each partition that is not flushed."""
    await cluster.begin(1, partitions=PARTITIONS, flush_ms="60000")
    for partition in range(PARTITIONS):
        await cluster.leader("t", partition)
        answer = await cluster.ask(1, produce("t", (partition, batch(b"kept"))))
        assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none


async def everything_is_handed_back(cluster: LiveCluster) -> None:
    image = await cluster.image()
    assert image.brokers == {}
    for layout in image.topics["t"].layouts():
        view = run(refresh(PartitionView(layout)), cluster.objects.objects)
        assert not view.is_led, layout
        assert sum(entry.rows for entry in view.entries) == 1


def test_broker_stopped_while_it_starts_recovers_and_hands_back() -> None:
    cluster = LiveCluster()

    async def story() -> None:
        await begin(cluster)
        cluster.kill(1)
        again = cluster.start(1)
        async with asyncio.timeout(20):
            await again.node._alive.wait()
        await cluster.leave(1)
        await everything_is_handed_back(cluster)

    cluster.run(story())


def test_broken_broker_restarts_to_stop_in_good_order() -> None:
    cluster = LiveCluster()

    async def story() -> None:
        await begin(cluster)
        broken = cluster.nodes[1].node
        broken.current_incarnation._end(RuntimeError("broken"))
        await asyncio.sleep(0.01)
        await cluster.leave(1)
        await everything_is_handed_back(cluster)

    cluster.run(story())


def test_last_broker_leaves_behind_unrecoverable_records() -> None:
    """Its write-ahead log keeps those records for recovery after the log is repaired."""
    cluster = LiveCluster()

    async def story() -> None:
        await begin(cluster)
        await asyncio.sleep(1)
        (damaged, *sound) = (await cluster.image()).topics["t"].layouts()
        wal = (await cluster.image()).brokers[1].wal
        cluster.kill(1)
        view = run(refresh(PartitionView(damaged)), cluster.objects.objects)
        name = damaged.key(view.next_name)
        cluster.objects.objects.put_if_absent(name, b"no segment")
        again = cluster.start(1)
        async with asyncio.timeout(20):
            await again.node._alive.wait()
        began_s = cluster.loop.time()
        await cluster.leave(1)
        assert HAND_BACK_MAX_S <= cluster.loop.time() - began_s < HAND_BACK_MAX_S + 5
        assert (await cluster.image()).brokers == {}
        assert cluster.objects.objects.list(wal.folder)
        for layout in sound:
            assert not run(refresh(PartitionView(layout)), cluster.objects.objects).is_led
        cluster.objects.objects.delete(name)
        cluster.start(1)
        assert await cluster.read(partition=0) == ["kept"]

    cluster.run(story())
