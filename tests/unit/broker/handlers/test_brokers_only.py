"""Requests that only brokers of the cluster may send, sent by a client and by a broker."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from sparklog.broker.runtime.request import CloseConnection, RequestContext
from sparklog.cluster.metadata import changes
from sparklog.core.entropy import new_topic_id
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request_part
from sparklog.protocol.topic_ids import uuid_of
from tests.harness.access_case import AccessCase
from tests.harness.access_requests import share_state_cases
from tests.harness.handler_node import HOST, PEER, TESTER, ToyNode, tell
from tests.harness.handler_requests import (
    add_partitions_for,
    broker_heartbeat,
    fetch,
    marked_codes,
    write_txn_marker,
)
from tests.harness.plain_requests import codes_of

REFUSED = ErrorCode.cluster_authorization_failed
FORGERS = [TESTER, RequestContext("broker-2", HOST), RequestContext("broker-2 " + "0" * 64, HOST)]


async def given(node: ToyNode, name: str = "t") -> Any:
    topic_id = new_topic_id(node.environment.entropy)
    await node.metadata.decide(
        lambda image: changes.create_topic(image, name, topic_id, 1, {}, by_cluster=True)
    )
    return uuid_of(topic_id)


def refused(node: ToyNode) -> dict[str, int]:
    return dict(node.metrics.refused_broker_calls)


@pytest.mark.parametrize("context", FORGERS, ids=["a client", "a broker's name", "a wrong code"])
def test_client_is_rejected_for_requests_of_brokers(context: RequestContext) -> None:
    async def story(node: ToyNode) -> None:
        uuid = await given(node)
        answer = await node.ask(fetch("t", (0, 0), replica_id=2), context)
        assert answer.error_code is REFUSED
        state = build_request_part(Api.FETCH, 15, "ReplicaState", replica_id=2, replica_epoch=5)
        by_id = fetch(uuid, (0, 0), version=15, replica_state=state)
        assert (await node.ask(by_id, context)).error_code is REFUSED
        assert node.replicas.spec is None
        with pytest.raises(CloseConnection, match="only brokers of the cluster"):
            await node.ask(fetch("t", (0, 0), version=6, replica_id=2), context)
        assert (await node.ask(broker_heartbeat(2, 1), context)).error_code is REFUSED
        for verify_only in (False, True):
            asked = add_partitions_for("t", "tx", verify_only=verify_only)
            assert (await node.ask(asked, context)).error_code is REFUSED
        counts = {"FetchFollower": 3, "BrokerHeartbeat": 1, "AddPartitionsToTxn": 2}
        assert refused(node) == counts

    tell(story)


def test_broker_may_send_requests_that_clients_may_not() -> None:
    async def story(node: ToyNode) -> None:
        await given(node)
        answer = await node.ask(fetch("t", (0, 0), replica_id=2), PEER)
        assert answer.error_code is ErrorCode.none
        answer = await node.ask(broker_heartbeat(2, 1), PEER)
        assert answer.error_code is ErrorCode.not_controller
        answer = await node.ask(add_partitions_for("t", "tx"), PEER)
        assert answer.error_code is ErrorCode.none
        assert refused(node) == {}

    tell(story)


@pytest.mark.parametrize("case", share_state_cases(), ids=lambda case: case.name)
def test_only_brokers_may_use_states_of_share_groups(case: AccessCase) -> None:
    async def story(node: ToyNode) -> None:
        for context in FORGERS:
            answer = await node.ask(case.request, context)
            assert codes_of(answer) == case.stranger
        name = Api(case.request.__api_key__).label
        assert refused(node) == {name: len(FORGERS) * len(case.stranger)}
        answer = await node.ask(case.request, PEER)
        assert set(codes_of(answer)) == {ErrorCode.not_coordinator}

    tell(story)


def test_client_may_only_abort_transactions_and_only_in_user_topics() -> None:
    async def story(node: ToyNode) -> None:
        await given(node)
        await given(node, "__transaction_state")
        abort, commit = write_txn_marker("t", 0), write_txn_marker("t", 0, is_commit=True)
        closed = write_txn_marker("__transaction_state", 0)
        assert marked_codes(await node.ask(abort)) == [ErrorCode.none]
        assert marked_codes(await node.ask(commit)) == [REFUSED]
        assert marked_codes(await node.ask(closed)) == [REFUSED]
        (written,) = node.replicas.txn_markers.markers
        assert not written.marker.is_commit
        assert refused(node) == {"WriteTxnMarkers": 2}
        assert marked_codes(await node.ask(commit, PEER)) == [ErrorCode.none]
        assert marked_codes(await node.ask(closed, PEER)) == [ErrorCode.none]
        assert len(node.replicas.txn_markers.markers) == 3

    tell(story)
