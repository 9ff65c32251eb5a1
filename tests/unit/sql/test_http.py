"""SQL over HTTP: answers, refusals, limits, logins, clients that leave, and arriving rows."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx2 as httpx
import pyarrow as pa
import pytest

from sparklog.cli.console.arrival_printer import followed_topic
from sparklog.client.values import EARLIEST, LATEST
from sparklog.cluster.log import Log, open_log
from sparklog.core.web_requests import LOOPBACK_NAMES
from sparklog.security.acls import (
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from sparklog.security.principal import Principal
from sparklog.sql.engine import DecodeRules, QueryLimits
from sparklog.sql.http.access import OpenAccess, RootAccess, TopicAccess
from sparklog.sql.http.server import QUERIES_MAX, QueryService, application
from sparklog.sql.topics import RootTopics
from tests.harness.log_records import batch
from tests.harness.waiting import eventually
from tests.harness.web_server import web_server

ENDLESS = "select count(*) from range(1000000000000) t(i) where i % 7 = 3"
LIMITS = QueryLimits(timeout_s=60, memory_bytes=256 << 20, rows_max=1000, threads=1)
SQL = "/api/v1/sql"


@pytest.fixture(scope="module")
def log() -> Iterator[Log]:
    with open_log(f"memory://{uuid4().hex}") as opened:
        opened.create_topic("orders", 1, {"sparklog.key.index": "bloom"})
        values = [json.dumps({"n": n}).encode() for n in range(4)]
        rows = batch([*values, None], keys=[b"a", b"b/c", b"\xff", b"a", b"gone"])
        opened.partition("orders", 0).append([rows])
        opened.create_topic("secret")
        opened.partition("secret", 0).append([batch([b"s"], keys=[b"k"])])
        yield opened


@contextmanager
def served(log: Log, make: Callable[[RootTopics], TopicAccess]) -> Iterator[str]:
    """Serve from a thread of this process; the URL."""
    with RootTopics(log) as topics:
        service = QueryService(
            make(topics),
            lambda found, query, _, beginning: followed_topic(
                found, query, EARLIEST if beginning else LATEST, None, {}
            ),
            LIMITS,
            DecodeRules(),
        )
        app = application(service, LOOPBACK_NAMES)
        with web_server(app) as (url, _):
            yield url


@pytest.fixture(scope="module")
def url(log: Log) -> Iterator[str]:
    with served(log, OpenAccess) as found:
        yield found


@pytest.fixture
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=60) as made:
        yield made


def asked(http: httpx.Client, statement: str, **more: Any) -> httpx.Response:
    return http.post(SQL, json={"statement": statement, **more})


def test_an_answer_is_json_csv_or_arrow(http: httpx.Client) -> None:
    statement = "select offset, key, n from json.orders order by offset limit 3"
    found = asked(http, statement)
    assert found.status_code == 200, found.text
    document = found.json()
    assert document["columns"] == [
        {"name": "offset", "type": "int64"}, {"name": "key", "type": "binary"},
        {"name": "n", "type": "int64"},
    ]  # fmt: skip
    assert document["rows"] == [[0, "a", 0], [1, "b/c", 1], [2, {"base64": "/w=="}, 2]]
    assert (document["truncated"], document["bytes"] > 0) == (False, True)
    assert http.get(SQL, params={"statement": statement}).json()["rows"] == document["rows"]
    text = http.post(
        SQL, content=statement, headers={"content-type": "application/sql", "accept": "text/csv"}
    )
    assert text.text == "offset,key,n\n0,a,0\n1,b/c,1\n2,\\xff,2\n"
    assert text.headers["content-type"] == "text/csv; charset=utf-8"
    stream = pa.ipc.open_stream(asked(http, statement, format="arrow").content)
    assert stream.read_all().column("n").to_pylist() == [0, 1, 2]
    assert asked(http, "select 1 as x where false").json()["rows"] == []
    assert asked(http, "select 'nan'::double as x").json()["rows"] == [["nan"]]


def test_rows_beyond_the_limit_are_left_out(http: httpx.Client) -> None:
    cut = asked(http, "select * from range(10)", rows_max=4)
    assert (len(cut.json()["rows"]), cut.json()["truncated"]) == (4, True)
    assert cut.headers["rows-max"] == "4"
    most = asked(http, "select * from range(5000)", rows_max=1_000_000).json()
    assert (len(most["rows"]), most["truncated"]) == (LIMITS.rows_max, True)
    slow = asked(http, ENDLESS, timeout_s=1)
    assert (slow.status_code, "time limit" in slow.json()["error"]) == (400, True)


@pytest.mark.parametrize(
    ("given", "status", "reason"),
    [
        ({"statement": "select nope from orders"}, 400, "line=1 column=8 near='nope'"),
        ({"statement": "select * from nope"}, 404, "no such topic"),
        ({"statement": "insert into orders values (1)"}, 400, "only read"),
        ({"statement": "from read_csv('/etc/passwd')"}, 400, "disabled by configuration"),
        ({"statement": "select n from json.orders where error('x') = n"}, 400, "x"),
        ({"statement": " "}, 400, "statement is missing"),
        ({"statement": "select 1", "threads": 8}, 400, "no such parameter: 'threads'"),
        ({"statement": "select 1", "rows_max": "-1"}, 400, "rows_max"),
        ({"statement": "select 1", "format": "xml"}, 400, "no such format"),
        ([1], 400, "no JSON object"),
    ],
)
def test_wrong_requests_are_refused(
    http: httpx.Client, given: Any, status: int, reason: str
) -> None:
    found = http.post(SQL, json=given)
    assert found.status_code == status, found.text
    assert reason in found.json()["error"]


def test_requests_of_other_sites_and_large_ones_are_refused(http: httpx.Client) -> None:
    assert http.get(SQL, headers={"host": "evil.example"}).status_code == 421
    assert http.get(SQL, headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert http.post(SQL, content="select 1").status_code == 400
    large = http.post(SQL, json={"statement": "x" * (3 << 20)})
    assert (large.status_code, "too large" in large.json()["error"]) == (400, True)
    assert http.get("/api/v1/nothing").status_code == 404
    headers = http.get(SQL, params={"statement": "select 1"}).headers
    assert headers["cache-control"] == "no-store"
    assert "default-src 'none'" in headers["content-security-policy"]


def test_the_newest_record_of_a_key_is_found(http: httpx.Client) -> None:
    keys = "/api/v1/topics/orders/keys"
    found = http.get(f"{keys}/a").json()
    assert (found["offset"], found["value"], found["key"]) == (3, '{"n": 3}', "a")
    assert http.get(f"{keys}/b%2Fc").json()["offset"] == 1
    assert http.get(f"{keys}/%FF").json()["offset"] == 2
    assert "tombstone" in http.get(f"{keys}/gone").json()["error"]
    for path, status in [
        (f"{keys}/none", 404), ("/api/v1/topics/nope/keys/a", 404),
        (f"{keys}/a?partition=7", 404), (f"{keys}/a?partition=x", 400),
    ]:  # fmt: skip
        assert http.get(path).status_code == status, path


def test_a_query_ends_when_its_client_leaves(http: httpx.Client, url: str) -> None:
    path = f"{SQL}?statement={quote(ENDLESS)}"
    place = ("127.0.0.1", int(url.rpartition(":")[2]))
    with ExitStack() as clients:
        for _ in range(QUERIES_MAX):
            made = clients.enter_context(socket.create_connection(place))
            made.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

        def refused() -> bool:
            return asked(http, "select 1").status_code == 503

        eventually(refused, "as many queries as may run at a time")
    eventually(lambda: asked(http, "select 1").status_code == 200, "room for a query")


def arrived(lines: Iterator[str], count: int) -> list[Any]:
    """Return the rows of the next events."""
    rows: list[Any] = []
    while len(rows) < count:
        line = next(lines)
        if line.startswith("data: "):
            rows += json.loads(line.removeprefix("data: ")).get("rows", [])
    return rows


def test_rows_are_sent_as_records_arrive(log: Log, http: httpx.Client) -> None:
    log.create_topic("arriving")
    parameters = {"statement": "select offset, text(value) as v from arriving where offset <> 1"}
    with http.stream("GET", f"{SQL}/follow", params=parameters) as found:
        assert found.headers["content-type"].startswith("text/event-stream")
        lines = found.iter_lines()
        assert [next(lines), next(lines)] == [
            "event: columns",
            'data: {"columns":[{"name":"offset","type":"int64"},{"name":"v","type":"string"}]}',
        ]
        for number in range(3):
            log.partition("arriving", 0).append([batch([b"v%d" % number])])
        assert arrived(lines, 2) == [[0, "v0"], [2, "v2"]]
    whole = {**parameters, "from": "beginning"}
    with http.stream("GET", f"{SQL}/follow", params=whole) as found:
        lines = found.iter_lines()
        assert next(lines) == "event: columns"
        assert arrived(lines, 2) == [[0, "v0"], [2, "v2"]]
    wrong = http.get(f"{SQL}/follow", params={"statement": "select count(*) from orders"})
    assert (wrong.status_code, "UNGROUPED" in wrong.json()["error"]) == (400, True)


def test_acls_decide_which_topics_exist_for_a_user(log: Log) -> None:
    with open_log(f"memory://{uuid4().hex}") as guarded:
        for topic in ("orders", "secret"):
            guarded.create_topic(topic)
            guarded.partition(topic, 0).append([batch([b"1"], keys=[b"k"])])
        guarded.set_password("ann", "pass:word")
        with served(guarded, lambda topics: RootAccess(topics, guarded)) as url:
            with httpx.Client(base_url=url, timeout=60) as http:
                missing = http.get(SQL, params={"statement": "select 1"})
                assert missing.status_code == 401
                assert missing.headers["www-authenticate"].startswith("Basic")
                for name, password in (("ann", "wrong"), ("nobody", "pass:word")):
                    wrong = http.get(SQL, params={"statement": "select 1"}, auth=(name, password))
                    assert (wrong.status_code, "wrong" in wrong.json()["error"]) == (401, True)
            with httpx.Client(base_url=url, timeout=60, auth=("ann", "pass:word")) as http:
                assert asked(http, "select count(*) from secret").json()["rows"] == [[1]]
                guarded.create_acls([AclBinding(
                    ResourceType.TOPIC, "orders", PatternType.LITERAL, Principal("User", "ann"),
                    "*", AclOperation.READ, AclPermission.ALLOW,
                )])  # fmt: skip
                assert asked(http, "select count(*) from orders").json()["rows"] == [[1]]
                assert asked(http, "show tables").json()["rows"] == [["orders"]]
                for statement in ("select 1 from secret", "select 1 from text.secret"):
                    refused = asked(http, statement)
                    assert (refused.status_code, "no such topic" in refused.text) == (404, True)
                assert http.get("/api/v1/topics/secret/keys/k").status_code == 404
                far = http.get("/api/v1/topics/secret/keys/k", params={"partition": "99"})
                assert far.json()["error"] == "no such topic. topic=secret"
                assert http.get("/api/v1/topics/orders/keys/k").status_code == 200
                follow = {"statement": "select offset from secret"}
                assert http.get(f"{SQL}/follow", params=follow).status_code == 404
