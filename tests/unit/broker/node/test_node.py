"""Nodes together: registering, heartbeats, fencing, controllers, shutting down."""

from __future__ import annotations

import asyncio

import pytest

from sparklog.broker.controller.metadata_log import LAYOUT
from sparklog.cluster.controller import election
from sparklog.cluster.metadata import changes
from sparklog.cluster.metadata.access_state import token_record
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import ProducerIdsRecord, Record
from sparklog.core.errors import Fenced, InvalidConfig, Unavailable
from sparklog.log.manifest.quick_refresh import probe
from sparklog.log.wal.objects import WalKind, decode_header
from sparklog.security.principal import ANONYMOUS
from sparklog.security.sasl.delegation_tokens import DelegationToken
from sparklog.testing.sim.network import NetworkFaults
from sparklog.testing.sim.store import StoreFaults
from tests.harness.metadata_cluster import Started, ToyCluster, three

TOPIC_ID = "t" * 22
DECISION: list[Record] = [ProducerIdsRecord(1, 1, 1)]


async def create(cluster: ToyCluster, partitions: int, factor: int | None = None) -> None:
    def decide(image: MetadataImage) -> list[Record]:
        return changes.create_topic(image, "t", TOPIC_ID, partitions, {}, replication_factor=factor)

    await cluster.watcher.decide(decide)


def leaders(image: MetadataImage) -> list[int]:
    return [p.leader for _, p in image.partitions()]


def sealed(cluster: ToyCluster, image: MetadataImage, broker_id: int) -> bool:
    layout = image.brokers[broker_id].wal
    store = cluster.objects.objects
    kinds = [
        decode_header(store.get(info.key), layout, layout.sequence(info.key) or 0).kind
        for info in store.list(layout.folder)
    ]
    return WalKind.SEAL in kinds


def test_brokers_register_and_one_is_the_controller() -> None:
    cluster = ToyCluster()

    async def story() -> None:
        started = await three(cluster)
        image = await cluster.image()
        assert cluster.live_ids(image) == [1, 2, 3]
        assert image.controller is not None
        assert image.controller.epoch == 1
        active = [s.node.current_incarnation.controller.is_active() for s in started]
        assert active.count(True) == 1
        assert len({s.node.cluster_id for s in started}) == 1
        assert len(started[0].node.cluster_id) == 22
        await asyncio.sleep(20)
        assert (await cluster.image()).end_offset == image.end_offset, "an idle cluster is quiet"

    cluster.run(story())


def test_idle_cluster_makes_one_request_a_second() -> None:
    cluster = ToyCluster()

    async def story() -> None:
        await three(cluster)
        await create(cluster, 40)
        await cluster.until(lambda image: len(leaders(image)) == 40)
        await asyncio.sleep(3)
        before = cluster.objects.requests
        await asyncio.sleep(20)
        assert cluster.objects.requests - before <= 21

    cluster.run(story())


def test_killed_broker_is_fenced_and_its_partitions_get_new_leaders() -> None:
    cluster = ToyCluster()

    async def story() -> None:
        started = await three(cluster)
        await create(cluster, 12)
        before = await cluster.until(lambda image: len(leaders(image)) == 12)
        assert sorted(set(leaders(before))) == [1, 2, 3]
        victim = next(s for s in started if not s.node.current_incarnation.controller.is_active())
        broker_id = victim.node.broker_id
        incarnation = victim.node.incarnation
        at_s = cluster.loop.time()
        victim.process.kill()
        after = await cluster.until(lambda image: broker_id not in leaders(image))
        assert cluster.loop.time() - at_s < 0.6
        assert after.brokers[broker_id].fenced
        assert sealed(cluster, after, broker_id)
        for (where, p), (_, old) in zip(after.partitions(), before.partitions(), strict=True):
            assert broker_id not in p.isr
            if old.leader == broker_id:
                assert p.leader in old.isr
                assert p.leader_epoch == old.leader_epoch + 1
                assert p.recovering, where
                assert p.wals[-1:] == (f"{broker_id}-{incarnation}",)
        others = [s for s in started if s is not victim]
        await asyncio.sleep(0.3)
        assert all(s.node.metadata.image.end_offset == after.end_offset for s in others)

    cluster.run(story())


