"""Registration of a broker: the cluster's id and secret."""

from __future__ import annotations

import pytest

from sparklog.broker.controller.metadata_log import MetadataLog
from sparklog.broker.controller.registration import register
from sparklog.broker.runtime.environment import Address
from sparklog.cluster.metadata.features import LEVEL, UnsupportedLevel, level_of
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import (
    SPARKLOG_VERSION,
    ClusterRecord,
    FeatureLevelRecord,
    Record,
)
from tests.harness.broker_world import World

CLUSTER_ID = "k" * 22


def earlier(image: MetadataImage) -> list[Record]:
    """Return the record of a cluster that began before clusters had secrets."""
    return [ClusterRecord(CLUSTER_ID)]


def test_registration_keeps_the_id_and_adds_a_missing_secret() -> None:
    world = World()

    async def scenario() -> None:
        log = MetadataLog(world.environment())
        await log.open()
        await log.decide(earlier)
        assert (log.image.cluster_id, log.image.cluster_secret) == (CLUSTER_ID, "")
        await register(world.environment(), log, 1, Address("h", 1), None)
        secret = log.image.cluster_secret
        assert log.image.cluster_id == CLUSTER_ID
        assert len(secret) == 32
        await register(world.environment(), log, 2, Address("h", 2), None)
        assert (log.image.cluster_id, log.image.cluster_secret) == (CLUSTER_ID, secret)
        again = MetadataLog(world.environment())
        await again.open()
        assert again.image.cluster_secret == secret, "it is in the log"

    world.run(scenario())


def test_a_broker_below_the_finalized_level_registers_nothing() -> None:
    world = World()

    async def scenario() -> None:
        log = MetadataLog(world.environment())
        await log.open()
        await register(world.environment(), log, 1, Address("h", 1), None)
        assert level_of(log.image) == LEVEL, "a new cluster begins at the newest level"
        assert log.image.brokers[1].level == LEVEL
        await log.decide(lambda _: [FeatureLevelRecord(SPARKLOG_VERSION, LEVEL + 1)])
        before = log.image
        with pytest.raises(UnsupportedLevel, match=f"finalized={LEVEL + 1} supported={LEVEL}"):
            await register(world.environment(), log, 1, Address("h", 2), None)
        assert await log.catch_up() == before

    world.run(scenario())
