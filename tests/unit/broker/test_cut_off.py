"""Brokers that lose each other: the controller fences some, and some wait."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import permutations

import pytest

from sparklog.broker.runtime.environment import Environment
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.core.entropy import SeededEntropy
from sparklog.core.errors import Fenced
from sparklog.store.base import Data, PutOutcome
from sparklog.testing.sim.store import SimStore
from tests.harness.metadata_cluster import Started, ToyCluster, three

Links = dict[tuple[int, int], str]
"""The fault of each connection from one broker to another: "refuse" or "cut"."""
PAIRS = tuple(permutations((1, 2, 3), 2))
LINKS: list[Links] = [
    dict.fromkeys(PAIRS, "refuse"),
    dict.fromkeys(PAIRS, "cut"),
    {(1, 2): "refuse", (1, 3): "refuse"},
    {(2, 1): "refuse", (3, 1): "refuse"},
    {(1, 2): "refuse", (2, 1): "refuse"},
    {(1, 2): "refuse", (2, 3): "cut", (3, 1): "refuse"},
    {(1, 3): "refuse", (2, 3): "cut"},
    {(1, 2): "refuse", (2, 3): "cut", (3, 2): "refuse"},
    {(2, 1): "refuse", (2, 3): "refuse", (3, 1): "cut"},
]
"""The last three are those that were the hardest to get right; all 729 pass."""


def drawn(seed: int) -> Links:
    entropy = SeededEntropy(seed)
    kinds = {pair: int(entropy.random() * 3) for pair in PAIRS}
    return {pair: ("refuse", "cut")[kind - 1] for pair, kind in kinds.items() if kind}


def break_links(cluster: ToyCluster, started: list[Started], links: Links) -> None:
    hosts = {s.node.broker_id: s.node.address.host for s in started}
    for (one, other), what in links.items():
        act = cluster.net.refuse if what == "refuse" else cluster.net.cut
        act(hosts[one], hosts[other])


@pytest.mark.parametrize("links", [*LINKS, *map(drawn, range(16))], ids=str)
@pytest.mark.parametrize("count", [2, 3])
def test_brokers_settle_with_broken_links_and_recover_in_a_second(links: Links, count: int) -> None:
    cluster = ToyCluster()
    all_ids = list(range(1, count + 1))

    async def story() -> None:
        started = [cluster.start(i) for i in all_ids]
        await cluster.until(lambda image: cluster.live_ids(image) == all_ids)
        await asyncio.sleep(1.5)
        here = {pair: what for pair, what in links.items() if max(pair) <= count}
        break_links(cluster, started, here)
        await asyncio.sleep(60)
        settled = await cluster.image()
        assert settled.live_brokers()
        await asyncio.sleep(60)
        image = await cluster.image()
        assert image.live_brokers() == settled.live_brokers()
        assert image.controller == settled.controller
        lives = [len(s.lives) for s in started]
        assert max(lives) <= 2, lives
        cluster.net.heal()
        at_s = cluster.loop.time()
        await cluster.until(lambda image: cluster.live_ids(image) == all_ids)
        assert cluster.loop.time() < at_s + 1.0
        await asyncio.sleep(20)
        assert cluster.live_ids(await cluster.image()) == all_ids
        for s, before in zip(started, lives, strict=True):
            was_out = s.node.broker_id not in cluster.live_ids(settled)
            assert len(s.lives) == before + was_out

    cluster.run(story())


def controller_of(image: MetadataImage) -> int:
    assert image.controller is not None
    return image.controller.broker_id


class RacingStore(SimStore):
    """Has others append only after the first broker sealed a log, and that one only later."""

    def __init__(self, race: SealRace, host: str) -> None:
        super().__init__(race.objects, host)
        self.race = race
        self.is_sealer = host == "b1"

    async def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        race, of_wal = self.race, key.startswith("wal/")
        if race.begun and not of_wal and (race.sealed or not self.is_sealer):
            await (race.go_on if self.is_sealer else race.has_sealed).wait()
        outcome = await super().put_if_absent(key, data)
        if of_wal and self.is_sealer and not key.startswith("wal/1-"):
            race.sealed.add(int(key.removeprefix("wal/").partition("-")[0]))
            race.has_sealed.set()
        return outcome


class SealRace(ToyCluster):
    """A cluster whose first broker is held up between the seal and the fence of others."""

    def __init__(self, seed: int = 1) -> None:
        self.begun = False
        self.sealed: set[int] = set()
        """The brokers whose logs the first one has sealed."""
        self.has_sealed, self.go_on = asyncio.Event(), asyncio.Event()
        super().__init__(seed)

    def environment(self, host: str) -> Environment:
        return replace(super().environment(host), store=RacingStore(self, host))


@pytest.mark.parametrize("what", ["refuse", "cut"])
@pytest.mark.parametrize("late_s", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("count", [2, 3])
def test_a_broker_that_claims_while_it_is_sealed_begins_anew_once(
    count: int, late_s: float, what: str
) -> None:
    """The claim reaches the metadata log before the fence, whose sealer is thereby replaced."""
    cluster = SealRace()
    all_ids = list(range(1, count + 1))

    async def story() -> None:
        started = [cluster.start(1)]
        await cluster.until(lambda image: cluster.live_ids(image) == [1])
        started += [cluster.start(i) for i in all_ids[1:]]
        await cluster.until(lambda image: cluster.live_ids(image) == all_ids)
        await asyncio.sleep(1.5)
        assert started[0].node.current_incarnation.controller.is_active()
        cluster.begun = True
        break_links(cluster, started, {p: what for p in PAIRS if max(p) <= count})
        claimed = await cluster.until(lambda i: controller_of(i) != 1, within_s=60)
        assert controller_of(claimed) in cluster.sealed
        for broker_id in list(cluster.sealed):
            started[broker_id - 1].lives[-1].crash(Fenced("the write-ahead log was sealed"))
        await asyncio.sleep(late_s)
        cluster.go_on.set()
        await asyncio.sleep(60)
        settled = await cluster.image()
        assert settled.live_brokers()
        assert max(len(s.lives) for s in started) <= 2, [len(s.lives) for s in started]
        await asyncio.sleep(60)
        assert (await cluster.image()).live_brokers() == settled.live_brokers()
        cluster.net.heal()
        at_s = cluster.loop.time()
        await cluster.until(lambda image: cluster.live_ids(image) == all_ids)
        assert cluster.loop.time() < at_s + 1.0
        await asyncio.sleep(20)
        assert cluster.live_ids(await cluster.image()) == all_ids
        assert max(len(s.lives) for s in started) <= 2, [len(s.lives) for s in started]

    cluster.run(story())


HALVES = tuple((a, b) for a in (1, 2) for b in (3, 4))


@pytest.mark.parametrize("what", ["refuse", "cut"])
def test_one_half_goes_on_when_two_halves_lose_each_other(what: str) -> None:
    cluster = ToyCluster()
    links = {pair: what for a, b in HALVES for pair in ((a, b), (b, a))}

    async def story() -> None:
        started = [cluster.start(i) for i in (1, 2, 3, 4)]
        await cluster.until(lambda image: len(cluster.live_ids(image)) == 4)
        await asyncio.sleep(1.5)
        break_links(cluster, started, links)
        await asyncio.sleep(60)
        settled = await cluster.image()
        assert cluster.live_ids(settled) in ([1, 2], [3, 4])
        await asyncio.sleep(60)
        assert (await cluster.image()).live_brokers() == settled.live_brokers()
        lives = [len(s.lives) for s in started]
        assert max(lives) <= 2, lives
        cluster.net.heal()
        await cluster.until(lambda image: len(cluster.live_ids(image)) == 4)
        await asyncio.sleep(20)
        assert len(cluster.live_ids(await cluster.image())) == 4

    cluster.run(story())


@pytest.mark.parametrize("dead", [(1, 2), (3, 4)])
def test_half_of_the_brokers_replace_the_other_half_in_a_second(dead: tuple[int, ...]) -> None:
    cluster = ToyCluster()

    async def story() -> None:
        started = [cluster.start(i) for i in (1, 2, 3, 4)]
        await cluster.until(lambda image: len(cluster.live_ids(image)) == 4)
        await asyncio.sleep(1.5)
        for one in started:
            if one.node.broker_id in dead:
                one.process.kill()
        at_s = cluster.loop.time()
        await cluster.until(lambda image: not set(dead) & set(cluster.live_ids(image)))
        assert cluster.loop.time() < at_s + 1.0

    cluster.run(story())


def test_a_broken_link_is_named_in_log_and_metrics_until_it_heals(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = ToyCluster()

    async def story() -> None:
        started = await three(cluster)
        controller = next(s for s in started if s.node.current_incarnation.controller.is_active())
        other, third = [s for s in started if s is not controller]
        broken = other.node.metrics.broken_links
        assert set(broken().values()) == {False}
        cluster.net.refuse(other.node.address.host, controller.node.address.host)
        await asyncio.sleep(1)
        broker_id = controller.node.broker_id
        assert broken() == {broker_id: True, third.node.broker_id: False}
        told = f"broker {other.node.broker_id} cannot reach other live brokers"
        lines = [r.getMessage() for r in caplog.records if told in r.getMessage()]
        assert len(lines) == 1
        assert f"broken_links=[broker {broker_id} at b{broker_id}:9092: refused]" in lines[0]
        cluster.net.heal()
        await asyncio.sleep(1)
        assert set(broken().values()) == {False}

    cluster.run(story())


def test_paused_controller_is_replaced_and_fences_no_broker() -> None:
    cluster = ToyCluster()

    async def story() -> None:
        started = await three(cluster)
        first = next(s for s in started if s.node.current_incarnation.controller.is_active())
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
def test_broker_cut_off_from_the_others_deposes_none(who: str, apart_s: float) -> None:
    cluster = ToyCluster()

    async def story() -> None:
        started = await three(cluster)
        is_controller = who == "controller"
        lost = next(
            s for s in started if s.node.current_incarnation.controller.is_active() == is_controller
        )
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


@pytest.mark.parametrize("victim_controls", [True, False])
def test_killed_broker_is_replaced_fast_despite_a_broken_link(
    victim_controls: bool,
) -> None:
    cluster = ToyCluster()

    async def story() -> None:
        started = await three(cluster)
        victim = next(
            s
            for s in started
            if s.node.current_incarnation.controller.is_active() == victim_controls
        )
        one, other = [s for s in started if s is not victim]
        cluster.net.refuse(one.node.address.host, other.node.address.host)
        await asyncio.sleep(5)
        at_s = cluster.loop.time()
        victim.process.kill()
        broker_id = victim.node.broker_id
        await cluster.until(lambda image: image.brokers[broker_id].fenced)
        # A majority decides at once; else the metadata log does.
        assert cluster.loop.time() < at_s + 5.0
        await asyncio.sleep(10)
        live = cluster.live_ids(await cluster.image())
        assert live
        assert broker_id not in live

    cluster.run(story())


@pytest.mark.parametrize("count", [2, 3])
def test_a_killed_broker_is_fenced_as_fast_as_a_vote_takes(count: int) -> None:
    cluster = ToyCluster()

    async def story() -> None:
        started = [cluster.start(i) for i in range(1, count + 1)]
        await cluster.until(lambda image: len(image.live_brokers()) == count)
        await asyncio.sleep(1.5)
        at_s = cluster.loop.time()
        started[0].process.kill()
        await cluster.until(lambda image: image.brokers[1].fenced)
        assert cluster.loop.time() < at_s + 0.6

    cluster.run(story())


def test_last_of_three_continues_by_the_metadata_log() -> None:
    cluster = ToyCluster()

    async def story() -> None:
        started = await three(cluster)
        at_s = cluster.loop.time()
        for s in started[:2]:
            s.process.kill()
        await cluster.until(lambda image: cluster.live_ids(image) == [3])
        assert cluster.loop.time() < at_s + 8.0

    cluster.run(story())


def test_silently_lost_brokers_are_fenced_in_the_end() -> None:
    cluster = ToyCluster()

    async def story() -> None:
        started = await three(cluster)
        for s in started[:2]:
            s.process.pause()
        image = await cluster.until(lambda i: cluster.live_ids(i) == [3], within_s=60)
        assert image.controller is not None
        assert image.controller.broker_id == 3

    cluster.run(story())