def test_a_killed_controller_is_replaced_at_once() -> None:
    cluster = ToyCluster()

    async def story() -> None:
        started = await three(cluster)
        await create(cluster, 6)
        first = next(s for s in started if s.node.current_incarnation.controller.is_active())
        at_s = cluster.loop.time()
        first.process.kill()
        broker_id = first.node.broker_id
        image = await cluster.until(lambda image: broker_id not in leaders(image))
        assert cluster.loop.time() - at_s < 1.0
        assert image.controller is not None
        assert image.controller.epoch == 2
        assert image.brokers[broker_id].fenced

    cluster.run(story())


def test_a_paused_broker_is_fenced_after_its_session_and_begins_anew() -> None:
    cluster = ToyCluster()

    async def story() -> None:
        started = await three(cluster)
        victim = next(s for s in started if not s.node.current_incarnation.controller.is_active())
        broker_id, incarnation = victim.node.broker_id, victim.node.incarnation
        victim.process.pause()
        await asyncio.sleep(2.5)
        assert not (await cluster.image()).brokers[broker_id].fenced
        await cluster.until(lambda image: image.brokers[broker_id].fenced, within_s=2)
        victim.process.resume()
        image = await cluster.until(lambda image: not image.brokers[broker_id].fenced)
        assert image.brokers[broker_id].incarnation != incarnation
        assert len(victim.lives) == 2
        assert victim.lives[0].stopped

    cluster.run(story())


@pytest.mark.parametrize("store_answers", [True, False])
def test_busy_broker_stays_registered_unless_the_store_is_silent(
    store_answers: bool,
) -> None:
    cluster = ToyCluster()

    async def story() -> None:
        started = await three(cluster)
        busy = next(s for s in started if not s.node.current_incarnation.controller.is_active())
        broker_id, metadata = busy.node.broker_id, busy.node.metadata

        async def append_for_ever() -> None:
            async with metadata._lock:
                while store_answers:
                    await metadata._run(probe(metadata._view))
                    await asyncio.sleep(0.1)
                await asyncio.sleep(100)

        busy.process.spawn(append_for_ever())
        await create(cluster, 1)  # there is news to read, all the time
        await asyncio.sleep(10)
        assert (await cluster.image()).brokers[broker_id].fenced is not store_answers

    cluster.run(story())


def test_restarted_broker_deposes_its_former_incarnation() -> None:
    cluster = ToyCluster()

    async def story() -> None:
        started = await three(cluster)
        await create(cluster, 6)
        before = await cluster.image()
        started[1].process.kill()
        cluster.start(2)
        image = await cluster.until(
            lambda i: (
                i.brokers[2].incarnation != before.brokers[2].incarnation
                and not i.brokers[2].fenced
            )
        )
        for (_, p), (_, old) in zip(image.partitions(), before.partitions(), strict=True):
            if old.leader == 2:
                assert p.leader != 2
                assert p.leader_epoch > old.leader_epoch

    cluster.run(story())


def test_a_twin_ends_the_first_process_for_good() -> None:
    cluster = ToyCluster()

    async def story() -> None:
        started = await three(cluster)
        twin = cluster.start(3, host="elsewhere")
        await cluster.until(lambda image: image.brokers[3].host == "elsewhere")
        await asyncio.sleep(3)
        assert isinstance(started[2].ended[0], Fenced)
        assert not twin.ended
        assert len(twin.lives) == 1

    cluster.run(story())


def test_crashed_broker_restarts_with_a_new_incarnation() -> None:
    cluster = ToyCluster()

    async def story() -> None:
        started = await three(cluster)
        started[0].lives[0].crash(RuntimeError("broken"))
        await asyncio.sleep(2)
        assert len(started[0].lives) == 2
        assert cluster.live_ids(await cluster.image()) == [1, 2, 3]

    cluster.run(story())


