"""Brokers that leave the disk to the system, and power cuts: partitions end early, and go on."""

from __future__ import annotations

import asyncio

import pytest

from tests.harness.live_cluster import LiveCluster

SEEDS = range(20)
CUTS = 4
RECORDS_MAX = 30
FLUSHED_AFTER_S = 3.0


async def send_some(cluster: LiveCluster, sent: list[str], acks: int = -1) -> None:
    for _ in range(1 + int(cluster.entropy.random() * RECORDS_MAX)):
        await cluster.send(str(len(sent)).encode(), acks)
        sent.append(str(len(sent)))
        if cluster.entropy.random() < 0.05:
            await asyncio.sleep(cluster.entropy.random() * FLUSHED_AFTER_S)


async def cut_power(cluster: LiveCluster, broker_id: int) -> int:
    """Return how many objects were torn or lost."""
    cluster.kill(broker_id)
    await asyncio.sleep(0.5)  # what was on its way to the disk is there, or never will be
    return cluster.objects.lose_power(f"b{broker_id}")


def one_replica(seed: int, *, forced: bool) -> tuple[int, int]:
    """Cut the power of the only broker again and again; return what was harmed, and lost.

    Every four seeds try each way of sending and of committing: with one replica all are one.
    """
    acks, commit = (1, -1)[seed % 2], ("storage", "memory")[seed // 2 % 2]
    cluster = LiveCluster(seed, wal_fsync=str(forced).lower())

    harmed, lost = [], []

    async def story() -> None:
        await cluster.begin(1, flush_ms="2000", sparklog_commit=commit)
        sent: list[str] = []
        for _ in range(CUTS):
            await send_some(cluster, sent, acks)
            flushed = len(sent) - _unflushed(cluster)
            damage = await cut_power(cluster, 1)
            cluster.start(1)
            left = await cluster.read()
            assert left == sent[: len(left)], "what is left is the start of what was sent"
            assert len(left) >= flushed, "what was flushed is there"
            assert damage or left == sent, "nothing was harmed"
            harmed.append(damage)
            lost.append(len(sent) - len(left))
            sent = left

    cluster.run(story())
    return sum(harmed), sum(lost)


def _unflushed(cluster: LiveCluster) -> int:
    """Return how many records at most are not in the partition's own log."""
    led = cluster.led(1)
    unflushed: int = led.high_watermark - led.flushed_end
    return unflushed


def test_power_cut_of_one_replica_loses_only_unflushed_records() -> None:
    found = [one_replica(seed, forced=False) for seed in SEEDS]
    assert sum(harmed for harmed, _ in found) > len(SEEDS)
    assert sum(lost for _, lost in found) > len(SEEDS), "or nothing was tried"


def test_a_forced_log_of_one_replica_loses_nothing_in_a_power_cut() -> None:
    assert {seed: lost for seed in SEEDS[:8] if (lost := one_replica(seed, forced=True)[1])} == {}


@pytest.mark.parametrize("seed", SEEDS)
def test_records_on_another_machine_survive_a_power_cut(seed: int) -> None:
    cluster = LiveCluster(seed, wal_fsync="false")

    async def story() -> None:
        await cluster.begin(3, flush_ms="2000")
        sent: list[str] = []
        for _ in range(CUTS):
            await send_some(cluster, sent)
            leader = await cluster.leader("t", 0)
            await cut_power(cluster, leader)
            await send_some(cluster, sent)
            assert await cluster.read() == sent
            cluster.start(leader)
            await cluster.until(
                lambda image: len(image.topics["t"].partition_states[0].isr) == 3, within_s=60
            )

    cluster.run(story())
