"""Roots that were emptied, and what begins a log in them."""

from __future__ import annotations

import asyncio

import pytest

from sparklog.broker.controller.metadata_log import LAYOUT, MetadataLog
from sparklog.broker.controller.registration import register
from sparklog.broker.node.node import BrokerNode
from sparklog.broker.runtime.environment import Address
from sparklog.broker.runtime.identity import Identity
from sparklog.cluster.log import Log
from sparklog.cluster.metadata.new_root import check_root_is_new
from sparklog.core.config.broker import parse_broker_configs
from sparklog.core.errors import InvalidConfig, RootEmptied
from sparklog.log.effects import run
from sparklog.log.layout import PartitionLayout, WalLayout, usage_key, usage_sum_key
from sparklog.store.memory import MemoryStore
from tests.harness.broker_world import World
from tests.harness.metadata_cluster import ToyCluster, three

WAL_OBJECT = WalLayout(1, "0123456789abcdef" * 2).key(7)
SEGMENT = PartitionLayout("orders", "t" * 22, 0).key(PartitionLayout.chain_name(90))
SNAPSHOT = LAYOUT.key(LAYOUT.snapshot_name(12))
BEGINNING = LAYOUT.key(LAYOUT.chain_name(0))
LATER_OBJECTS = [WAL_OBJECT, SEGMENT, SNAPSHOT]
USAGE = [usage_key("2026-11-29", "ab" * 16, 0), usage_sum_key("2026-11-27")]


@pytest.mark.parametrize("left", LATER_OBJECTS)
def test_broker_begins_no_log_in_an_emptied_root(left: str) -> None:
    world = World()
    world.objects.objects.put(left, b"x")

    async def story() -> None:
        metadata = MetadataLog(world.environment())
        await metadata.open()
        with pytest.raises(RootEmptied, match=f"object={left}"):
            await register(world.environment(), metadata, 1, Address("h", 1), None)

    world.run(story())
    assert world.keys == [left]


@pytest.mark.parametrize("left", LATER_OBJECTS)
def test_direct_writer_creates_no_topic_in_an_emptied_root(left: str) -> None:
    store = MemoryStore("emptied")
    store.put(left, b"x")
    with pytest.raises(RootEmptied, match="no metadata log"):
        Log(store).create_topic("orders")
    assert [info.key for info in store.list("")] == [left]


@pytest.mark.parametrize("usage", USAGE)
def test_usage_report_makes_no_root_look_emptied(usage: str) -> None:
    store = MemoryStore("reported")
    store.put(usage, b"x")
    run(check_root_is_new(), store)
    Log(store).create_topic("orders")
    assert store.get(usage) == b"x"


@pytest.mark.parametrize("left", LATER_OBJECTS)
def test_usage_report_hides_no_rest_of_an_emptied_root(left: str) -> None:
    store = MemoryStore("emptied-and-reported")
    for key in (*USAGE, left):
        store.put(key, b"x")
    with pytest.raises(RootEmptied, match=f"object={left}"):
        Log(store).create_topic("orders")
    assert {info.key for info in store.list("")} == {*USAGE, left}


@pytest.mark.parametrize("begun", [BEGINNING, LAYOUT.key(LAYOUT.manifest_name(3))])
def test_log_just_begun_by_another_writer_is_no_emptied_root(begun: str) -> None:
    store = MemoryStore("begun")
    for key in (begun, WAL_OBJECT):
        store.put(key, b"x")
    run(check_root_is_new(), store)


def test_brokers_that_start_at_once_begin_one_log() -> None:
    world = World()

    async def one(broker_id: int) -> Identity:
        metadata = MetadataLog(world.environment())
        await metadata.open()
        return await register(world.environment(), metadata, broker_id, Address("h", 1), None)

    async def story() -> list[Identity]:
        return list(await asyncio.gather(*map(one, range(1, 9))))

    identities = world.run(story())
    assert [one.broker_id for one in identities if one.began_log] == [
        min(identities, key=lambda one: one.broker_epoch).broker_id
    ]


def node_of(cluster: ToyCluster, cluster_id: str) -> BrokerNode:
    config = parse_broker_configs({"node.id": "9", "sparklog.cluster.id": cluster_id})
    return BrokerNode(config, cluster.environment("b9"), Address("b9", 9092))


def test_broker_with_a_cluster_id_serves_no_other_cluster() -> None:
    cluster = ToyCluster()

    async def story() -> None:
        with pytest.raises(InvalidConfig, match="found=none"):
            await node_of(cluster, "k" * 22).start()
        assert list(cluster.objects.objects.list("")) == []
        cluster_id = (await three(cluster))[0].node.cluster_id
        with pytest.raises(InvalidConfig, match=f"found={cluster_id}"):
            await node_of(cluster, "k" * 22).start()
        node = node_of(cluster, cluster_id)
        await node.start()
        assert 9 in (await cluster.image()).brokers
        await node.stop(drain=False)

    cluster.run(story())