def test_brokers_serve_on_while_the_metadata_log_is_damaged() -> None:
    cluster = ToyCluster()

    async def story() -> None:
        started = await three(cluster)
        await create(cluster, 3)
        image = await cluster.image()
        key = LAYOUT.key(LAYOUT.chain_name(image.end_offset))
        cluster.objects.objects.put_if_absent(key, b"no segment")
        with pytest.raises(Unavailable, match="bring its object back"):
            await started[0].process.spawn(started[0].node.metadata.decide(lambda _: DECISION))
        await asyncio.sleep(30)
        assert [len(s.lives) for s in started] == [1, 1, 1]
        assert not any(s.ended for s in started)
        cluster.objects.objects.delete(key)
        await started[0].process.spawn(started[0].node.metadata.decide(lambda _: DECISION))
        await cluster.until(lambda image: image.next_producer_id == 1)
        assert cluster.live_ids(await cluster.image()) == [1, 2, 3]

    cluster.run(story())


def stumble_once(broker: Started) -> None:
    """Make one part of a broker fail when it applies the next image."""

    def stumble(image: MetadataImage) -> None:
        broker.node.metadata.unsubscribe(stumble)
        raise KeyError("a bug")

    broker.node.metadata.subscribe(stumble)


def test_broker_restarts_when_it_cannot_apply_metadata() -> None:
    """It must not continue with a view of the cluster that part of it lacks."""
    cluster = ToyCluster()

    async def story() -> None:
        started = await three(cluster)
        follower = next(s for s in started if not s.node.current_incarnation.controller.is_active())
        stumble_once(follower)
        await create(cluster, 3)
        await asyncio.sleep(5)
        assert len(follower.lives) == 2
        assert cluster.live_ids(await cluster.image()) == [1, 2, 3]

    cluster.run(story())


def test_broker_restarts_when_a_heartbeat_fails_to_apply_metadata() -> None:
    """With a slow store and network, its look may end after its caller has gone."""
    cluster = ToyCluster(2, broker_session_timeout_ms="10000")

    async def story() -> None:
        started = await three(cluster)
        follower = next(s for s in started if not s.node.current_incarnation.controller.is_active())
        stumble_once(follower)
        cluster.objects.faults = StoreFaults(latency_s=0.5, timeout_s=10)
        cluster.net.faults = NetworkFaults(latency_s=0.5)
        await create(cluster, 3)
        await asyncio.sleep(30)
        assert len(follower.lives) == 2

    cluster.run(story())


@pytest.mark.parametrize("broken", [KeyError("a bug"), InvalidConfig("of a newer version")])
def test_controller_restarts_when_it_cannot_apply_its_own_append(broken: Exception) -> None:
    """The caller that asked for the change gets it, and no error about the broken part."""
    cluster = ToyCluster()

    async def story() -> None:
        started = await three(cluster)
        controller = next(s for s in started if s.node.current_incarnation.controller.is_active())
        controller.lives[0].broken = broken
        deciding = controller.node.metadata.decide(lambda _: DECISION)
        image = await controller.process.spawn(deciding)
        assert image.next_producer_id == 1
        await asyncio.sleep(5)
        assert len(controller.lives) == 2
        assert controller.lives[1].images[-1].next_producer_id == 1
        assert cluster.live_ids(await cluster.image()) == [1, 2, 3]

    cluster.run(story())


def test_a_broker_is_stopped_while_it_begins_anew() -> None:
    cluster = ToyCluster()

    async def story() -> None:
        started = await three(cluster)
        started[0].lives[0].crash(RuntimeError("broken"))
        await asyncio.sleep(0.02)
        await started[0].process.spawn(started[0].node.stop())
        assert len(started[0].lives) == 1

    cluster.run(story())


def test_leaving_broker_hands_over_and_the_last_one_opens_the_log() -> None:
    cluster = ToyCluster()

    async def story() -> None:
        started = await three(cluster)
        await create(cluster, 6)
        await cluster.until(lambda image: len(leaders(image)) == 6)
        await asyncio.sleep(1)
        for s in started:
            await s.lives[0].recover()
        await asyncio.sleep(1)
        image = await cluster.image()
        for gone, s in enumerate(started, 1):
            await s.process.spawn(s.node.stop(drain=True))
            image = await cluster.image()
            assert cluster.live_ids(image) == [1, 2, 3][gone:]
            assert s.node.broker_id not in image.brokers
            assert s.node.broker_id not in leaders(image)
            assert s.lives[0].drained
            assert s.lives[0].stopped
            if gone < 3:
                assert not s.lives[0].handed_back
                assert all(p.wals == () and p.leader in p.isr for _, p in image.partitions())
                await asyncio.sleep(1)
        assert leaders(image) == [-1] * 6
        epochs = {where: p.leader_epoch for where, p in image.partitions()}
        assert started[2].lives[0].handed_back == epochs
        assert not any(p.recovering for _, p in image.partitions())

    cluster.run(story())


