"""The audit log: Kafka's lines, at Kafka's levels, and safe on a terminal."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from sparklog.broker.handlers.access import LINES_MAX, NAME_CHARS_MAX, TRACE
from sparklog.protocol.api_keys import Api
from sparklog.security.acls import AclOperation as Do
from sparklog.security.acls import ResourceType as Kind
from tests.harness.access_node import ALICE, ROOT, grant, new_topic, tell_guarded
from tests.harness.handler_node import PEER, ToyNode
from tests.harness.handler_requests import produce
from tests.harness.plain_requests import plain_request
from tests.harness.replica_cluster import batch

LOGGER = "kafka.authorizer.logger"
LIST_GROUPS = plain_request(Api.LIST_GROUPS, 5)
DENIED_LINE = (
    "Principal = User:alice is Denied operation = WRITE from host = 10.0.0.7 on resource = "
    "Topic:LITERAL:a for request = Produce with resourceRefCount = 1 based on rule DefaultDeny"
)
ALLOWED_LINE = (
    "Principal = User:alice is Allowed operation = WRITE from host = 10.0.0.7 on resource = "
    "Topic:LITERAL:a for request = Produce with resourceRefCount = 1 based on rule "
    "MatchingAcl(acl=User:alice ALLOW WRITE on TOPIC:LITERAL:a from *)"
)


def lines_of(
    caplog: pytest.LogCaptureFixture, level: int, *requests: Any, granted: bool = False
) -> list[tuple[int, str]]:
    """Return the lines of requests of Alice, with the level of each."""

    async def story(node: ToyNode) -> None:
        await new_topic(node, "a")
        if granted:
            await grant(node, (Do.WRITE, Kind.TOPIC, "a"))
        for request in requests:
            for context in (ALICE, PEER):
                await node.ask(request, context)

    with caplog.at_level(level, LOGGER):
        tell_guarded(story)
    return [(one.levelno, one.getMessage()) for one in caplog.records if one.name == LOGGER]


def test_a_denied_request_is_one_line_at_info(caplog: pytest.LogCaptureFixture) -> None:
    found = lines_of(caplog, logging.DEBUG, produce("a", (0, batch(b"x"))))
    assert found == [(logging.INFO, DENIED_LINE)]


def test_an_allowed_request_is_one_line_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    found = lines_of(caplog, logging.DEBUG, produce("a", (0, batch(b"x"))), granted=True)
    assert found == [(logging.DEBUG, ALLOWED_LINE)]


def test_filters_of_listings_log_no_denial_above_trace(caplog: pytest.LogCaptureFixture) -> None:
    everything = plain_request(Api.METADATA, 13, topics=None)
    assert lines_of(caplog, logging.DEBUG, everything, LIST_GROUPS) == []
    caplog.clear()
    found = lines_of(caplog, TRACE, everything, LIST_GROUPS)
    assert [(level, "is Denied operation = DESCRIBE" in line) for level, line in found] == [
        (TRACE, True),
        (TRACE, True),
    ]


def test_a_line_counts_the_partitions_of_a_fetch(caplog: pytest.LogCaptureFixture) -> None:
    partitions = [{"partition": number} for number in (0, 1, 2)]
    request = plain_request(
        Api.FETCH, 12, replica_id=-1, session_epoch=-1, max_bytes=9,
        topics=[{"topic": "a", "partitions": partitions}],
    )  # fmt: skip
    ((_, line),) = lines_of(caplog, logging.INFO, request)
    assert "for request = Fetch with resourceRefCount = 3 based on" in line


def test_names_cannot_forge_or_steer_the_log(caplog: pytest.LogCaptureFixture) -> None:
    forged = "a\nPrincipal = User:root is Allowed\x1b[2J"
    ((_, line),) = lines_of(
        caplog, logging.INFO, plain_request(Api.DELETE_GROUPS, 2, groups_names=[forged])
    )
    assert r"Group:LITERAL:a\x0aPrincipal = User:root is Allowed\x1b[2J for" in line
    assert line.isprintable()


def test_the_lines_of_one_request_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    groups = [f"{number}" + "g" * 1000 for number in range(3 * LINES_MAX)]
    request = plain_request(Api.DELETE_GROUPS, 2, groups_names=groups)
    found = lines_of(caplog, logging.INFO, request)
    assert len(found) == LINES_MAX
    assert found[-1] == (logging.INFO, "Principal = User:alice: more lines are left out")
    assert max(len(line) for _, line in found) < 600
    assert "0" + "g" * (NAME_CHARS_MAX - 1) + "… for request = DeleteGroups" in found[0][1]


def test_the_operations_of_a_client_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def story(node: ToyNode) -> None:
        request = plain_request(
            Api.DESCRIBE_CLUSTER, 2, endpoint_type=1, include_cluster_authorized_operations=True
        )
        await node.ask(request, ROOT)

    with caplog.at_level(logging.DEBUG, LOGGER):
        tell_guarded(story)
    (line,) = [one.getMessage() for one in caplog.records if one.name == LOGGER]
    assert line.endswith("based on rule SuperUser")
    assert "operation = DESCRIBE from" in line


def test_allowed_and_denied_operations_are_counted() -> None:
    async def story(node: ToyNode) -> None:
        await new_topic(node, "a")
        await new_topic(node, "b")
        await grant(node, (Do.WRITE, Kind.TOPIC, "a"))
        before = node.metrics.allowed_operations, node.metrics.denied_operations
        for topic in ("a", "b", "a"):
            await node.ask(produce(topic, (0, batch(b"x"))), ALICE)
        await node.ask(produce("a", (0, batch(b"x"))), PEER)
        after = node.metrics.allowed_operations, node.metrics.denied_operations
        assert (after[0] - before[0], after[1] - before[1]) == (2, 1)

    tell_guarded(story)
