"""Share groups in a console of one broker: members, states that the broker wrote, and changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka as ck
import pytest

from sparklog.client.admin import Admin
from sparklog.client.values import ConfigResource
from sparklog.console.broker_view import BrokerView
from sparklog.console.cluster_view import NewRecord
from sparklog.console.root_view import RootView
from sparklog.core.types import TopicPartition
from sparklog.testing.cluster import SparklogCluster
from tests.harness.console_browser import Browser, browser_of
from tests.harness.share_member import ShareMember
from tests.harness.waiting import eventually

QUICK = {
    "group.share.min.heartbeat.interval.ms": "200",
    "group.share.heartbeat.interval.ms": "200",
}
KIND = ck.AcknowledgeType


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparklogCluster]:
    with SparklogCluster(config=QUICK) as running:
        running.topic("jobs", partitions=2)
        view = BrokerView(running.bootstrap_servers, {})
        for value in (b"a", b"b", b"c"):
            view.append(NewRecord("jobs", None, value, partition=1))
        view.close()
        yield running


@pytest.fixture
def browser(cluster: SparklogCluster) -> Iterator[Browser]:
    view = BrokerView(cluster.bootstrap_servers, {})
    with browser_of(view) as client:
        yield Browser(client)
    view.close()


def test_members_and_states_come_from_brokers(cluster: SparklogCluster, browser: Browser) -> None:
    member = ShareMember(cluster.bootstrap_servers, "teams/one")
    member.join("jobs")
    found = browser.get("/share-groups/teams%2Fone")
    assert (found["state"], found["assignor"], found["coordinator"]) == ("Stable", "simple", 1)
    assert [one["member"] for one in found["members"]] == ["member-1"]
    assert found["members"][0]["partitions"] == ["jobs-0", "jobs-1"]
    assert [found[f"{name}Problem"] for name in ("members", "positions", "states", "settings")] == [
        None
    ] * 4
    assert [(row["topic"], row["partition"], row["members"]) for row in found["partitions"]] == [
        ("jobs", 0, ["member-1"]), ("jobs", 1, ["member-1"]),
    ]  # fmt: skip
    listed = browser.get("/groups?lag=1&filter=teams")["groups"]
    assert [(one["group"], one["type"], one["state"]) for one in listed] == [
        ("teams/one", "Share", "Stable")
    ]
    assert 'href="/share-groups/teams%2Fone"' in browser.page("/groups")
    assert "Stop them first" in browser.page("/share-groups/teams%2Fone?to=earliest")
    plan = browser.get("/share-groups/teams%2Fone?to=latest")["plan"]
    assert [(row["offset"], row["newOffset"]) for row in plan] == [(None, 0), (None, 3)]
    shift = browser.get("/share-groups/teams%2Fone?to=shift&value=1", 400)
    assert "none to shift" in shift["message"]
    assert browser.get("/dead-letters/teams%2Fone")["deadLetterTopic"] == ""
    root = RootView(cluster.root)
    served = root.with_brokers({"security.protocol": "PLAINTEXT"})
    with browser_of(served) as client:
        beside = Browser(client).get("/share-groups/teams%2Fone")
        assert (beside["storage"], beside["state"], beside["memberCount"]) == (True, "Stable", 1)
    member.beat(-1)
    root.close()
    served.release()


def test_start_offsets_move_as_planned_and_the_group_is_deleted(
    cluster: SparklogCluster, browser: Browser
) -> None:
    member = ShareMember(cluster.bootstrap_servers, "workers")
    member.join("jobs")
    member.beat(-1)
    tp = TopicPartition("jobs", 1)
    with Admin(cluster.bootstrap_servers) as admin:
        assert admin.share_groups.move_offsets("workers", {tp: 3}) == {tp: None}
    found = browser.get("/share-groups/workers")
    rows = {row["partition"]: row for row in found["partitions"]}
    assert (rows[1]["startOffset"], rows[1]["windowEnd"], rows[1]["lag"]) == (3, 3, 0)
    query = "to=shift&value=-2"
    plan = browser.get(f"/share-groups/workers?{query}")["plan"]
    assert [(row["offset"], row["newOffset"]) for row in plan] == [(3, 1)]
    page = browser.page(f"/share-groups/workers?{query}")
    assert "Nothing has changed yet" in page
    assert "delivers them again" in page
    assert browser.get("/share-groups/workers")["lag"] == 0
    moved = browser.post("/share-groups/workers/offsets", to="shift", value="-2")
    assert moved["offsets"] == {"jobs-1": 1}
    (listed,) = browser.get("/groups?lag=1&filter=workers")["groups"]
    assert (listed["lag"], listed["problem"]) == (2, None)
    browser.submit("/share-groups/workers/delete", 400, confirm="work")
    text = browser.submit("/share-groups/workers/delete", confirm="workers")
    assert "Deleted share group workers" in text
    assert browser.get("/groups?filter=workers")["groups"] == []


def work(
    cluster: SparklogCluster, topic: str, decide: Callable[[bytes], ck.AcknowledgeType]
) -> None:
    """Read a topic as a member of `crew`, until each of its records had a decision."""
    member = ck.ShareConsumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "crew",
            "share.acknowledgement.mode": "explicit",
        }
    )
    member.subscribe([topic])
    seen: set[int] = set()

    def read() -> bool:
        for message in member.poll(0.2):
            assert message.error() is None, message.error()
            seen.add(message.offset() or 0)
            member.acknowledge(message, decide(message.value() or b""))
        return len(seen) == 4

    eventually(read, "the member has all records", 60)
    member.commit_sync()
    member.close()


def test_states_and_dead_letters_of_a_worker(cluster: SparklogCluster, browser: Browser) -> None:
    cluster.topic("tasks")
    cluster.topic("dlq.tasks", config={"errors.deadletterqueue.group.enable": "true"})
    cluster.produce("tasks", [b"keep", b"done", b"bad", b"done"])
    own = {
        "share.auto.offset.reset": "earliest",
        "errors.deadletterqueue.topic.name": "dlq.tasks",
    }
    with Admin(cluster.bootstrap_servers) as admin:
        admin.alter_configs("crew", own, kind=ConfigResource.GROUP)
    decisions = {b"keep": KIND.RELEASE, b"done": KIND.ACCEPT, b"bad": KIND.REJECT}
    work(cluster, "tasks", decisions.__getitem__)

    def settled() -> Any:
        found = browser.get("/share-groups/crew")
        return found if found["partitions"] and found["partitions"][0]["archived"] else None

    found = eventually(settled, "the rejected record is archived")
    (row,) = found["partitions"]
    assert (row["startOffset"], row["windowEnd"], row["endOffset"]) == (0, 4, 4)
    assert (row["available"], row["acknowledged"], row["archived"]) == (1, 2, 1)
    assert (found["lag"], row["deliveryCountMax"] >= 1) == (1, True)
    assert (found["deadLetterTopic"], found["copiesRecords"]) == ("dlq.tasks", False)
    letters = browser.get("/dead-letters/crew")
    (letter,) = letters["letters"]
    assert letter["source"] == {"topic": "tasks", "partition": 0, "offset": 2}
    assert (letter["deliveryCount"], letters["records"]) == ("1", 1)
    assert "rejected" in letter["message"]
    record = browser.get("/topics/tasks/partitions/0/records/2")
    assert record["value"]["text"] == "bad"
    (listed,) = browser.get("/groups?lag=1&filter=crew")["groups"]
    assert (listed["type"], listed["lag"]) == ("Share", 1)

    root = RootView(cluster.root)
    with browser_of(root) as client:
        stored = Browser(client)

        def flushed() -> Any:
            answer = stored.client.get("/api/v1/share-groups/crew")
            rows = answer.json().get("partitions")  # 404 until the states are flushed
            return rows if rows and rows[0]["archived"] else None

        (same,) = eventually(flushed, "the states are flushed")
        assert (same["available"], same["acknowledged"], same["archived"]) == (1, 2, 1)
    root.close()
