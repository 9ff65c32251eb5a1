"""Transactions while brokers die, leave, lose each other and their store: nothing torn or lost.

Producers of both protocols write to three partitions. The test compares the reported outcome of
each transaction with the records that a reader of committed records sees in the end.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

import pytest
from kio.schema.errors import ErrorCode

from sparklog.cluster.metadata.image import MetadataImage
from sparklog.core.errors import OutcomeUnknown, Unavailable
from sparklog.testing.sim.store import StoreFaults
from tests.harness.live_cluster import Failed, LiveCluster, TxClient

BROKERS: Final = 3
PARTITIONS: Final = 3
PRODUCERS: Final = 4
TROUBLES: Final = 3
STORM: Final = StoreFaults(latency_s=0.03, lost_request=0.1, lost_reply=0.1)
FENCED: Final = {ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch}

Value = tuple[str, int]
"""A written value, and its partition."""


class Storm:
    """One seed's run."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.cluster = StormyCluster(seed)
        self.values: dict[str, list[Value]] = {}
        self.outcomes: dict[str, bool | None] = {}
        """True if a transaction was committed, False if aborted, None if unknown."""
        self.over = False

    async def story(self) -> None:
        flush_ms = self.random.choice([50, 1_000, 10_000])
        await self.cluster.begin(BROKERS, partitions=PARTITIONS, flush_ms=str(flush_ms))
        names = [f"tx-{n}" for n in range(PRODUCERS)]
        producing = [asyncio.ensure_future(self.produce(name)) for name in names]
        for _ in range(TROUBLES):
            await asyncio.sleep(0.5 + self.random.random())
            await self.trouble()
        await asyncio.sleep(1)
        self.over = True
        await asyncio.gather(*producing)
        for name in names:  # ends what is open
            await TxClient(self.cluster, name).init()
        self.check(await self.seen())

    async def produce(self, name: str) -> None:
        tx = TxClient(self.cluster, name, self.random.choice([1, 2]), timeout_ms=5_000)
        number = 0
        while not self.over:
            await tx.init()
            try:
                while not self.over:
                    number += 1
                    await self.transact(tx, f"{name}.{number}")
            except Failed as failed:
                if failed.code not in FENCED:  # by a time-out, it may be
                    raise

    async def transact(self, tx: TxClient, title: str) -> None:
        commit = self.random.random() < 0.7
        self.outcomes[title] = False
        for n in range(self.random.randint(1, 4)):
            value = f"{title}.{n}", self.random.randrange(PARTITIONS)
            self.values.setdefault(title, []).append(value)
            await tx.send(value[0], partition=value[1])
            await asyncio.sleep(self.random.random() * 0.05)
        self.outcomes[title] = None if commit else False
        await tx.end(commit=commit)
        self.outcomes[title] = commit

    async def trouble(self) -> None:
        cluster, broker_id = self.cluster, self.random.randint(1, BROKERS)
        match self.random.choice(["kill", "leave", "cut", "store"]):
            case "kill":
                cluster.kill(broker_id)
                await asyncio.sleep(self.random.random() * 2)
                cluster.start(broker_id)
            case "leave":
                await cluster.leave(broker_id)
                cluster.start(broker_id)
            case "cut":
                other = broker_id % BROKERS + 1
                cluster.net.cut(f"b{broker_id}", f"b{other}")
                await asyncio.sleep(self.random.random() * 3)
                cluster.net.heal()
            case _:
                calm, cluster.objects.faults = cluster.objects.faults, STORM
                await asyncio.sleep(1)
                cluster.objects.faults = calm

    async def seen(self) -> set[Value]:
        found: list[Value] = []
        for partition in range(PARTITIONS):
            found += [(value, partition) for value in await self.cluster.read(partition)]
            ends = [
                await self.cluster.end_offset(committed=committed, partition=partition)
                for committed in (True, False)
            ]
            assert ends[0] == ends[1], f"a transaction hangs. partition={partition} ends={ends}"
        assert len(found) == len(set(found)), "a record is there twice"
        return set(found)

    def check(self, seen: set[Value]) -> None:
        assert any(self.outcomes.values()), "nothing was committed"
        for title, values in self.values.items():
            count = sum(value in seen for value in values)
            allowed = {True: {len(values)}, False: {0}, None: {0, len(values)}}
            told = self.outcomes[title]
            assert count in allowed[told], f"{title} committed={told} {count} of {values}"


class StormyCluster(LiveCluster):
    """Its observer has patience with the store."""

    async def image(self) -> MetadataImage:
        while True:
            try:
                return await self.watcher.catch_up()
            except (Unavailable, OutcomeUnknown):
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("seed", range(4))
def test_no_transaction_is_torn_lost_or_read_before_its_time(seed: int) -> None:
    storm = Storm(seed)
    storm.cluster.run(storm.story())


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 300))
def test_no_transaction_is_torn_in_many_storms(seed: int) -> None:
    storm = Storm(seed)
    storm.cluster.run(storm.story())
