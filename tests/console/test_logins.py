"""Logins at brokers: the console acts as each user, so that ACLs decide what a page shows."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka as ck

from sparklog.client.admin import Admin
from sparklog.client.values import ConfigResource
from sparklog.cluster.log import open_log
from sparklog.console.resources import ConsoleRole
from sparklog.console.root_view import RootView
from sparklog.console.sessions import BrokerLogins, RootLogins
from sparklog.security.acls import (
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from sparklog.security.principal import Principal
from sparklog.testing.cluster import SparklogCluster
from tests.harness.console_browser import Browser, browser_of, ended
from tests.harness.login_listener import ROOT_LOGIN, SETTINGS
from tests.harness.waiting import eventually


def may(operation: AclOperation, topic: str) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC, topic, PatternType.LITERAL, Principal("User", "ann"), "*", operation,
        AclPermission.ALLOW,
    )  # fmt: skip


def test_states_of_share_groups_need_read_on_their_topic(tmp_path: Path) -> None:
    root = str(tmp_path / "log")
    of_group = AclBinding(
        ResourceType.GROUP, "workers", PatternType.LITERAL, Principal("User", "ann"), "*",
        AclOperation.DESCRIBE, AclPermission.ALLOW,
    )  # fmt: skip
    with open_log(root) as log:
        log.set_password("root", "root-secret")
        log.set_password("ann", "ann-secret")
        log.create_acls([may(AclOperation.READ, "jobs"), of_group])
    with SparklogCluster(config=SETTINGS, root=root, security=ROOT_LOGIN) as cluster:
        cluster.topic("jobs")
        cluster.produce("jobs", [b"a", b"b", b"c"])
        with Admin(cluster.bootstrap_servers, settings=ROOT_LOGIN) as admin:
            reset = {"share.auto.offset.reset": "earliest"}
            admin.alter_configs("workers", reset, kind=ConfigResource.GROUP)
        about = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "workers",
            "share.acknowledgement.mode": "explicit",
        }
        member = ck.ShareConsumer(about | ROOT_LOGIN)
        member.subscribe(["jobs"])
        eventually(lambda: member.poll(0.2), "the member has records", 60)
        member.close()
        logins = BrokerLogins(cluster.bootstrap_servers, {}, ConsoleRole.ADMIN)
        view = RootView(root)
        with browser_of(view, logins=logins) as client:
            browser = Browser(client)
            client.post("/login", data={"user": "ann", "password": "ann-secret"})
            found = browser.get("/share-groups/workers")
            assert "__share_group_state" in found["statesProblem"]
            (row,) = found["partitions"]
            assert (row["startOffset"], row["available"]) == (0, None)
            assert row["lag"] == 3
            assert "cannot be read from" in browser.page("/share-groups/workers")
            client.post("/logout", data={"csrf": browser.token()})
            client.post("/login", data={"user": "root", "password": "root-secret"})

            def released() -> bool:
                found = browser.get("/share-groups/workers")
                assert found["statesProblem"] is None
                return bool(found["partitions"][0]["available"] == 3)

            eventually(released, "the records that the member had are available again")
        view.close()


def test_acls_limit_pages_and_changes_of_a_user(tmp_path: Path) -> None:
    root = str(tmp_path / "log")
    with open_log(root) as log:
        log.set_password("root", "root-secret")
        log.set_password("ann", "ann-secret")
        log.create_acls([may(AclOperation.READ, "flights")])
    with SparklogCluster(config=SETTINGS, root=root, security=ROOT_LOGIN) as cluster:
        cluster.topic("flights")
        cluster.topic("orders")
        cluster.produce("flights", [b"hello"])
        logins = BrokerLogins(cluster.bootstrap_servers, {}, ConsoleRole.ADMIN)
        view = RootView(root)
        with browser_of(view, logins=logins) as client:
            browser = Browser(client)
            wrong = client.post("/login", data={"user": "ann", "password": "root-secret"})
            assert wrong.status_code == 401
            client.post("/login", data={"user": "ann", "password": "ann-secret"})
            (own,) = browser.get("/topics")["topics"]
            assert (own["name"], own["createdBy"]) == ("flights", None), "no DescribeConfigs"
            (row,) = browser.get("/topics/flights/records")["records"]
            assert row["value"]["text"] == "hello"
            (sized,) = browser.get("/topics?sizes=1")["topics"]
            assert sized["bytes"] is None
            for path in ("/", "/topics", "/topics/flights", "/groups", "/jobs", "/brokers"):
                browser.page(path)
            (cell,) = ended(browser, "SELECT try_text(value) FROM flights")["records"][0]["cells"]
            assert cell["text"] == "hello"
            refused = ended(browser, "SELECT value FROM orders")
            assert (refused["state"], "no such topic" in refused["message"]) == ("failed", True)
            browser.get("/topics/orders", 403)
            browser.get("/brokers/1", 403)
            assert browser.post("/topics", 403, name="new")["error"] == "Not allowed"
            browser.post("/topics/flights/records", 403, value="forged")
            browser.post("/topics/flights/delete", 403, confirm="flights")
            client.post("/logout", data={"csrf": browser.token()})
            client.post("/login", data={"user": "root", "password": "root-secret"})
            assert browser.get("/topics")["all"] == 2
            browser.post("/topics", name="new")
            listed = browser.get("/topics")["topics"]
            assert {one["name"]: one["createdBy"] for one in listed}["new"] == "User:root"
            assert "<dt>Created by</dt><dd>User:root</dd>" in browser.page("/topics/new")
        settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"}
        with browser_of(view, logins=RootLogins(view, {}, settings=settings)) as client:
            browser = Browser(client)
            for name, denied in (("ann", True), ("root", False)):
                client.post("/login", data={"user": name, "password": f"{name}-secret"})
                found = browser.get("/groups/readers")
                assert ("uthoriz" in (found["membersProblem"] or "")) is denied
                assert browser.get("/transactions")["transactions"] == []
                client.post("/logout", data={"csrf": browser.token()})
        with browser_of(view) as client:
            listed = Browser(client).get("/topics")["topics"]
            assert {one["name"]: one["createdBy"] for one in listed}["new"] == "User:root"
        view.close()
