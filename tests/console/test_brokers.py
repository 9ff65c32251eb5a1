"""A console of one broker: pages, groups with a reset, the live tail, and the root beside it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import confluent_kafka
import httpx2 as httpx
import pytest

from sparklog.client.admin import Admin
from sparklog.client.consumer import Consumer
from sparklog.client.values import EARLIEST, LATEST, ListedOffset
from sparklog.console.broker_view import BrokerView
from sparklog.console.cluster_view import NewRecord
from sparklog.console.resources import ConsoleRole
from sparklog.console.root_view import RootView
from sparklog.core.types import TopicPartition
from sparklog.testing.cluster import SparklogCluster
from tests.harness.console_browser import Browser, browser_of, served
from tests.harness.hanging import FORGETFUL, leave_hanging
from tests.harness.waiting import eventually


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparklogCluster]:
    with SparklogCluster(config=FORGETFUL) as running:
        running.topic("flights", partitions=2, config={"flush.ms": "200"})
        view = BrokerView(running.bootstrap_servers, {})
        for value in (b"a", b"b", b"c"):
            view.append(NewRecord("flights", None, value, partition=1))
        view.close()
        yield running


@pytest.fixture
def browser(cluster: SparklogCluster) -> Iterator[Browser]:
    view = BrokerView(cluster.bootstrap_servers, {})
    with browser_of(view) as client:
        yield Browser(client)
    view.close()


def commit(cluster: SparklogCluster, group: str, offset: int) -> None:
    """Leave a group without members behind, with one committed offset."""
    with Consumer(cluster.bootstrap_servers, group=group) as consumer:
        consumer.assign({TopicPartition("flights", 1): EARLIEST})
        read = 0
        while read < offset:
            read += len(consumer.poll(offset - read, 1.0))
        consumer.commit()


def test_pages_come_from_brokers(cluster: SparklogCluster, browser: Browser) -> None:
    overview = browser.get("/overview")
    assert (overview["brokers"], overview["controller"]) == (1, 1)
    assert [one["finding"] for one in overview["findings"]] == ["no-jobs"]
    (topic,) = browser.get("/topics?sizes=1")["topics"]
    assert (topic["name"], topic["partitions"], topic["leaderless"]) == ("flights", 2, 0)
    assert topic["bytes"] is not None
    detail = browser.get("/topics/flights")
    assert [row["endOffset"] for row in detail["partitions"]] == [0, 3]
    for path in ("/", "/topics/flights", "/topics/flights/records", "/brokers", "/brokers/1",
                 "/groups", "/jobs", "/transactions", "/transactions/hanging", "/moves", "/sql",
                 "/schemas", "/topics/flights/find"):  # fmt: skip
        browser.page(path)
    assert "--root" in browser.get("/snapshots", 400)["message"]
    newest = browser.get("/topics/flights/records?limit=2")
    assert [row["value"]["text"] for row in newest["records"]] == ["c", "b"]
    older = browser.get(f"/topics/flights/records?limit=2&from=before&at={newest['older']}")
    assert [row["value"]["text"] for row in older["records"]] == ["a"]
    done = browser.post("/topics/flights/records", key="k", value="d", headers="h: 1", partition=0)
    record = browser.get(f"/topics/flights/partitions/0/records/{done['offset']}")
    assert (record["value"]["text"], record["headers"][0]["value"]["text"]) == ("d", "1")


def test_reset_shows_its_plan_before_it_moves_offsets(
    cluster: SparklogCluster, browser: Browser
) -> None:
    commit(cluster, "readers/one", 3)
    found = browser.get("/groups/readers%2Fone")
    assert (found["lag"], found["offsets"][0]["offset"], found["members"]) == (0, 3, [])
    query = "to=shift&value=-2"
    plan = browser.get(f"/groups/readers%2Fone?{query}")["plan"]
    assert [(row["offset"], row["newOffset"]) for row in plan] == [(3, 1)]
    assert "Nothing has changed yet" in browser.page(f"/groups/readers%2Fone?{query}")
    for ago, offset in (("PT1H", 0), (f"-P{'9' * 50}D", 3)):
        plan = browser.get(f"/groups/readers%2Fone?to=duration&value={ago}")["plan"]
        assert [row["newOffset"] for row in plan] == [offset]
    assert "PT30S" in browser.get("/groups/readers%2Fone?to=duration&value=1h", 400)["message"]
    assert browser.get("/groups/readers%2Fone")["offsets"][0]["offset"] == 3
    moved = browser.post("/groups/readers%2Fone/offsets", to="shift", value="-2")
    assert moved["offsets"] == {"flights-1": 1}
    listed = browser.get("/groups?lag=1&filter=READERS")["groups"]
    assert [(one["group"], one["lag"]) for one in listed] == [("readers/one", 2)]

    root = RootView(cluster.root)
    with browser_of(root, ConsoleRole.VIEWER) as client:
        stored = Browser(client)
        eventually(lambda: stored.get("/groups")["groups"], "the offsets are flushed")
        (row,) = stored.get("/groups/readers%2Fone")["offsets"]
        assert (row["topic"], row["partition"]) == ("flights", 1)
        assert "on brokers" not in stored.page("/groups/readers%2Fone")
    root.close()

    browser.submit("/groups/readers%2Fone/delete", 400, confirm="readers")
    browser.submit("/groups/readers%2Fone/delete", confirm="readers/one")
    assert browser.get("/groups")["groups"] == []
    browser.get("/groups/readers%2Fone", 404)


@pytest.mark.parametrize("kind", ["brokers", "root"])
def test_live_tail_sends_new_records(cluster: SparklogCluster, kind: str) -> None:
    sender = BrokerView(cluster.bootstrap_servers, {})
    view = sender if kind == "brokers" else RootView(cluster.root)
    with served(view, ConsoleRole.VIEWER) as url, httpx.Client(base_url=url, timeout=30) as client:
        path = "/api/v1/topics/flights/tail?partition=0"
        seen: list[str] = []
        with client.stream("GET", path) as events:
            assert events.headers["content-type"].startswith("text/event-stream")
            assert events.headers["x-accel-buffering"] == "no"
            lines = events.iter_lines()
            sent = 0
            for line in lines:
                if line.startswith("data: "):
                    seen += [row["value"]["text"] for row in json.loads(line[6:])["records"]]
                if seen:
                    break
                if line == "" and sent < 1:
                    record = NewRecord("flights", None, b"live", partition=0)
                    threading.Timer(1.0, sender.append, (record,)).start()
                    sent += 1
        assert seen == ["live"]
        problem = client.get("/api/v1/topics/gone/tail").text
        assert "event: problem" in problem
        assert "no such topic" in problem
    view.close()
    sender.close()


def test_silent_brokers_are_reported_in_words() -> None:
    view = BrokerView("127.0.0.1:1", {})
    with browser_of(view) as client:
        browser = Browser(client)
        assert "no broker answers" in browser.page("/", 503)
        assert browser.get("/topics", 503)["error"] == "No answer"
    view.close()


def test_open_transaction_is_aborted_in_its_partition(
    cluster: SparklogCluster, browser: Browser
) -> None:
    cluster.topic("billing")
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "billing"}
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("billing", b"open", partition=0)
    assert producer.flush(30) == 0
    (listed,) = browser.get("/transactions")["transactions"]
    assert (listed["transactionalId"], listed["state"]) == ("billing", "Ongoing")
    # Its coordinator knows it and will end it, so it does not hang.
    hanging = "/transactions/hanging?topic=billing&minutes=0"
    assert browser.get(hanging)["transactions"] == []
    abort = "/topics/billing/partitions/0/abort"
    assert "confirm" in browser.post(abort, 400, startOffset=0, confirm="bill")["message"]
    text = browser.submit(abort, startOffset="0", confirm="billing")
    assert "Aborted the transaction at offset 0" in text
    again = browser.post(abort, 400, startOffset=0, confirm="billing")
    assert "no open transaction" in again["message"]


def test_forgotten_transaction_is_found_and_aborted_and_the_lso_moves(
    cluster: SparklogCluster, browser: Browser
) -> None:
    tp = TopicPartition("stuck", 0)
    leave_hanging(cluster, tp)
    with Admin(cluster.bootstrap_servers) as admin:

        def lso() -> int:
            found = admin.offsets({tp: LATEST}, committed_only=True)[tp]
            assert isinstance(found, ListedOffset)
            return found.offset

        cluster.produce("stuck", [b"behind"])

        def known() -> set[str]:
            listed = browser.get("/transactions")["transactions"]
            return {one["transactionalId"] for one in listed}

        eventually(lambda: "late-stuck" not in known(), "the coordinator forgets the producer")
        assert lso() == 2, "the late record, behind the first one and its marker"
        records = "/topics/stuck/records?from=oldest"
        assert [row["value"]["text"] for row in browser.get(records)["records"]] == ["first"]

        (hanging,) = browser.get("/transactions/hanging?minutes=0")["transactions"]
        assert (hanging["topic"], hanging["partition"], hanging["startOffset"]) == ("stuck", 0, 2)
        assert browser.get("/transactions/hanging")["transactions"] == [], "15 minutes by default"
        text = browser.page("/transactions/hanging?topic=stuck&minutes=0")
        abort = "/topics/stuck/partitions/0/abort"
        assert f'action="{abort}"' in text
        browser.submit(abort, startOffset="2", confirm="stuck")
        assert lso() == 5, "the late record, the one behind it, and the marker of the abort"
        assert browser.get("/transactions/hanging?minutes=0")["transactions"] == []
        shown = [row["value"]["text"] for row in browser.get(records)["records"]]
        assert shown == ["first", "behind"]


def test_leaders_are_elected_and_moves_are_checked(browser: Browser) -> None:
    done = browser.post("/topics/flights/elections")
    assert (done["elected"], done["partitions"]) == (0, 2)
    assert browser.get("/moves")["moves"] == []
    browser.post("/topics/flights/replicas", partition=0, replicas="1")
    for wrong in ("", "1,1", "x", "-1"):
        browser.post("/topics/flights/replicas", 400, partition=0, replicas=wrong)
    refused = browser.client.post(
        "/api/v1/topics/flights/replicas", json={"partition": 0, "replicas": "9"},
        headers={"X-CSRF-Token": browser.token()},
    )  # fmt: skip
    assert refused.status_code >= 400


def test_group_has_lag_in_time_and_history(cluster: SparklogCluster) -> None:
    commit(cluster, "late", 1)
    view = BrokerView(cluster.bootstrap_servers, {})
    with browser_of(view) as client:
        browser = Browser(client)
        first = browser.get("/groups/late")
        assert (first["lag"], first["lagTime"], first["chart"]) == (2, None, None)
        timed = browser.get("/groups/late?time=1")
        assert 0 < timed["lagTime"] < 600_000
        view.lags.sample()
        assert browser.get("/groups/late")["chart"]["rates"] == [2.0] * 4
        assert 'hx-get="/groups/late?time=1"' in browser.page("/groups/late")
        assert 'data-series="Records"' in browser.page("/groups/late?time=1")
    view.close()


def test_root_beside_brokers_shows_members_and_transactions(cluster: SparklogCluster) -> None:
    # An open transaction: these brokers soon forget the id of a producer without one.
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "beside"}
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(cluster.topic("opened"), b"open", partition=0)
    assert producer.flush(30) == 0
    root = RootView(cluster.root)
    view = root.with_brokers({"security.protocol": "PLAINTEXT"})
    with (
        Consumer(cluster.bootstrap_servers, group="present") as consumer,
        browser_of(view) as client,
        browser_of(root) as alone,
    ):
        consumer.subscribe(["flights"])
        browser, without = Browser(client), Browser(alone)

        def stable() -> bool:
            consumer.poll(10, 0.2)
            listed = browser.get("/groups?filter=present")["groups"]
            return [one["state"] for one in listed] == ["Stable"]

        eventually(stable, "the group has its member")
        found = browser.get("/groups/present")
        assert (found["storage"], found["state"], found["memberCount"]) == (True, "Stable", 1)
        assert found["members"][0]["partitions"] == ["flights-0", "flights-1"]
        ids = {one["transactionalId"] for one in browser.get("/transactions")["transactions"]}
        assert "beside" in ids
        assert browser.get("/transactions/hanging?topic=flights")["lookedAt"] == 2
        assert 'href="/transactions"' in browser.page("/groups/present")
        page = without.page("/groups/present")
        assert "known to brokers only" in page
        assert 'href="/transactions"' not in page
        assert "--bootstrap-server" in without.get("/transactions", 400)["message"]
    producer.abort_transaction(30)
    root.close()
    view.release()
