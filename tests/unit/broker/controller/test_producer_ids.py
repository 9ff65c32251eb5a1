"""Producer ids: any registered broker gives them, and clients can ask again after a failure."""

from __future__ import annotations

import pytest

from sparklog.broker.controller.metadata_log import MetadataLog
from sparklog.broker.controller.producer_ids import BLOCK, ProducerIds
from sparklog.cluster.metadata.records import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from sparklog.core.errors import CoordinatorLoading
from sparklog.testing.sim.store import StoreFaults
from tests.harness.broker_world import World


async def opened(world: World, *broker_ids: int) -> MetadataLog:
    """Return the log of a cluster with these brokers."""
    log = MetadataLog(world.environment())
    await log.open()
    await log.decide(
        lambda image: [
            RegisterBrokerRecord(one, f"{one:032x}", f"broker-{one}", 9092) for one in broker_ids
        ]
    )
    return log


def test_fenced_broker_gives_ids_that_no_other_broker_gives() -> None:
    world = World()

    async def story() -> None:
        log = await opened(world, 1, 2)
        change = BrokerRegistrationChangeRecord(1, log.image.brokers[1].epoch, fenced=True)
        await log.decide(lambda image: [change])
        assert log.image.brokers[1].fenced
        fenced, other = ProducerIds(log, 1), ProducerIds(log, 2)
        taken = [await ids.take() for _ in range(BLOCK + 1) for ids in (fenced, other)]
        assert len(set(taken)) == 2 * (BLOCK + 1)
        assert log.image.next_producer_id == 4 * BLOCK

    world.run(story())


def test_unregistered_broker_asks_clients_to_try_again() -> None:
    world = World()

    async def story() -> None:
        ids = ProducerIds(await opened(world, 2), 1)
        with pytest.raises(CoordinatorLoading, match=r"not registered now.*broker=1"):
            await ids.take()

    world.run(story())


def test_failing_store_asks_clients_to_try_again() -> None:
    world = World()

    async def story() -> None:
        ids = ProducerIds(await opened(world, 1), 1)
        world.objects.faults = StoreFaults(refused=1.0)
        with pytest.raises(CoordinatorLoading, match="no producer ids could be reserved"):
            await ids.take()
        world.objects.faults = StoreFaults()
        assert await ids.take() == 0

    world.run(story())
