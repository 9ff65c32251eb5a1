"""Kafka's tool for share groups at our brokers and at Kafka's: it prints the same.

The members send heartbeats only: no consumer has to run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from sparklog.client.addresses import bootstrap_addresses
from sparklog.client.admin import Admin
from sparklog.client.connections import BrokerConnections, RequestDraft
from sparklog.client.errors import of_code
from sparklog.client.routing import CoordinatorKind, ask_coordinators
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.protocol.api_keys import Api
from tests.harness.waiting import eventually
from tests.interop.brokers import Brokers
from tests.peers.kafka import KafkaCluster
from tests.peers.kafka_tools import KafkaTools

SHARE_GROUPS = "consumer.group.ShareGroupCommand"
MOVES = frozenset({14, 15, 16})
SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
}
GROUP = "sharers"
TOPIC = "shared"
DIFFERENT = (
    (r" +", " "),
    (r"\S+:\d+ \(\d+\)", "ADDRESS"),
    (r"Stable (\d+) \1 ", "Stable EPOCH EPOCH "),
    (rf"2 \d+ (?={TOPIC}:)", "2 EPOCH "),
    (rf"{TOPIC}:\d,\d", f"{TOPIC}:HALF"),
)
"""Spaces, addresses of brokers, numbers of epochs, and which member has which partitions."""


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with Brokers(f"memory://{uuid4()}", settings=SETTINGS) as cluster:
        yield cluster


class Members:
    """Members of the group at one cluster, which have its partitions between them."""

    def __init__(self, bootstrap: str) -> None:
        self.connections = BrokerConnections(bootstrap_addresses(bootstrap))
        self.tool = KafkaTools(bootstrap)
        with Admin(bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=4)
        self.has: dict[str, set[int]] = {"a": set(), "b": set()}
        self.epochs = dict.fromkeys(self.has, 0)
        eventually(self.is_settled, "the members have all partitions", 60.0)

    def is_settled(self) -> bool:
        """Send heartbeats; return True if the partitions are spread over the members."""
        for member_id in self.has:
            answer = self.beat(member_id, self.epochs[member_id])
            self.epochs[member_id] = int(answer.member_epoch)
            if answer.assignment is not None:
                topics: tuple[Any, ...] = answer.assignment.topic_partitions
                self.has[member_id] = {number for one in topics for number in one.partitions}
        first, second = self.has.values()
        return len(set(self.epochs.values())) == 1 and (len(first), len(second)) == (2, 2)

    def beat(self, member_id: str, epoch: int) -> Any:
        """Send a heartbeat and return the answer."""

        def draft(of: RequestDraft) -> Any:
            return of.request(
                group_id=GROUP, member_id=member_id, member_epoch=epoch,
                subscribed_topic_names=None if epoch else (TOPIC,),
            )  # fmt: skip

        def ask(coordinator: Any, keys: Any) -> dict[str, Any]:
            api = Api.SHARE_GROUP_HEARTBEAT
            answer = self.connections.tell(coordinator.address, api, 1, 1, draft)
            if answer.error_code in MOVES:
                raise of_code(answer.error_code, None, "not yet")
            return {GROUP: answer}

        kind = CoordinatorKind.GROUP
        found = ask_coordinators(self.connections, kind, [GROUP], ask, SYSTEM_CLOCK)
        answer: Any = found[GROUP]
        assert answer.error_code == 0, answer
        return answer

    def shown(self, *arguments: str) -> list[str]:
        """Return the rows that the tool prints, without what may differ between clusters."""
        lines = self.tool(SHARE_GROUPS, *arguments)
        for pattern, word in DIFFERENT:
            lines = [re.sub(pattern, word, line) for line in lines]
        return sorted(line.strip() for line in lines)


@pytest.fixture(scope="module")
def both(kafka: KafkaCluster, brokers: Brokers) -> Iterator[tuple[Members, Members]]:
    found = Members(brokers.bootstrap), Members(kafka.bootstrap)
    yield found
    for members in found:
        members.connections.close()


def test_kafkas_tool_prints_the_same_about_share_groups(both: tuple[Members, Members]) -> None:
    described = ("--describe", "--group", GROUP)
    for arguments in (
        ("--list",),
        ("--list", "--state"),
        (*described, "--state"),
        (*described, "--state", "--verbose"),
        (*described, "--members"),
        (*described, "--members", "--verbose"),
    ):
        assert all(members.is_settled() for members in both)
        ours, theirs = (members.shown(*arguments) for members in both)
        assert ours == theirs, arguments


def test_kafkas_tool_deletes_a_share_group_without_members(both: tuple[Members, Members]) -> None:
    deletion = ("--delete", "--group", GROUP)
    for members in both:
        for member_id, epoch in members.epochs.items():
            members.beat(member_id, epoch)
    ours, theirs = (members.shown(*deletion) for members in both)
    assert ours == theirs, "it has members"
    for members in both:
        for member_id in members.has:
            members.beat(member_id, -1)
    ours, theirs = (members.shown(*deletion) for members in both)
    assert ours == theirs == [f"Deletion of requested share groups ('{GROUP}') was successful."]
    ours, theirs = (members.shown("--list") for members in both)
    assert GROUP not in [*ours, *theirs]
