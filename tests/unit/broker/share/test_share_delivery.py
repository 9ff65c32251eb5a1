"""Share groups on whole brokers in a virtual world: deliveries, locks, failures, dead letters."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from kio.schema.errors import ErrorCode

from tests.harness.handler_requests import create_topics
from tests.harness.live_cluster import LiveCluster
from tests.harness.share_worker import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    Delivered,
    ShareMember,
    set_group,
    share_cluster,
)

LOCK_S = 30.0


async def grouped(
    cluster: LiveCluster, brokers: int = 1, records: int = 10, **settings: str
) -> tuple[ShareMember, ShareMember]:
    """Start brokers with records, and two members of a group that reads from the start."""
    await cluster.begin(brokers, 1)
    for number in range(records):
        await cluster.send(b"v%d" % number)
    settings = {"share_auto_offset_reset": "earliest", **settings}
    await set_group(cluster, "g", **settings)
    members = ShareMember(cluster, "g", "a"), ShareMember(cluster, "g", "b")
    for member in members:
        await member.join()
    return members


def offsets(records: list[Delivered]) -> list[int]:
    return [one.offset for one in records]


def counts(records: list[Delivered]) -> set[int]:
    return {one.count for one in records}


def test_members_of_one_partition_get_different_records() -> None:
    cluster = share_cluster()

    async def story() -> None:
        one, two = await grouped(cluster)
        first, second = await one.fetch(records=4), await two.fetch(records=4)
        assert (offsets(first), offsets(second)) == ([0, 1, 2, 3], [4, 5, 6, 7])
        assert counts(first + second) == {1}
        assert [r.value for r in first] == [b"v0", b"v1", b"v2", b"v3"]
        assert offsets(await one.fetch([(0, 3, ACCEPT)])) == [8, 9]
        assert await two.acknowledge((4, 7, ACCEPT)) is ErrorCode.none
        assert await two.acknowledge((4, 7, ACCEPT)) is ErrorCode.invalid_record_state
        assert await two.acknowledge((8, 8, ACCEPT)) is ErrorCode.invalid_record_state

    cluster.run(story())


def test_record_comes_again_after_its_lock_and_later_if_renewed() -> None:
    cluster = share_cluster()

    async def story() -> None:
        one, two = await grouped(cluster, records=2)
        assert offsets(await one.fetch()) == [0, 1]
        await asyncio.sleep(LOCK_S - 1)
        assert await one.acknowledge((1, 1, RENEW), renew=True) is ErrorCode.none
        assert await two.fetch() == []
        again = await two.fetch(wait_ms=1500)
        assert (offsets(again), counts(again)) == ([0], {2})
        assert await one.acknowledge((0, 0, ACCEPT)) is ErrorCode.invalid_record_state
        assert await one.acknowledge((1, 1, ACCEPT)) is ErrorCode.none

    cluster.run(story())


def test_released_records_wake_a_member_that_waits() -> None:
    cluster = share_cluster()

    async def story() -> None:
        one, two = await grouped(cluster, records=3)
        assert offsets(await one.fetch()) == [0, 1, 2]
        at_s = cluster.loop.time()
        waiting = asyncio.ensure_future(two.fetch(wait_ms=20_000))
        await asyncio.sleep(1)
        assert await one.acknowledge((1, 1, RELEASE), (2, 2, ACCEPT)) is ErrorCode.none
        again = await waiting
        assert (offsets(again), counts(again)) == ([1], {2})
        assert cluster.loop.time() < at_s + 2

    cluster.run(story())


def test_closed_session_releases_the_records_of_its_member() -> None:
    cluster = share_cluster()

    async def story() -> None:
        one, two = await grouped(cluster, records=3)
        assert offsets(await one.fetch()) == [0, 1, 2]
        await one.close_session()
        assert offsets(await two.fetch()) == [0, 1, 2]

    cluster.run(story())


def test_group_reads_from_a_start_offset_that_was_moved() -> None:
    cluster = share_cluster()

    async def story() -> None:
        one, two = await grouped(cluster, records=5)
        await one.fetch()
        assert await one.acknowledge((0, 4, ACCEPT)) is ErrorCode.none
        await one.close_session()
        share = cluster.nodes[1].node.share
        assert not share.partitions.of_group("g"), "no member has a session"
        states = cluster.nodes[1].node.share_states
        key = one.share_key()
        assert await states.initialize({key: (100, 2)}) == {key: None}
        assert offsets(await two.fetch()) == [2, 3, 4]

    cluster.run(story())


def test_new_records_wake_a_member_that_waits() -> None:
    cluster = share_cluster()

    async def story() -> None:
        one, _ = await grouped(cluster, records=0)
        waiting = asyncio.ensure_future(one.fetch(wait_ms=20_000))
        await asyncio.sleep(1)
        await cluster.send(b"new")
        assert [r.value for r in await waiting] == [b"new"]

    cluster.run(story())


def test_latest_start_is_kept_over_a_change_of_leader() -> None:
    cluster = share_cluster()

    async def story() -> None:
        one, _ = await grouped(cluster, brokers=2, share_auto_offset_reset="latest")
        assert await one.fetch() == []
        await cluster.send(b"after")
        cluster.kill(await cluster.leader("t", 0))
        assert [r.value for r in await one.fetch(wait_ms=5000)] == [b"after"]

    cluster.run(story())


@pytest.mark.parametrize("seed", range(4))
def test_killed_leader_loses_no_record_and_repeats_no_accepted_one(seed: int) -> None:
    cluster = share_cluster(seed)

    async def story() -> None:
        one, two = await grouped(cluster, brokers=3, records=20)
        taken = await one.fetch(records=8)
        assert await one.acknowledge((0, 3, ACCEPT), (4, 4, REJECT)) is ErrorCode.none
        assert offsets(taken) == list(range(8))
        cluster.kill(await cluster.leader("t", 0))
        seen: Counter[int] = Counter()
        async with asyncio.timeout(60):
            while len(seen) < 15:
                for member in (one, two):
                    got = await member.fetch(records=5, wait_ms=500)
                    seen.update(offsets(got))
                    for record in got:
                        code = await member.acknowledge((record.offset, record.offset, ACCEPT))
                        assert code is ErrorCode.none
        assert seen == Counter(range(5, 20)), "what was finished stays finished"

    cluster.run(story())


def test_poison_record_is_isolated_and_dead_lettered_once() -> None:
    cluster = share_cluster()

    async def story() -> None:
        configs: dict[str, str | None] = {"errors.deadletterqueue.group.enable": "true"}
        one, _ = await grouped(
            cluster,
            records=8,
            errors_deadletterqueue_topic_name="dlq.t",
            errors_deadletterqueue_copy_record_enable="true",
        )
        accepted: set[int] = set()
        deliveries = 0
        for _ in range(30):
            got = await one.fetch(wait_ms=100)
            bad = [r for r in got if r.value == b"v3"]
            deliveries += len(bad)
            for record in got:
                kind = RELEASE if bad else ACCEPT
                assert await one.acknowledge((record.offset, record.offset, kind)) is ErrorCode.none
                if not bad:
                    accepted.add(record.offset)
        assert (accepted, deliveries) == ({0, 1, 2, 4, 5, 6, 7}, 5)
        share = cluster.nodes[1].node.current_incarnation.share
        assert share.dead_letters.waiting == 1, "there is no such topic yet"
        request = create_topics("dlq.t", partitions=1, configs=configs)
        assert (await cluster.ask(1, request)).topics[0].error_code is ErrorCode.none
        await asyncio.sleep(10)
        assert share.dead_letters.waiting == 0
        reader = ShareMember(cluster, "readers", "r", topic="dlq.t")
        await set_group(cluster, "readers", share_auto_offset_reset="earliest")
        await reader.join()
        assert [r.value for r in await reader.fetch(wait_ms=1000)] == [b"v3"]
        part = next(iter(share.partitions.of_group("g")))
        assert part.window.start_offset == 8
        assert cluster.nodes[1].node.metrics.dead_letters["dlq.t"] == 1

    cluster.run(story())


def test_fail_over_loses_no_dead_letter_of_rejected_records() -> None:
    cluster = share_cluster()

    async def story() -> None:
        one, _ = await grouped(
            cluster,
            brokers=3,
            records=4,
            errors_deadletterqueue_topic_name="dlq.t",
            errors_deadletterqueue_copy_record_enable="true",
        )
        await one.fetch()
        assert await one.acknowledge((0, 1, REJECT), (2, 3, ACCEPT)) is ErrorCode.none
        cluster.kill(await cluster.leader("t", 0))
        configs: dict[str, str | None] = {"errors.deadletterqueue.group.enable": "true"}
        request = create_topics("dlq.t", partitions=1, configs=configs)
        broker_id = next(iter(cluster.nodes))
        assert (await cluster.ask(broker_id, request)).topics[0].error_code is ErrorCode.none
        assert await one.fetch(wait_ms=10_000) == []
        reader = ShareMember(cluster, "readers", "r", topic="dlq.t")
        await set_group(cluster, "readers", share_auto_offset_reset="earliest")
        await reader.join()
        assert [r.value for r in await reader.fetch(wait_ms=10_000)] == [b"v0", b"v1"]

    cluster.run(story())


def test_other_topics_take_no_dead_letters() -> None:
    cluster = share_cluster()

    async def story() -> None:
        one, _ = await grouped(cluster, records=2, errors_deadletterqueue_topic_name="dlq.plain")
        request = create_topics("dlq.plain", partitions=1, configs={})
        assert (await cluster.ask(1, request)).topics[0].error_code is ErrorCode.none
        await one.fetch()
        assert await one.acknowledge((0, 0, REJECT), (1, 1, ACCEPT)) is ErrorCode.none
        await asyncio.sleep(10)
        metrics = cluster.nodes[1].node.metrics
        assert not metrics.dead_letters
        assert metrics.dead_letter_failures >= 2
        await cluster.send(b"more")
        assert [r.value for r in await one.fetch()] == [b"more"], "members go on"

    cluster.run(story())
