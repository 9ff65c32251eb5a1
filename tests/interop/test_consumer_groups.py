"""Consumer groups of the newer protocol (KIP-848) on brokers, with unmodified clients and tools."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import uuid4

import confluent_kafka as ck
import pytest

from sparklog.client.addresses import bootstrap_addresses
from sparklog.client.admin import Admin
from sparklog.client.connections import BrokerConnections as Asked
from sparklog.client.connections import RequestDraft
from sparklog.client.errors import of_code
from sparklog.client.routing import CoordinatorKind, ask_coordinators
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.protocol.api_keys import Api
from tests.cli.conftest import Cli
from tests.harness.waiting import eventually
from tests.interop.brokers import Brokers
from tests.peers.kafka_tools import KafkaTools

READ_S = 150.0
COORDINATOR_MOVES = (14, 15, 16)
QUICK = {
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "3000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
}


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with Brokers(f"memory://{uuid4()}", 2, QUICK) as cluster:
        yield cluster


@pytest.fixture
def cli(brokers: Brokers, cli_at: Callable[[str], Cli]) -> Cli:
    return cli_at(brokers.bootstrap)


@pytest.fixture
def topic(brokers: Brokers) -> str:
    """60 records in six partitions."""
    name = f"t-{uuid4().hex[:8]}"
    with Admin(brokers.bootstrap) as admin:
        admin.create_topic(name, partitions=6)
    produce(brokers, name)
    return name


def produce(brokers: Brokers, topic: str, partitions: int = 6) -> None:
    producer = ck.Producer({"bootstrap.servers": brokers.bootstrap})
    for number in range(60):
        producer.produce(topic, str(number).encode(), partition=number % partitions)
    assert producer.flush(READ_S) == 0


@dataclass
class Reader:
    """A member of a group that reads in a thread until the test stops it."""

    brokers: Brokers
    group: str
    topics: list[str]
    settings: dict[str, str] = field(default_factory=dict)
    read: Counter[bytes] = field(default_factory=Counter)
    assigned: set[tuple[str, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._consumer = ck.Consumer(
            {
                "bootstrap.servers": self.brokers.bootstrap,
                "group.id": self.group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": "200",
                **self.settings,
            }
        )
        self._consumer.subscribe(self.topics)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.read[message.value() or b""] += 1
            self.assigned = {(tp.topic, tp.partition) for tp in self._consumer.assignment()}
        self._consumer.close()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(READ_S)
        self.assigned = set()


def test_members_share_the_partitions_and_take_over_from_each_other(
    brokers: Brokers, topic: str, cli: Cli
) -> None:
    group = f"g-{topic}"
    first = Reader(brokers, group, [topic])
    eventually(lambda: sum(first.read.values()) == 60, "all records")
    assert len(first.assigned) == 6
    second = Reader(brokers, group, [topic])
    eventually(
        lambda: len(second.assigned) == 3 and len(first.assigned) == 3,
        "half of the partitions each",
    )
    assert not first.assigned & second.assigned
    produce(brokers, topic)
    eventually(lambda: sum((first.read + second.read).values()) == 120, "all records, shared")
    described = ("--describe", "--group", group)
    members = cli.ok("groups", *described, "--members", "--verbose").lines
    assert members == KafkaTools(brokers.bootstrap)(
        "consumer.group.ConsumerGroupCommand", *described, "--members", "--verbose"
    )
    state = cli.ok("groups", *described, "--state", "--json").documents[0]
    assert (state["state"], state["members"], state["assignor"]) == ("Stable", 2, "uniform")
    first.stop()
    eventually(lambda: len(second.assigned) == 6, "all partitions are taken over")
    second.stop()
    assert max((first.read + second.read).values()) == 2, "each record once, however it was shared"
    rows = cli.ok("groups", *described, "--json").documents
    assert [row["lag"] for row in rows] == [0] * 6
    listed = cli.ok("groups", "--list", "--type", "consumer", "--json").documents
    assert {"group": group, "type": "Consumer", "state": "Empty"} in listed


def test_a_pattern_reads_topics_that_come_later(brokers: Brokers, topic: str) -> None:
    prefix = f"p-{uuid4().hex[:8]}"
    reader = Reader(brokers, f"g-{prefix}", [f"^{prefix}-.*"])
    with Admin(brokers.bootstrap) as admin:
        for name in (f"{prefix}-a", f"{prefix}-b"):
            admin.create_topic(name, partitions=2)
            produce(brokers, name, 2)
    eventually(lambda: sum(reader.read.values()) == 120, "the records of both topics")
    assert {name for name, _ in reader.assigned} == {f"{prefix}-a", f"{prefix}-b"}
    reader.stop()


@pytest.mark.parametrize("assignors", ["range,roundrobin", "cooperative-sticky"])
def test_group_migrates_to_the_new_protocol_and_back_by_member(
    brokers: Brokers, topic: str, cli: Cli, assignors: str
) -> None:
    group = f"m-{topic}"
    classic = {
        "group.protocol": "classic",
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "200",
        "partition.assignment.strategy": assignors,
    }

    def spread(*readers: Reader) -> bool:
        held = [part for reader in readers for part in reader.assigned]
        least = 6 // len(readers)
        return len(held) == len(set(held)) == 6 and all(len(r.assigned) >= least for r in readers)

    def state() -> tuple[str, str]:
        found = cli.ok("groups", "--list", "--json").documents
        return next((row["type"], row["state"]) for row in found if row["group"] == group)

    first = Reader(brokers, group, [topic], classic)
    second = Reader(brokers, group, [topic], classic)
    eventually(lambda: spread(first, second), "two share")
    assert state() == ("Classic", "Stable")
    newer = Reader(brokers, group, [topic])
    eventually(
        lambda: spread(first, second, newer) and state() == ("Consumer", "Stable"),
        "the group is upgraded",
    )
    view = ("groups", "--describe", "--group", group, "--members", "--json")
    upgraded = [row["upgraded"] for row in cli.ok(*view).documents]
    assert sorted(upgraded) == [False, False, True]
    first.stop()
    eventually(lambda: spread(second, newer), "the two who stay share")
    produce(brokers, topic)
    newer.stop()
    eventually(
        lambda: spread(second) and state() == ("Classic", "Stable"), "the group is downgraded"
    )
    eventually(lambda: len(first.read + second.read + newer.read) == 60, "all records")
    rows = ("groups", "--describe", "--group", group, "--json")
    eventually(lambda: {row["lag"] for row in cli.ok(*rows).documents} == {0}, "all is committed")
    second.stop()


def test_a_static_member_comes_back_without_a_rebalance(
    brokers: Brokers, topic: str, cli: Cli
) -> None:
    group = f"s-{topic}"
    static = {"group.instance.id": "one", "group.remote.assignor": "range"}
    first, other = Reader(brokers, group, [topic], static), Reader(brokers, group, [topic])
    eventually(
        lambda: len(first.assigned) == 3 and len(other.assigned) == 3, "half of the partitions each"
    )
    had = first.assigned
    state = ("groups", "--describe", "--group", group, "--state", "--json")
    eventually(lambda: cli.ok(*state).documents[0]["state"] == "Stable", "a stable group")
    before = cli.ok(*state).documents[0]
    first.stop()
    again = Reader(brokers, group, [topic], static)
    eventually(lambda: again.assigned == had, "the static member has its partitions")
    after = cli.ok(*state).documents[0]
    assert after["epoch"] == before["epoch"]
    assert after["assignor"] == "range"
    again.stop()
    other.stop()


def test_kafkas_console_consumer_and_offsets_of_an_empty_group(
    brokers: Brokers, topic: str, cli: Cli
) -> None:
    group = f"c-{topic}"
    read = KafkaTools(brokers.bootstrap)(
        "consumer.ConsoleConsumer", "--topic", topic, "--group", group,
        "--from-beginning", "--max-messages", "60", "--timeout-ms", "20000",
        "--command-property", "group.protocol=consumer",
    )  # fmt: skip
    assert sorted(map(int, read)) == list(range(60))
    back = ("--all-topics", "--shift-by", "-1", "--execute")
    cli.ok("groups", "--reset-offsets", "--group", group, *back)
    lags = KafkaTools(brokers.bootstrap)(
        "consumer.group.ConsumerGroupCommand", "--describe", "--group", group
    )
    assert [line.split()[5] for line in lags[2:]] == ["1"] * 6
    aged = cli.ok("groups", "--describe", "--group", group, "--lag-time", "--json").documents
    assert all(0 < row["lagMs"] < 600_000 for row in aged)
    classic = Reader(brokers, group, [topic], {"group.protocol": "classic"})
    eventually(lambda: sum(classic.read.values()) == 6, "the records reset to")
    classic.stop()
    eventually(lambda: cli("groups", "--delete", "--group", group).code == 0, "the group is empty")


def heartbeat(asked: Asked, group: str, version: int = 1, **more: Any) -> Any:
    """Return the answer of a group's coordinator to a heartbeat as it is written here."""

    def draft(of: RequestDraft) -> Any:
        told = {
            "group_id": group,
            "member_id": "m",
            "member_epoch": 0,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": timedelta(seconds=60),
            "subscribed_topic_names": ("orders",),
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": (),
            **more,
        }
        return of.request(**told)

    def ask(coordinator: Any, keys: Any) -> dict[str, Any]:
        api = Api.CONSUMER_GROUP_HEARTBEAT
        answer = asked.tell(coordinator.address, api, version, version, draft)
        if answer.error_code in COORDINATOR_MOVES:
            raise of_code(answer.error_code, None, "not yet")
        return {group: answer}

    return ask_coordinators(asked, CoordinatorKind.GROUP, [group], ask, SYSTEM_CLOCK)[group]


