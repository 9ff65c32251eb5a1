"""Quotas set and described over the wire, and what they come to."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from sparklog.broker.network.quotas import BUCKETS_KEPT
from sparklog.broker.runtime.request import NoResponse, RequestContext
from sparklog.core.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    entity_of,
)
from sparklog.core.types import PartitionId
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request, build_request_part
from sparklog.security.principal import ANONYMOUS, USER, Principal
from tests.harness.handler_node import PEER, ToyNode, tell
from tests.harness.handler_requests import create_topics, fetch, produce
from tests.harness.replica_cluster import batch

EXACT, DEFAULT, ANY = range(3)
Parts = dict[str, str | None]
CLIENT = RequestContext("c", "127.0.0.1")
BIG = RequestContext("big")


def alter(
    *entries: tuple[list[tuple[str, str | None]], dict[str, float | None]], validate: bool = False
) -> Any:
    def part(structure: str, **values: Any) -> Any:
        return build_request_part(Api.ALTER_CLIENT_QUOTAS, 1, structure, **values)

    return build_request(
        Api.ALTER_CLIENT_QUOTAS,
        1,
        validate_only=validate,
        entries=tuple(
            part(
                "EntryData",
                entity=tuple(part("EntityData", entity_type=t, entity_name=n) for t, n in entity),
                ops=tuple(
                    part("OpData", key=k, value=v or 0.0, remove=v is None)
                    for k, v in changes.items()
                ),
            )
            for entity, changes in entries
        ),
    )


def describe(*components: tuple[str, int, str | None], strict: bool = False) -> Any:
    return build_request(
        Api.DESCRIBE_CLIENT_QUOTAS,
        1,
        strict=strict,
        components=tuple(
            build_request_part(
                Api.DESCRIBE_CLIENT_QUOTAS,
                1,
                "ComponentData",
                entity_type=kind,
                match_type=match,
                match=name,
            )
            for kind, match, name in components
        ),
    )


async def codes(node: ToyNode, request: Any) -> list[ErrorCode]:
    return [entry.error_code for entry in (await node.ask(request)).entries]


async def named(node: ToyNode, request: Any) -> list[Parts]:
    answer = await node.ask(request)
    assert answer.error_code is ErrorCode.none, answer.error_message
    return [{p.entity_type: p.entity_name for p in entry.entity} for entry in answer.entries]


def test_quotas_are_set_changed_and_removed() -> None:
    async def story(node: ToyNode) -> None:
        both = alter(([("client-id", "c")], {PRODUCER_BYTE_RATE: 1024, CONSUMER_BYTE_RATE: 7}))
        assert await codes(node, both) == [ErrorCode.none]
        changed = alter(([("client-id", "c")], {PRODUCER_BYTE_RATE: None, CONSUMER_BYTE_RATE: 8}))
        assert await codes(node, changed) == [ErrorCode.none]
        (entry,) = (await node.ask(describe())).entries
        assert [(v.key, v.value) for v in entry.values] == [(CONSUMER_BYTE_RATE, 8.0)]
        gone = alter(([("client-id", "c")], {CONSUMER_BYTE_RATE: None}))
        assert await codes(node, gone) == [ErrorCode.none]
        assert node.metadata.image.client_quotas == {}
        end = node.metadata.image.end_offset
        assert await codes(node, gone) == [ErrorCode.none]
        assert node.metadata.image.end_offset == end, "nothing changed, yet something was said"

    tell(story)


def test_each_entity_is_refused_by_itself() -> None:
    async def story(node: ToyNode) -> None:
        answers = await codes(
            node,
            alter(
                ([("client-id", "good")], {PRODUCER_BYTE_RATE: 5}),
                ([("client-id", "x")], {"request_percentages": 5}),
                ([("client-id", "y")], {PRODUCER_BYTE_RATE: 0.5}),
                ([("ip", "127.0.0.1")], {PRODUCER_BYTE_RATE: 5}),
                ([("ip", "127.0.0.1"), ("user", "u")], {CONNECTION_CREATION_RATE: 5}),
                ([("client-id", "z")], {CONNECTION_CREATION_RATE: 5}),
                ([], {PRODUCER_BYTE_RATE: 5}),
                ([("client-id", "good")], {CONSUMER_BYTE_RATE: 5}),
                ([("user", "a"), ("user", "b")], {PRODUCER_BYTE_RATE: 5}),
            ),
        )
        assert answers == [ErrorCode.none, *[ErrorCode.invalid_request] * 8]
        good = entity_of({"client-id": "good"})
        assert node.metadata.image.client_quotas == {good: {PRODUCER_BYTE_RATE: 5.0}}

    tell(story)


def test_validating_changes_nothing() -> None:
    async def story(node: ToyNode) -> None:
        request = alter(([("client-id", "c")], {PRODUCER_BYTE_RATE: 5}), validate=True)
        assert await codes(node, request) == [ErrorCode.none]
        assert node.metadata.image.client_quotas == {}

    tell(story)


def test_quota_filter_matches_names_defaults_or_any() -> None:
    async def story(node: ToyNode) -> None:
        one: Parts = {"client-id": "c"}
        default: Parts = {"client-id": None}
        both: Parts = {"client-id": "c", "user": "u"}
        user: Parts = {"user": "u"}
        for parts in (one, default, both, user):
            await node.ask(alter((list(parts.items()), {PRODUCER_BYTE_RATE: 5})))
        assert await named(node, describe()) == [one, default, both, user]
        assert await named(node, describe(strict=True)) == []
        assert await named(node, describe(("client-id", ANY, None))) == [one, default, both]
        assert await named(node, describe(("client-id", ANY, None), strict=True)) == [one, default]
        assert await named(node, describe(("client-id", DEFAULT, None))) == [default]
        assert await named(node, describe(("client-id", EXACT, "c"))) == [one, both]
        pair = (("client-id", EXACT, "c"), ("user", EXACT, "u"))
        assert await named(node, describe(*pair)) == [both]
        for wrong in (("user", 9, None), ("user", EXACT, None), ("user", ANY, "u")):
            answer = await node.ask(describe(wrong))
            assert answer.error_code is ErrorCode.invalid_request
            assert answer.entries is None

    tell(story)


def test_quotas_of_addresses_are_set_and_described() -> None:
    async def story(node: ToyNode) -> None:
        local: Parts = {"ip": "::1"}
        default: Parts = {"ip": None}
        rate = {CONNECTION_CREATION_RATE: 5.0}
        asked = alter(([("ip", "0:0::1")], {**rate}), ([("ip", None)], {**rate}))
        assert await codes(node, asked) == [ErrorCode.none] * 2
        await node.ask(alter(([("user", "u")], {PRODUCER_BYTE_RATE: 5})))
        assert node.metadata.image.client_quotas[entity_of(local)] == rate
        assert await named(node, describe(("ip", ANY, None))) == [local, default]
        assert await named(node, describe(("ip", DEFAULT, None), strict=True)) == [default]
        assert await named(node, describe(("ip", EXACT, "0::1"))) == [local]
        mixed = await node.ask(describe(("ip", ANY, None), ("user", ANY, None)))
        assert mixed.error_code is ErrorCode.invalid_request
        unknown = await node.ask(describe(("group", ANY, None)))
        assert unknown.error_code is ErrorCode.unsupported_version

    tell(story)


async def topic_with_quota(node: ToyNode, key: str, rate: float) -> PartitionId:
    await node.ask(create_topics("t"))
    await node.ask(alter(([("client-id", "c")], {key: rate})))
    return PartitionId(node.metadata.image.topics["t"].topic_id, 0)


def test_producer_over_its_quota_gets_a_throttle_time() -> None:
    async def story(node: ToyNode) -> None:
        data = batch(b"x" * 2000)
        await topic_with_quota(node, PRODUCER_BYTE_RATE, 100)
        sent = 0
        times: list[timedelta] = []
        for _ in range(3):
            response = await node.ask(produce("t", (0, data)), CLIENT)
            assert response.responses[0].partition_responses[0].error_code is ErrorCode.none
            sent += len(data)
            times.append(response.throttle_time)
            owed_s = (sent - 100 * 10) / 100  # what 10 s bring may be used at once
            assert times[-1] == pytest.approx(timedelta(seconds=owed_s), abs=timedelta(seconds=1))
        other = await node.ask(produce("t", (0, data)), RequestContext("d"))
        assert other.throttle_time == timedelta(0)
        told = await node.ask(produce("t", (0, data), acks=0), CLIENT)
        assert isinstance(told, NoResponse)
        assert told.throttle_time > times[-1]
        assert node.metrics.throttled_requests == {PRODUCER_BYTE_RATE: 4}

    tell(story)


def test_consumer_is_charged_for_its_reads_and_bounded_by_its_window() -> None:
    async def story(node: ToyNode) -> None:
        data = batch(b"x" * 2000)
        where = await topic_with_quota(node, CONSUMER_BYTE_RATE, 100)
        await node.ask(produce("t", (0, data)), CLIENT)
        response = await node.ask(fetch("t", (0, 0)), CLIENT)
        assert response.responses[0].partitions[0].records == data
        assert response.throttle_time > timedelta(seconds=10)
        assert node.replicas.spec is not None
        assert node.replicas.spec.max_bytes == 1000
        follower = await node.ask(fetch("t", (0, 0), replica_id=2), PEER)
        assert follower.throttle_time == timedelta(0)
        assert node.replicas.spec.max_bytes > 1000
        assert where in node.replicas.logs

    tell(story)


def test_waiting_fetch_returns_no_more_than_the_quota_permits() -> None:
    async def story(node: ToyNode) -> None:
        await topic_with_quota(node, CONSUMER_BYTE_RATE, 100)
        await node.ask(fetch("t", (0, 0), min_bytes=1_000_000), CLIENT)
        assert node.replicas.spec is not None
        assert (node.replicas.spec.min_bytes, node.replicas.spec.max_bytes) == (1000, 1000)
        await node.ask(fetch("t", (0, 0), min_bytes=1_000_000))
        assert node.replicas.spec.min_bytes == 1_000_000

    tell(story)


def client_of(user: str, client_id: str) -> RequestContext:
    return RequestContext(client_id, "127.0.0.1", Principal(USER, user))


async def waits(node: ToyNode, key: str, *clients: RequestContext, rate: int = 100) -> list[bool]:
    """Return which clients wait, when each sends or reads twice the bytes that it may at once."""
    data = batch(b"x" * 20 * rate)
    if key == CONSUMER_BYTE_RATE:
        await node.ask(produce("t", (0, data)))
    request = produce("t", (0, data)) if key == PRODUCER_BYTE_RATE else fetch("t", (0, 0))
    return [bool((await node.ask(request, client)).throttle_time) for client in clients]


@pytest.mark.parametrize("key", [PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE])
def test_a_quota_of_a_user_holds_for_this_user_only(key: str) -> None:
    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("t"))
        await node.ask(alter(([("user", "alice")], {key: 100})))
        alice, bob = client_of("alice", "c"), client_of("bob", "c")
        assert await waits(node, key, alice, bob, CLIENT) == [True, False, False]
        await node.ask(alter(([("user", ANONYMOUS.name)], {key: 100})))
        assert await waits(node, key, CLIENT, bob) == [True, False]

    tell(story)


def test_all_clients_of_a_user_share_its_quota() -> None:
    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("t"))
        await node.ask(alter(([("user", "alice")], {PRODUCER_BYTE_RATE: 100})))
        data = batch(b"x" * 900)
        first, second = client_of("alice", "a"), client_of("alice", "b")
        assert not (await node.ask(produce("t", (0, data)), first)).throttle_time
        assert (await node.ask(produce("t", (0, data)), second)).throttle_time

    tell(story)


def test_each_pair_of_user_and_client_id_has_its_own_quota() -> None:
    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("t"))
        pair: list[tuple[str, str | None]] = [("user", None), ("client-id", None)]
        await node.ask(alter((pair, {PRODUCER_BYTE_RATE: 100})))
        data = batch(b"x" * 900)
        for user in ("alice", "bob"):
            for client_id in ("a", "b"):
                client = client_of(user, client_id)
                assert not (await node.ask(produce("t", (0, data)), client)).throttle_time
        again = await node.ask(produce("t", (0, data)), client_of("bob", "a"))
        assert again.throttle_time

    tell(story)


def test_a_changed_quota_holds_for_the_next_request() -> None:
    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("t"))
        alice = client_of("alice", "c")
        await node.ask(alter(([("client-id", "c")], {PRODUCER_BYTE_RATE: 10**9})))
        assert await waits(node, PRODUCER_BYTE_RATE, alice) == [False]
        await node.ask(alter(([("user", "alice")], {PRODUCER_BYTE_RATE: 100})))
        assert await waits(node, PRODUCER_BYTE_RATE, alice) == [True]
        await node.ask(alter(([("user", "alice")], {PRODUCER_BYTE_RATE: None})))
        assert await waits(node, PRODUCER_BYTE_RATE, alice) == [False]

    tell(story)


def test_throttle_time_is_capped_for_a_huge_debt() -> None:
    async def story(node: ToyNode) -> None:
        await topic_with_quota(node, PRODUCER_BYTE_RATE, 1)
        data = batch(b"x" * 3_000_000)
        response = await node.ask(produce("t", (0, data)), CLIENT)
        assert response.throttle_time == timedelta(milliseconds=2**31 - 1)

    tell(story)


def test_quotas_forget_idle_clients_but_not_throttled_ones() -> None:
    async def story(node: ToyNode) -> None:
        quotas = {entity_of({"client-id": None}): {PRODUCER_BYTE_RATE: 1e9}}
        assert node.throttle.charge(quotas, PRODUCER_BYTE_RATE, BIG, 1 << 40)
        for number in range(3 * BUCKETS_KEPT):
            small = RequestContext(f"c{number}")
            assert not node.throttle.charge(quotas, PRODUCER_BYTE_RATE, small, 0)
        assert len(node.throttle._buckets) <= 2 * BUCKETS_KEPT
        assert node.throttle.charge(quotas, PRODUCER_BYTE_RATE, BIG, 0)

    tell(story)
