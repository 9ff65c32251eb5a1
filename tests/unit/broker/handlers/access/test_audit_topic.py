"""Decisions for the audit topic: those that are recorded, their fields, and the topic's guards."""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.produce import begin as begin_produce
from sparklog.broker.runtime.audit_buffer import (
    EVENTS_MAX,
    RULE_CHARS_MAX,
    TEXT_CHARS_MAX,
    encode_event,
)
from sparklog.broker.runtime.request import RequestContext
from sparklog.cluster.metadata.changes import alter
from sparklog.core.errors import InvalidConfig
from sparklog.core.quotas import PRODUCER_BYTE_RATE, entity_of
from sparklog.core.topic_names import AUDIT_TOPIC
from sparklog.protocol.messages import frames, produce_fast_path
from sparklog.security.acls import AclOperation as Do
from sparklog.security.acls import ResourceType as Kind
from sparklog.security.principal import USER, Principal
from tests.harness.access_node import ALICE, ROOT, grant, names_of, new_topic, tell_guarded
from tests.harness.handler_node import PEER, ToyNode, tell
from tests.harness.handler_requests import fetch, metadata, produce
from tests.harness.plain_requests import codes_of
from tests.harness.replica_cluster import batch

LINE = "audit records were lost: the buffer is full"


def records(node: ToyNode) -> list[dict[str, Any]]:
    return [json.loads(encode_event(one, 1)[1]) for one in node.audit.take(EVENTS_MAX)]


def test_a_denied_operation_becomes_a_record_with_all_fields() -> None:
    async def story(node: ToyNode) -> None:
        await new_topic(node, "a")
        await node.ask(produce("a", (0, batch(b"x"))), ALICE)
        (event,) = node.audit.take(9)
        key, value = encode_event(event, 7)
        assert key == b"User:alice"
        found = json.loads(value)
        assert found.pop("time_ms") == node.environment.clock.now_ms()
        assert found == {
            "version": 1,
            "event": "ACCESS",
            "broker_id": 7,
            "principal": "User:alice",
            "host": "10.0.0.7",
            "listener": "",
            "client_id": "client",
            "request": "Produce",
            "operation": "WRITE",
            "resource_type": "Topic",
            "pattern_type": "LITERAL",
            "resource_name": "a",
            "references": 1,
            "allowed": False,
            "rule": "DefaultDeny",
        }

    tell_guarded(story, sparklog_audit_level="INFO")


@pytest.mark.parametrize(
    ("level", "recorded"), [("OFF", []), ("INFO", [False]), ("DEBUG", [False, True])]
)
def test_levels_select_denied_and_allowed_operations(level: str, recorded: list[bool]) -> None:
    async def story(node: ToyNode) -> None:
        await new_topic(node, "a")
        for user in (ALICE, ROOT, PEER):
            await node.ask(produce("a", (0, batch(b"x"))), user)
        assert [one["allowed"] for one in records(node)] == recorded

    tell_guarded(story, sparklog_audit_level=level)


@pytest.mark.parametrize(("level", "is_fast"), [("INFO", True), ("DEBUG", False)])
def test_plain_produce_is_fast_unless_it_is_audited(level: str, is_fast: bool) -> None:
    class Reply:
        def answer(self, frame: bytearray, throttle: timedelta = timedelta(0)) -> None: ...

        def go_on(self, work: Any) -> None: ...

    async def story(node: ToyNode) -> None:
        await new_topic(node, "a")
        await grant(node, (Do.WRITE, Kind.TOPIC, "a"))
        frame = bytes(frames.encode_request(produce("a", (0, batch(b"x"))), 1, "c"))[4:]
        plain = produce_fast_path.read(frame)
        assert plain is not None
        assert begin_produce(node.as_node(), plain, Reply(), ALICE) is is_fast

    tell_guarded(story, sparklog_audit_level=level)


def test_a_full_buffer_counts_and_logs_lost_records(caplog: pytest.LogCaptureFixture) -> None:
    async def story(node: ToyNode) -> None:
        await new_topic(node, "a")
        names = [f"t{number}" for number in range(EVENTS_MAX + 5)]
        for start in range(0, len(names), 1000):
            await node.ask(metadata(*names[start : start + 1000]), ALICE)
        assert len(node.audit) == EVENTS_MAX
        assert node.metrics.audit_records_lost == 5

    with caplog.at_level(logging.WARNING):
        tell_guarded(story, sparklog_audit_level="INFO")
    assert [one for one in caplog.messages if one.startswith(LINE)]


def test_texts_of_clients_are_cut_and_escaped() -> None:
    async def story(node: ToyNode) -> None:
        long = "\x1b\u20ac\U0001f600" * 1000
        client = RequestContext(long, "::1", Principal(USER, long), "EXTERNAL")
        await node.ask(metadata(long), client)
        (event,) = node.audit.take(9)
        key, value = encode_event(event, 1)
        found = json.loads(value)
        for field in ("principal", "client_id", "resource_name"):
            assert len(found[field]) == TEXT_CHARS_MAX
        assert len(found["rule"]) <= RULE_CHARS_MAX
        assert value.isascii()
        assert b"\x1b" not in value
        assert key.decode() == found["principal"]

    tell_guarded(story, sparklog_audit_level="INFO")


def test_an_audit_needs_an_authorizer() -> None:
    async def story(node: ToyNode) -> None: ...

    with pytest.raises(InvalidConfig, match="authorizer"):
        tell(story, sparklog_audit_level="DEBUG")


def test_only_brokers_append_to_the_audit_topic_and_have_no_quota() -> None:
    async def story(node: ToyNode) -> None:
        await new_topic(node, AUDIT_TOPIC)
        everyone = entity_of({"client-id": None})
        await node.metadata.decide(lambda image: alter(image, everyone, {PRODUCER_BYTE_RATE: 1.0}))
        request = produce(AUDIT_TOPIC, (0, batch(b"x" * 1000)))
        assert codes_of(await node.ask(request, ROOT)) == [ErrorCode.invalid_topic_exception]
        assert node.replicas.logs == {}
        answer = await node.ask(request, PEER)
        assert codes_of(answer) == [ErrorCode.none]
        assert answer.throttle_time == timedelta(0)
        assert [len(log) for log in node.replicas.logs.values()] == [1]

    tell_guarded(story)


def test_readers_need_an_acl_that_names_the_audit_topic() -> None:
    async def story(node: ToyNode) -> None:
        await new_topic(node, AUDIT_TOPIC)
        await new_topic(node, "a")

        async def may_read(context: RequestContext) -> bool:
            answer = await node.ask(fetch(AUDIT_TOPIC, (0, 0)), context)
            return answer.responses[0].partitions[0].error_code is ErrorCode.none

        assert not await may_read(ALICE)
        assert names_of(await node.ask(metadata(None), ALICE)) == ["a"]
        await grant(node, (Do.READ, Kind.TOPIC, "*"))
        assert not await may_read(ALICE)
        assert await may_read(ROOT)
        await grant(node, (Do.READ, Kind.TOPIC, AUDIT_TOPIC))
        assert await may_read(ALICE)

    tell_guarded(story, allow_everyone_if_no_acl_found="true")