def test_rejection_has_kafkas_code_and_a_reason(brokers: Brokers) -> None:
    asked, group = Asked(bootstrap_addresses(brokers.bootstrap)), f"r-{uuid4().hex[:8]}"

    def refused(**how: Any) -> tuple[int, str]:
        answer = heartbeat(asked, how.pop("group", group), **how)
        return answer.error_code, answer.error_message or ""

    assert refused(member_epoch=1)[0] == 69
    assert refused(member_id="")[0] == 42
    assert refused(group="")[0] == 42
    assert refused(member_epoch=-7)[0] == 42
    assert refused(subscribed_topic_names=None)[0] == 42
    code, why = refused(subscribed_topic_names=None, subscribed_topic_regex="(?<=a)")
    assert (code, "no pattern that RE2 takes" in why) == (128, True)
    code, why = refused(server_assignor="mine")
    assert (code, "Supported assignors: uniform, range" in why) == (112, True)
    joined = heartbeat(asked, group)
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (0, "m", 1)
    assert joined.heartbeat_interval == timedelta(milliseconds=200)
    assert joined.assignment is not None
    assert joined.assignment.topic_partitions == ()
    assert refused(member_epoch=9)[0] == 110
    assert refused(member_id="n", member_epoch=1)[0] == 25
    of_old_client = heartbeat(asked, f"{group}-0", version=0, member_id="")
    assert len(of_old_client.member_id) == 22, "the coordinator makes one up"
    assert heartbeat(asked, group, member_epoch=-1).member_epoch == -1
    asked.close()
