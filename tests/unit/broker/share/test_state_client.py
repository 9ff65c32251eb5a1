"""States of share groups across brokers: where they are, and what a fail-over leaves of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from sparklog.broker.coordinator.share_states import ShareStateCoordinator
from sparklog.broker.share.state_client import ShareStateClient
from sparklog.coordinator.internal_topics import SHARE_STATE_TOPIC
from sparklog.coordinator.share.delivery_state import (
    DeliveryState,
    SharePartitionKey,
    ShareState,
    ShareStateUpdate,
    StateBatch,
)
from sparklog.coordinator.share.errors import FencedStateEpoch
from sparklog.core.errors import Fenced, InvalidRequest, SparklogError
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request
from sparklog.protocol.topic_ids import uuid_of
from tests.harness.handler_requests import delete_topics
from tests.harness.share_cluster import ShareCluster, finished, share_key, update_of

KEY = share_key()
UNKNOWN = ShareState(0)


def tell(story: Any, brokers: int = 3, **settings: str) -> None:
    cluster = ShareCluster(1, **settings)

    async def whole() -> None:
        await cluster.begin(brokers)
        await story(cluster)

    cluster.run(whole())


async def initialized(cluster: ShareCluster, *keys: SharePartitionKey) -> None:
    found = await cluster.at(1, lambda c: c.initialize(dict.fromkeys(keys, (1, 0))))
    assert found == dict.fromkeys(keys)


def test_every_broker_reads_and_writes_a_state() -> None:
    async def story(cluster: ShareCluster) -> None:
        await initialized(cluster, KEY)
        for broker_id in (1, 2, 3):
            done = finished(10 * broker_id, 10 * broker_id + 1)
            await cluster.write_state(broker_id, update_of(KEY, done))
        expected = ShareState(1, 0, (finished(10, 11), finished(20, 21), finished(30, 31)), 1)
        for broker_id in (1, 2, 3):
            assert await cluster.read_state(broker_id, KEY, 1) == expected
        counted = ShareStateUpdate(KEY, 1, 1, 12, (), 4)
        for broker_id in (1, 2, 3):
            await cluster.write_state(broker_id, counted)
            found = await cluster.at(broker_id, lambda c: c.summaries([KEY]))
            assert found == {KEY: ShareState(1, 12, (), 1, 4)}
        for broker_id in (1, 2, 3):
            assert await cluster.at(broker_id, lambda c: c.delete([KEY])) == {KEY: None}
            assert await cluster.read_state(broker_id, KEY, 1) == UNKNOWN

    tell(story)


def test_only_an_initialization_creates_the_topic() -> None:
    async def story(cluster: ShareCluster) -> None:
        assert await cluster.read_state(1, KEY, 1) == UNKNOWN
        assert await cluster.at(1, lambda c: c.summaries([KEY])) == {KEY: UNKNOWN}
        assert await cluster.at(1, lambda c: c.delete([KEY])) == {KEY: None}
        with pytest.raises(InvalidRequest, match="no share group has a state"):
            await cluster.write_state(1, update_of(KEY))
        assert SHARE_STATE_TOPIC not in (await cluster.image()).topics
        await initialized(cluster, KEY)
        topic = (await cluster.image()).topics[SHARE_STATE_TOPIC]
        assert topic.partitions == 2
        assert topic.configs["cleanup.policy"] == "compact"

    tell(story)


def test_errors_of_the_coordinator_reach_every_broker() -> None:
    async def story(cluster: ShareCluster) -> None:
        other = share_key("h")
        await initialized(cluster, KEY)
        await cluster.read_state(1, KEY, 5)
        impossible = StateBatch(5, 4, DeliveryState.AVAILABLE, 1)
        for broker_id in (1, 2, 3):
            found = await cluster.at(broker_id, lambda c: c.initialize({KEY: (0, 0)}))
            assert isinstance(found[KEY], FencedStateEpoch)
            for wrong, error in [
                (update_of(KEY, state_epoch=2, leader_epoch=5), FencedStateEpoch),
                (update_of(KEY, leader_epoch=4), Fenced),
                (update_of(KEY, impossible, leader_epoch=5), InvalidRequest),
                (update_of(other), InvalidRequest),
                (update_of(share_key("")), InvalidRequest),
            ]:
                with pytest.raises(error):
                    await cluster.write_state(broker_id, wrong)
            with pytest.raises(Fenced):
                await cluster.read_state(broker_id, KEY, 4)

    tell(story)


def test_a_killed_coordinator_loses_nothing_that_was_answered() -> None:
    async def story(cluster: ShareCluster) -> None:
        keys = [share_key("g", number) for number in range(8)]
        await initialized(cluster, *keys)
        victim = await cluster.coordinator_of(KEY)
        asker = victim % 3 + 1
        for step in range(30):
            for key in keys:
                await cluster.write_state(asker, update_of(key, finished(2 * step, 2 * step)))
        cluster.kill(victim)
        await cluster.write_state(asker, update_of(KEY, start=7))
        expected = tuple(finished(2 * step, 2 * step) for step in range(30))
        for key in keys[1:]:
            assert (await cluster.read_state(asker, key, 2)).batches == expected
        found = await cluster.read_state(asker, KEY, 2)
        assert found == ShareState(1, 7, expected[4:], 2)

    tell(story)


def test_writes_of_one_key_keep_their_order_and_share_appends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[ShareStateUpdate] = []
    write = ShareStateCoordinator.write

    async def noted(self: ShareStateCoordinator, update: ShareStateUpdate) -> None:
        taken.append(update)
        await write(self, update)

    monkeypatch.setattr(ShareStateCoordinator, "write", noted)

    async def story(cluster: ShareCluster) -> None:
        await initialized(cluster, KEY)
        coordinator = await cluster.coordinator_of(KEY)
        for broker_id in (coordinator, coordinator % 3 + 1):
            taken.clear()

            async def burst(client: ShareStateClient) -> None:
                states = [DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED]
                writes = [
                    update_of(KEY, StateBatch(5, 5, states[n % 2], n), start=n // 25)
                    for n in range(100)
                ]
                first = asyncio.ensure_future(client.write(writes[0]))
                await asyncio.sleep(0.001)
                await asyncio.gather(first, *map(client.write, writes[1:]))

            await cluster.at(broker_id, burst)
            assert len(taken) == 2, "the first one, and all that waited for it"
            last = StateBatch(5, 5, DeliveryState.ACKNOWLEDGED, 99)
            state = await cluster.read_state(broker_id, KEY, 1)
            assert state == ShareState(1, 3, (last,), 1)

    tell(story)


def test_writes_of_different_leaders_are_not_joined() -> None:
    async def story(cluster: ShareCluster) -> None:
        await initialized(cluster, KEY)

        async def burst(client: Any) -> list[Any]:
            outcomes = await asyncio.gather(
                client.write(update_of(KEY, finished(1, 1))),
                client.write(update_of(KEY, finished(2, 2), leader_epoch=3)),
                client.write(update_of(KEY, finished(3, 3), leader_epoch=2)),
                client.write(update_of(KEY, finished(4, 4), leader_epoch=3)),
                return_exceptions=True,
            )
            return list(outcomes)

        outcomes = await cluster.at(1, burst)
        assert [type(one) for one in outcomes] == [type(None), type(None), Fenced, type(None)]
        state = await cluster.read_state(2, KEY, 3)
        assert state.batches == (finished(1, 2), finished(4, 4))

    tell(story)


def test_many_states_of_a_group_share_requests() -> None:
    async def story(cluster: ShareCluster) -> None:
        keys = [share_key("g", number) for number in range(1_500)]
        await initialized(cluster, *keys)
        found = await cluster.at(2, lambda c: c.summaries(keys))
        assert found == dict.fromkeys(keys, ShareState(1, 0))
        assert await cluster.at(3, lambda c: c.delete(keys)) == dict.fromkeys(keys)

    tell(story)


def test_a_client_without_a_coordinator_gives_up_in_time() -> None:
    async def story(cluster: ShareCluster) -> None:
        await initialized(cluster, KEY)
        for broker_id in (2, 3):
            cluster.net.cut("b1", f"b{broker_id}")
        keys = [share_key("g", number) for number in range(8)]
        away = [key for key in keys if await cluster.coordinator_of(key) != 1]
        assert away
        began_s = asyncio.get_running_loop().time()
        started = cluster.nodes[1]
        client = started.node.current_incarnation.share_states
        with pytest.raises(SparklogError) as caught:
            await client.write(update_of(away[0]))
        assert caught.value.retriable
        assert asyncio.get_running_loop().time() - began_s < 4.0
        cluster.net.heal()

    tell(story, share_coordinator_write_timeout_ms="1000")


def test_states_of_a_deleted_topic_are_forgotten() -> None:
    async def story(cluster: ShareCluster) -> None:
        topic_id = uuid_of((await cluster.image()).topics["t"].topic_id)
        keys = [share_key("g", number, topic_id) for number in range(4)]
        await initialized(cluster, KEY, *keys)
        await cluster.ask(1, delete_topics("t"))
        await asyncio.sleep(1.0)
        found = await cluster.at(1, lambda c: c.summaries([KEY, *keys]))
        assert found == {KEY: ShareState(1, 0), **dict.fromkeys(keys, UNKNOWN)}

    tell(story)


def test_a_coordinator_of_a_state_is_found_by_its_key() -> None:
    async def story(cluster: ShareCluster) -> None:
        good = [share_key("a:b", number).coordinator_key for number in range(3)]
        bad = ["g", "g:x:0", f":{good[0].split(':')[-2]}:0", f"{good[0]}0:", good[0] + "x", ""]
        request = build_request(Api.FIND_COORDINATOR, 6, key_type=2, coordinator_keys=(*bad, *good))
        await cluster.ask(1, request)
        for key in good:
            await cluster.coordinator_of(SharePartitionKey.parse(key))
        answer = await cluster.ask(1, request)
        found = {one.key: one for one in answer.coordinators}
        assert list(found) == [*bad, *good]
        assert {found[key].error_code for key in bad} == {ErrorCode.invalid_request}
        for key in good:
            assert found[key].error_code is ErrorCode.none
            leader = await cluster.coordinator_of(SharePartitionKey.parse(key))
            assert found[key].node_id == leader

    tell(story)