def test_topics_made_without_brokers_are_spread_over_those_that_come() -> None:
    cluster = ToyCluster()

    async def story() -> None:
        await create(cluster, 9, 2)
        assert leaders(await cluster.image()) == [-1] * 9
        await three(cluster)
        image = await cluster.until(lambda image: -1 not in leaders(image))
        assert sorted(leaders(image)) == [1, 1, 1, 2, 2, 2, 3, 3, 3]
        assert all(len(p.replicas) == 2 for _, p in image.partitions())
        assert all(p.take_lead and p.recovering for _, p in image.partitions())

    cluster.run(story())


def test_a_lone_broker_gets_company_and_replicas() -> None:
    cluster = ToyCluster()

    async def story() -> None:
        cluster.start(1)
        await cluster.until(lambda image: len(image.live_brokers()) == 1)
        await create(cluster, 3)
        image = await cluster.until(lambda image: leaders(image) == [1, 1, 1])
        assert all(p.replicas == (1,) for _, p in image.partitions())
        cluster.start(2)
        cluster.start(3)
        await cluster.until(lambda i: all(len(p.replicas) == 3 for _, p in i.partitions()))

    cluster.run(story())


def test_preferred_leaders_are_elected_after_a_while() -> None:
    cluster = ToyCluster(leader_imbalance_check_interval_seconds="5")

    async def story() -> None:
        started = await three(cluster)
        await create(cluster, 3)
        image = await cluster.until(lambda image: len(leaders(image)) == 3)
        (where, state) = next((w, p) for w, p in image.partitions() if p.leader == 1)
        second = state.replicas[1]

        def move(image: MetadataImage) -> list[Record]:
            before = election.led(image, where, 1, state.leader_epoch)
            return election.changed(before, election.led_by(before, second, before.isr), where)

        await cluster.watcher.decide(move)
        await asyncio.sleep(2)
        await started[second - 1].lives[0].recover()
        image = await cluster.until(lambda i: i.partition(where).next_leader == 1)  # type: ignore[union-attr]
        assert image.partition(where).leader == second  # type: ignore[union-attr]

    cluster.run(story())


def test_controller_removes_expired_delegation_tokens() -> None:
    cluster = ToyCluster(delegation_token_expiry_check_interval_ms="3000")

    async def story() -> None:
        await three(cluster)
        now_ms = cluster.environment("b1").clock.now_ms()
        tokens = [
            DelegationToken(name, ANONYMOUS, ANONYMOUS, (), now_ms, now_ms + 99_000, expiry_ms)
            for name, expiry_ms in (("short", now_ms + 1000), ("long", now_ms + 60_000))
        ]
        await cluster.watcher.decide(lambda image: [token_record(one) for one in tokens])
        image = await cluster.until(lambda image: list(image.tokens) == ["long"], within_s=5)
        assert cluster.environment("b1").clock.now_ms() > now_ms + 1000
        assert image.tokens["long"] == tokens[1]

    cluster.run(story())


@pytest.mark.parametrize("seed", range(4))
def test_cluster_survives_store_and_network_faults(seed: int) -> None:
    cluster = ToyCluster(seed)

    async def story() -> None:
        started = await three(cluster)
        await create(cluster, 6)
        for round_ in range(6):
            victim = started[(round_ + seed) % 3]
            cluster.net.break_connections(victim.node.address.host)
            victim.process.kill()
            await asyncio.sleep(0.3 * (round_ % 3))
            started[(round_ + seed) % 3] = cluster.start(victim.node.broker_id)
            await asyncio.sleep(0.7)
        image = await cluster.until(
            lambda i: len(i.live_brokers()) == 3 and -1 not in leaders(i), within_s=30
        )
        for _, p in image.partitions():
            assert p.leader in p.isr

    cluster.run(story())
