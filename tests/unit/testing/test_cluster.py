"""The test kit's cluster: faults act as they do on processes, and nothing of it is left behind."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

import sparklog
from sparklog.core.errors import InvalidConfig
from sparklog.store.memory import shared_memory_store
from sparklog.store.root_url import parse_root_url
from sparklog.testing.async_cluster import AsyncSparklogCluster
from sparklog.testing.cluster import SparklogCluster
from tests.harness.waiting import eventually

QUICK = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "250"}


@pytest.fixture(scope="module")
def shared() -> Iterator[SparklogCluster]:
    with SparklogCluster(3, config=QUICK) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: SparklogCluster) -> Iterator[SparklogCluster]:
    """The brokers of this file, all alive and without faults before and after."""
    yield shared
    shared.heal()
    shared.wait_until_stable()


def values(cluster: SparklogCluster, topic: str, count: int) -> set[bytes | None]:
    return {record.value for record in cluster.consume(topic, count)}


def outcome_within_1_s(cluster: SparklogCluster, topic: str) -> str:
    """Return the name of the error that a producer gets for a record of partition 0."""
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "message.timeout.ms": 1000}
    producer = Producer(settings)
    names: list[str] = []

    def note(error: KafkaError | None, _: Message) -> None:
        names.append("acknowledged" if error is None else error.name())

    producer.produce(topic, b"late", partition=0, on_delivery=note)
    producer.flush(20)
    return names[0]


def test_killed_leader_is_replaced_and_starts_again_at_its_address(
    cluster: SparklogCluster,
) -> None:
    topic = cluster.topic("killed", partitions=3)
    cluster.produce(topic, [b"%d" % n for n in range(30)])
    victim = cluster.leader(topic)
    address = cluster.address(victim)
    cluster.kill(victim)
    with pytest.raises(ValueError, match="not alive"):
        cluster.kill(victim)
    assert cluster.leader(topic) != victim
    cluster.produce(topic, [b"%d" % n for n in range(30, 60)])
    cluster.start(victim)
    with pytest.raises(ValueError, match="is alive"):
        cluster.start(victim)
    cluster.wait_until_stable()
    assert cluster.address(victim) == address
    records = cluster.consume(topic, 60)
    assert sorted(int(record.value or b"") for record in records) == list(range(60))
    keys = [(record.topic_partition, record.offset) for record in records]
    assert keys == sorted(set(keys))


def test_paused_leader_is_deposed_and_comes_back_when_resumed(cluster: SparklogCluster) -> None:
    topic = cluster.topic("paused")
    victim = cluster.leader(topic)
    cluster.pause(victim)
    assert cluster.leader(topic) != victim
    cluster.produce(topic, [b"meanwhile"])
    cluster.resume(victim)
    cluster.wait_until_stable()
    assert values(cluster, topic, 1) == {b"meanwhile"}


def test_cut_clients_get_no_answer_until_the_link_is_mended(cluster: SparklogCluster) -> None:
    topic = cluster.topic("cut")
    victim = cluster.leader(topic)
    cluster.cut_clients(victim)
    assert outcome_within_1_s(cluster, topic) == "_MSG_TIMED_OUT"
    assert cluster.leader(topic) == victim, "other brokers reach it"
    cluster.heal()
    assert outcome_within_1_s(cluster, topic) == "acknowledged"


def test_cut_follower_leaves_the_replicas_in_sync_until_heal(cluster: SparklogCluster) -> None:
    topic = cluster.topic("apart")
    leader = cluster.leader(topic)
    follower = next(one for one in cluster.broker_ids if one != leader)
    cluster.cut(leader, follower)

    def in_sync() -> tuple[int, ...]:
        with sparklog.open_log(cluster.root) as log:
            return log.topics()[topic].partition_states[0].isr

    eventually(lambda: len(in_sync()) < 3, "one of the two is out")
    cluster.produce(topic, [b"x"])
    cluster.heal()
    cluster.wait_until_stable()
    assert set(in_sync()) == {1, 2, 3}


def test_faults_of_the_store_reach_as_many_operations_as_asked(cluster: SparklogCluster) -> None:
    topic = cluster.topic("stored")
    before = len(cluster.store.injected)
    cluster.store.fail("put", prefix="wal/", times=2)
    cluster.produce(topic, [b"1"])
    assert [one.operation for one in cluster.store.injected[before:]] == ["put", "put"]
    cluster.store.lose_replies("put", prefix="wal/", times=1)
    cluster.produce(topic, [b"2"])
    with cluster.store.delay(1.2, "put", prefix="wal/"):
        assert outcome_within_1_s(cluster, topic) == "_MSG_TIMED_OUT"
    assert {b"1", b"2"} <= values(cluster, topic, 2)
    with pytest.raises(ValueError, match="operations are delete, get, head, list, put"):
        cluster.store.fail("puts")


def test_missing_records_fail_with_those_that_are_there(cluster: SparklogCluster) -> None:
    topic = cluster.topic("few")
    cluster.produce(topic, [b"alone"])
    with pytest.raises(AssertionError, match=r"few has 1 of 2 records: \[b'alone'\]"):
        cluster.consume(topic, 2, timeout_s=0.5)
    assert cluster.consume(cluster.topic("none")) == []


def test_async_form_awaits_the_same_cluster(cluster: SparklogCluster) -> None:
    async def story() -> None:
        both = AsyncSparklogCluster.around(cluster)
        assert both.bootstrap_servers == cluster.bootstrap_servers
        topic = await both.topic("awaited", 2, config={"retention.ms": "1000000"})
        victim = await both.leader(topic, 1)
        await both.restart(victim)
        await both.pause(victim)
        await both.heal()
        await both.cut(1, 2)
        await both.cut_clients(1)
        await both.heal()
        await both.wait_until_stable()
        await both.produce(topic, [b"x"], key=b"k")
        (record,) = await both.consume(topic, 1)
        assert (record.key, record.value) == (b"k", b"x")

    asyncio.run(story())


def test_ended_cluster_leaves_nothing_in_the_process() -> None:
    was = sys.getswitchinterval(), gc.get_threshold(), gc.get_freeze_count()
    threads = set(threading.enumerate())
    with SparklogCluster() as cluster:
        cluster.produce(cluster.topic("t"), [b"x"])
        store = shared_memory_store(parse_root_url(cluster.root).path)
        assert list(store.list(""))
    assert (sys.getswitchinterval(), gc.get_threshold(), gc.get_freeze_count()) == was
    assert list(shared_memory_store(parse_root_url(cluster.root).path).list("")) == []
    eventually(lambda: set(threading.enumerate()) <= threads, "its threads have ended", 30)


def test_given_root_is_kept_and_served_again(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    config = {"listeners": "PLAINTEXT://127.0.0.1:0"}
    with SparklogCluster(root=root, config=config) as first:
        first.produce(first.topic("t"), [b"kept"])
        with pytest.raises(ValueError, match="listeners cannot be cut"):
            first.cut_clients(1)
        with pytest.raises(ValueError, match="no such broker"):
            first.kill(2)
    with SparklogCluster(root=root) as second:
        assert values(second, "t", 1) == {b"kept"}


def test_wrong_setting_is_an_error_of_the_start() -> None:
    with (
        pytest.raises(InvalidConfig, match="nonsense"),
        SparklogCluster(config={"nonsense": "1"}),
    ):
        pass
    with pytest.raises(ValueError, match="one broker or more"):
        SparklogCluster(0)
