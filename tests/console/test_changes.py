"""Changes by pages and by JSON: what they do, and who may not make them."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pyarrow as pa
import pytest

from sparklog.console.resources import ChangeAction, ConsoleRole
from sparklog.console.root_view import RootView
from sparklog.console.sessions import RootLogins
from sparklog.console.site import ALL_CHANGES
from sparklog.log.schema import HEADERS
from tests.harness.console_browser import Browser, browser_of

Opens = Callable[..., Browser]


def test_topic_lives_from_its_creation_to_its_end(root_browser: Opens) -> None:
    browser = root_browser()
    text = browser.submit("/topics", name="orders", partitions="2", settings="retention.ms=5000")
    assert "Created topic orders with 2 partitions." in text
    assert "Created topic" not in browser.page("/topics/orders")
    browser.submit("/topics/orders/settings", name="cleanup.policy", value="compact")
    settings = {one["name"]: one for one in browser.get("/topics/orders")["settings"]}
    assert (settings["cleanup.policy"]["value"], settings["retention.ms"]["value"]) == (
        "compact", "5000",
    )  # fmt: skip
    browser.submit("/topics/orders/settings", name="cleanup.policy", reset="1", value="compact")
    assert "policy" in browser.post(
        "/topics/orders/settings", 400, name="cleanup.policy", value="shred"
    )["message"]  # fmt: skip
    browser.post("/topics/orders/partitions", total=3)

    done = browser.post(
        "/topics/orders/records", key="k", value="line\n<b>", headers="trace: 7", partition=2
    )
    assert (done["partition"], done["offset"]) == (2, 0)
    record = browser.get("/topics/orders/partitions/2/records/0")
    assert (record["key"]["text"], record["value"]["text"]) == ("k", "line\n<b>")
    assert record["headers"][0]["name"] == "trace"
    again = browser.page("/topics/orders/partitions/2/records/0")
    assert "line\n&lt;b&gt;</textarea>" in again
    text = browser.submit("/topics/orders/records", key="k", tombstone="1", partition="2")
    assert "partition 2, offset 1" in text
    assert browser.get("/topics/orders/partitions/2/records/1")["value"]["decoder"] == "null"

    assert "confirm" in browser.post("/topics/orders/purge", 400, confirm="order")["message"]
    starts = browser.post("/topics/orders/purge", confirm="orders", partition=2, before=1)
    assert starts["logStartOffsets"] == {"2": 1}
    browser.submit("/topics/orders/purge", confirm="orders")
    assert browser.get("/topics/orders")["records"] == 0
    browser.submit("/topics/orders/delete", 400, confirm="")
    browser.submit("/topics/orders/delete", confirm="orders")
    assert browser.get("/topics")["topics"] == []


def test_snapshot_is_taken_and_dropped(root_browser: Opens) -> None:
    browser = root_browser()
    browser.post("/topics", name="orders")
    browser.post("/topics/orders/records", value="v")
    assert browser.post("/snapshots", name="kept", topics="orders")["partitions"] == 1
    assert browser.get("/snapshots")["snapshots"][0]["records"] == 1
    browser.submit("/snapshots/kept/drop", confirm="kept")
    assert browser.get("/snapshots")["snapshots"] == []


FIELDS = {
    "password": "secret",
    "principal": "User:ann",
    "operation": "read",
    "resource": "topic",
    "name": "orders",
    "value": "v",
    "total": "9",
    "confirm": "flights",
    "to": "earliest",
    "level": "FULL",
    "target": "flights",
    "partition": "0",
    "base": "0",
    "end": "9",
    "startOffset": "0",
}


def request_of(change: ChangeAction) -> tuple[str, dict[str, str]]:
    path = re.sub(r"\{(\w+)\}", "flights", change.path)
    return path, {one.name: FIELDS[one.name] for one in change.fields if one.name in FIELDS}


@pytest.mark.parametrize("role", [ConsoleRole.VIEWER, ConsoleRole.EDITOR])
@pytest.mark.parametrize("change", ALL_CHANGES, ids=lambda change: change.name)
def test_lower_role_changes_nothing_by_hand_made_requests(
    change: ChangeAction, role: ConsoleRole, root_browser: Opens
) -> None:
    browser = root_browser(role=role)
    assert browser.log is not None
    browser.log.create_topic("flights", 1)
    before = browser.log.refresh().end_offset
    path, fields = request_of(change)
    if role >= change.role:
        return
    assert f"needs the role {change.role.word}" in browser.post(path, 403, **fields)["message"]
    assert "needs the role" in browser.submit(path, 403, **fields)
    for prefix in ("", "/api/v1"):
        for method in ("PUT", "PATCH", "DELETE"):
            answer = browser.client.request(method, prefix + path, json=fields)
            assert answer.status_code in {404, 405}
    assert browser.log.refresh().end_offset == before
    assert browser.log.partition("flights", 0).view().end_offset == 0


@pytest.mark.parametrize("change", ALL_CHANGES, ids=lambda change: change.name)
def test_every_change_needs_token_and_same_site(change: ChangeAction, root_browser: Opens) -> None:
    browser = root_browser()
    assert browser.log is not None
    browser.log.create_topic("flights", 1)
    before = browser.log.refresh().end_offset
    path, fields = request_of(change)
    token = browser.token()
    for headers in (
        {},
        {"X-CSRF-Token": "0" * 64},
        {"X-CSRF-Token": token, "Origin": "http://evil.example"},
        {"X-CSRF-Token": token, "Origin": "null"},
        {"X-CSRF-Token": token, "Sec-Fetch-Site": "cross-site"},
    ):
        answer = browser.client.post(f"/api/v1{path}", json=fields, headers=headers)
        assert answer.status_code == 403, answer.text
        assert browser.client.post(path, data=fields, headers=headers).status_code == 403
    assert browser.log.refresh().end_offset == before


def test_access_pages_say_which_rule_decides(root_browser: Opens) -> None:
    browser = root_browser()
    browser.post("/users", name="ann/b", password="secret")
    assert [one["user"] for one in browser.get("/users")["users"]] == ["ann/b"]
    rule: dict[str, Any] = {"principal": "User:ann", "operation": "read", "resource": "topic"}
    browser.post("/acls", **rule, name="flights", pattern="prefixed")
    browser.submit("/acls", **rule, name="flights-secret", permission="deny")
    ask = "/acls?principal=User:ann&resource=topic&operation=describe&name="
    assert browser.get(ask + "flights-1")["decision"] == {
        "allowed": True,
        "rule": "MatchingAcl(acl=User:ann ALLOW READ on TOPIC:PREFIXED:flights from *)",
    }
    read = ask.replace("describe", "read")
    assert "DENY READ" in browser.get(read + "flights-secret")["decision"]["rule"]
    assert browser.get(ask + "orders")["decision"] == {"allowed": False, "rule": "DefaultDeny"}
    assert "may not read" in browser.page(read + "flights-secret")
    wrong = browser.get("/acls?principal=User:ann&resource=group&operation=write&name=g", 400)
    assert "has the operations" in wrong["message"]
    browser.post("/acls/delete", **rule, name="flights", pattern="prefixed")
    assert browser.get(ask + "flights-1")["decision"]["allowed"] is False
    assert "no such ACL" in browser.post(
        "/acls/delete", 400, **rule, name="flights", pattern="prefixed"
    )["message"]  # fmt: skip
    browser.post("/acls", 400, **rule, name="x" * 300)
    browser.submit("/users/ann%2Fb/delete", confirm="ann/b")
    assert browser.get("/users")["users"] == []


def test_quota_is_set_and_removed(root_browser: Opens) -> None:
    browser = root_browser()
    whom: dict[str, Any] = {
        "user": "(default)",
        "clientId": "reports",
        "name": "producer_byte_rate",
    }
    assert browser.post("/quotas", value=1024, **whom)["message"] == (
        "Set producer_byte_rate of user (default), client-id reports."
    )
    (found,) = browser.get("/users")["quotas"]
    assert found == {
        "entity": {"client-id": "reports", "user": "(default)"},
        "limits": {"producer_byte_rate": 1024.0},
    }
    page = browser.page("/users")
    assert 'name="clientId" value="reports"' in page
    assert "Removed producer_byte_rate" in browser.submit("/quotas", **whom)
    assert browser.get("/users")["quotas"] == []
    assert "name one" in browser.post("/quotas", 400, name="producer_byte_rate")["message"]
    browser.post("/quotas", 400, ip="somewhere", name="connection_creation_rate", value=1)


def test_forged_hosts_and_huge_requests_are_refused(root_browser: Opens) -> None:
    browser = root_browser()
    assert browser.client.get("/", headers={"Host": "evil.example"}).status_code == 421
    huge = browser.client.post("/topics", data={"name": "x" * 1_000_000})
    assert huge.status_code == 400
    assert "too large" in huge.text
    for body, words in ((b"[1]", "JSON object"), (b"{", "JSON"), (b'{"name": []}', "is a string")):
        answer = browser.client.post(
            "/api/v1/topics", content=body, headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == 400
        assert words in answer.json()["message"]


def test_users_log_in_with_their_roles(root_browser: Opens, tmp_path: object) -> None:
    view = RootView(str(tmp_path))
    view.storage().set_password("ann", "secret-1")
    view.storage().set_password("bob", "secret-2")
    logins = RootLogins(view, {"ann": ConsoleRole.ADMIN})
    with browser_of(view, logins=logins) as client:
        browser = Browser(client)
        assert client.get("/topics", follow_redirects=False).headers["location"] == "/login"
        assert browser.get("/topics", 401)["error"] == "Log in first"
        for user, password in (("ann", "secret-2"), ("carl", "secret-1"), ("", "")):
            answer = client.post("/login", data={"user": user, "password": password})
            assert answer.status_code == 401
            assert "wrong" in answer.text
        client.post("/login", data={"user": "bob", "password": "secret-2"})
        assert browser.get("/session")["role"] == "viewer"
        browser.post("/topics", 403, name="orders")
        client.post("/logout", data={"csrf": browser.token()})
        browser.get("/session", 401)
        client.post("/login", data={"user": "ann", "password": "secret-1"})
        assert (browser.get("/session")["user"], browser.get("/session")["role"]) == (
            "ann", "admin",
        )  # fmt: skip
        browser.post("/topics", name="orders")
    view.close()


def test_topic_is_cloned_without_its_records(root_browser: Opens) -> None:
    browser = root_browser()
    browser.post("/topics", name="orders", partitions=3, settings="retention.ms=5000")
    browser.post("/topics/orders/records", value="v")
    browser.submit("/topics/orders/clone", name="copy")
    made = browser.get("/topics/copy")
    assert (len(made["partitions"]), made["records"]) == (3, 0)
    own = {one["name"]: one["value"] for one in made["settings"] if one["own"]}
    assert own == {"retention.ms": "5000"}
    browser.post("/topics/orders/clone", 400, name="copy")
    browser.post("/topics/none/clone", 404, name="other")


def test_range_is_replayed_as_it_was(root_browser: Opens) -> None:
    browser = root_browser()
    browser.post("/topics", name="orders", partitions=2)
    browser.post("/topics", name="target", partitions=1)
    for number in range(5):
        browser.post(
            "/topics/orders/records", key=f"k{number}", value="v", headers="h: 1", partition=1
        )
    fields: dict[str, Any] = {"target": "target", "partition": 1, "base": 1, "end": 4}
    done = browser.post("/topics/orders/replay", **fields)
    assert (done["records"], done["partition"], done["nextOffset"]) == (3, 0, 4)
    rows = browser.get("/topics/target/records?from=oldest")["records"]
    before = browser.get("/topics/orders/records?from=oldest&partition=1")["records"][1:4]
    for name in ("key", "value", "headers", "timestamp"):
        assert [row[name] for row in rows] == [row[name] for row in before]
    some = browser.post("/topics/orders/replay", limit=2, **fields)
    assert "Go on at offset 3." in some["message"]
    for wrong, status in (
        ({"target": "none"}, 404),
        ({"target": "__consumer_offsets"}, 404),
        ({"partition": 9}, 404),
        ({"base": 90, "end": 99}, 400),
        ({"base": 3, "end": 3}, 400),
        ({"limit": 10_001}, 400),
    ):
        browser.post("/topics/orders/replay", status, **{**fields, **wrong})


@pytest.mark.parametrize(
    ("key", "value", "form"),
    [
        (b"k", b"line\n<b>", "text"),
        (b"", None, "text"),
        (None, b"", "text"),
        (b"\xff", b"v", "hex"),
        (b"k", b"a\r\nb", "hex"),
        (b"a\nb", "right\u202eleft".encode(), "hex"),
        (b"k", b"\n leads and ends \n", "text"),
    ],
)
def test_record_edited_in_a_form_keeps_its_bytes(
    key: bytes | None, value: bytes | None, form: str, root_browser: Opens
) -> None:
    browser = root_browser()
    assert browser.log is not None
    browser.log.create_topic("orders", 1)
    headers = [{"key": "a", "value": b"1"}, {"key": "b", "value": b"\xff"}]
    batch = {
        "key": pa.array([key], pa.binary()),
        "value": pa.array([value], pa.binary()),
        "headers": pa.array([headers], HEADERS),
    }
    browser.log.partition("orders", 0).append([pa.record_batch(batch)])
    document = browser.get("/topics/orders/partitions/0/records/0")
    assert document["command"].endswith("--partition 0 --offset 0 --max-messages 1")
    edit = document["edit"]
    assert (edit["format"], edit["headersLeftOut"], edit["headers"]) == (form, 1, ["a: 1"])
    page = browser.page("/topics/orders/partitions/0/records/0")
    parsed = PageForm(page, "/topics/orders/records")
    browser.submit("/topics/orders/records", **parsed.fields)
    row = browser.log.partition("orders", 0)
    (again,) = pa.Table.from_batches(row.read(1, 2, ("key", "value"))).to_pylist()
    assert (again["key"], again["value"]) == (key, value)


class PageForm(HTMLParser):
    """The fields that a browser would send with the last form of a page that has this action."""

    def __init__(self, page: str, action: str) -> None:
        super().__init__()
        self.fields: dict[str, Any] = {}
        self._action = action
        self._inside = False
        self._area = self._select = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        name = given.get("name") or ""
        if tag == "form":
            self._inside = given.get("action") == self._action
        elif not self._inside:
            return
        elif tag == "textarea":
            self._area = name
            self.fields[name] = ""
        elif tag == "select":
            self._select = name
        elif tag == "option":
            if "selected" in given or self._select not in self.fields:
                self.fields[self._select] = "hex" if "selected" in given else "text"
        elif (
            tag == "input"
            and name != "csrf"
            and (given.get("type") != "checkbox" or "checked" in given)
        ):
            self.fields[name] = given.get("value") or ""

    def handle_data(self, data: str) -> None:
        if self._inside and self._area:
            self.fields[self._area] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea" and self._inside:
            # A browser drops the first line break, and sends line breaks as CR LF.
            text = self.fields[self._area].removeprefix("\n")
            self.fields[self._area] = text.replace("\n", "\r\n")
            self._area = ""
        self._inside = self._inside and tag != "form"
