"""Brokers that hear others no more: who of them is taken for dead, and who waits."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.broker.cluster import ToyCluster, three


def test_a_paused_controller_is_replaced_and_fences_nobody_when_it_wakes() -> None:
    cluster = ToyCluster()

    async def story() -> None:
        started = await three(cluster)
        first = next(s for s in started if s.node.life.controller.is_active())
        others = [s for s in started if s is not first]
        incarnations = [s.node.incarnation for s in others]
        first.process.pause()
        broker_id = first.node.broker_id
        await cluster.until(lambda image: image.brokers[broker_id].fenced)
        await asyncio.sleep(30)
        first.process.resume()
        await cluster.until(lambda image: not image.brokers[broker_id].fenced)
        await asyncio.sleep(5)
        assert [s.node.incarnation for s in others] == incarnations
        assert cluster.live_ids(await cluster.image()) == [1, 2, 3]

    cluster.run(story())


@pytest.mark.parametrize("apart_s", [0.0, 0.3])
@pytest.mark.parametrize("who", ["controller", "another"])
def test_a_broker_cut_off_from_the_others_deposes_nobody(who: str, apart_s: float) -> None:
    cluster = ToyCluster()

    async def story() -> None:
        started = await three(cluster)
        is_controller = who == "controller"
        lost = next(s for s in started if s.node.life.controller.is_active() == is_controller)
        others = [s for s in started if s is not lost]
        incarnations = [s.node.incarnation for s in others]
        host = lost.node.address.host
        for other in others:
            cluster.net.cut(host, other.node.address.host)
            cluster.net.cut(other.node.address.host, host)
            await asyncio.sleep(apart_s)
        await cluster.until(lambda image: image.brokers[lost.node.broker_id].fenced)
        await asyncio.sleep(8)
        assert [s.node.incarnation for s in others] == incarnations
        image = await cluster.image()
        assert {o.node.broker_id for o in others} <= set(cluster.live_ids(image))
        cluster.net.heal()
        await cluster.until(lambda image: len(image.live_brokers()) == 3)
        assert [s.node.incarnation for s in others] == incarnations

    cluster.run(story())


def test_two_brokers_lost_without_a_word_are_fenced_in_the_end() -> None:
    cluster = ToyCluster()

    async def story() -> None:
        started = await three(cluster)
        for s in started[:2]:
            s.process.pause()
        image = await cluster.until(lambda i: cluster.live_ids(i) == [3], within_s=60)
        assert image.controller is not None
        assert image.controller.broker_id == 3

    cluster.run(story())
