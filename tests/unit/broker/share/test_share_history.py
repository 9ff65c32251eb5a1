"""Histories of share groups beside killed brokers: each record is finished, and accepted once."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest
from kio.schema.errors import ErrorCode

from sparklog.coordinator.share.delivery_state import DeliveryState
from tests.harness.share_worker import ACCEPT, RELEASE, ShareMember, set_group, share_cluster

RECORDS = 60
BROKERS = 3


class History:
    """Members at work, and the answers of brokers."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.cluster = share_cluster(seed)
        self.accepted: Counter[int] = Counter()
        """By offset: acceptances that a broker has confirmed."""
        self.unknown: set[int] = set()
        """Offsets whose acceptance has no certain outcome."""
        self.delivered: Counter[int] = Counter()

    async def work(self, member: ShareMember) -> None:
        """Fetch and acknowledge until all records are finished."""
        while len(self.accepted.keys() | self.unknown) < RECORDS:
            got = await member.fetch(records=self.random.randint(1, 12), wait_ms=300)
            for record in got:
                self.delivered[record.offset] += 1
                assert not self.accepted[record.offset], f"{record} was accepted before"
            if self.random.random() < 0.1:
                await asyncio.sleep(self.random.random())
            for record in got:
                kind = RELEASE if self.random.random() < 0.2 and record.count < 3 else ACCEPT
                if kind == ACCEPT:
                    self.unknown.add(record.offset)
                code = await member.acknowledge((record.offset, record.offset, kind))
                if kind == ACCEPT and code is ErrorCode.none:
                    self.accepted[record.offset] += 1

    async def kills(self) -> None:
        """Kill a broker now and then, and start it again."""
        while True:
            await asyncio.sleep(0.1 + self.random.random())
            broker_id = self.random.choice(list(self.cluster.nodes))
            self.cluster.kill(broker_id)
            await asyncio.sleep(self.random.random())
            self.cluster.start(broker_id)

    async def story(self) -> None:
        await self.cluster.begin(BROKERS, 1)
        for number in range(RECORDS):
            await self.cluster.send(b"%d" % number)
        await set_group(
            self.cluster, "g", share_auto_offset_reset="earliest", share_delivery_count_limit="10"
        )
        members = [ShareMember(self.cluster, "g", name) for name in "abc"]
        for member in members:
            await member.join()
        killing = asyncio.ensure_future(self.kills())
        async with asyncio.timeout(600):
            await asyncio.gather(*map(self.work, members))
        killing.cancel()
        await asyncio.sleep(45)  # locks of deliveries without an answer expire
        last = ShareMember(self.cluster, "g", "last")
        async with asyncio.timeout(600):
            while True:
                got = await last.fetch(wait_ms=1000)
                if not got:
                    break
                for record in got:
                    assert not self.accepted[record.offset], f"{record} was accepted before"
                    code = await last.acknowledge((record.offset, record.offset, ACCEPT))
                    assert code is ErrorCode.none
        leader = await self.cluster.leader("t", 0)
        share = self.cluster.nodes[leader].node.current_incarnation.share
        (part,) = share.partitions.of_group("g")
        assert part.window.start_offset == RECORDS
        assert part.window.count_of(DeliveryState.ACQUIRED) == 0


@pytest.mark.parametrize("seed", range(24))
def test_no_record_is_lost_or_delivered_after_its_acceptance(seed: int) -> None:
    history = History(seed)
    history.cluster.run(history.story())
    assert set(history.accepted.values()) == {1}
    assert set(history.delivered) == set(range(RECORDS)), "each record came to a member"
