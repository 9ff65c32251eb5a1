"""The guard of web servers: hosts, other sites, and the headers of every response."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from sparklog.core.web_guard import WebGuard
from sparklog.core.web_requests import is_confidential


def refused(status: int, words: str) -> PlainTextResponse:
    return PlainTextResponse(words, status)


def client_of(own_headers: dict[str, str], *, hosts: frozenset[str]) -> TestClient:
    answer = PlainTextResponse("found", headers=own_headers)
    guard = WebGuard(
        answer, hosts=hosts, refuse=refused, headers={"X-Frame-Options": "DENY"},
        own_site_only=True,
    )  # fmt: skip
    return TestClient(guard, base_url="http://localhost:9099")


def test_every_response_has_the_headers_once() -> None:
    own = {"x-frame-options": "ALLOW", "cache-control": "max-age=5"}
    client = client_of(own, hosts=frozenset())
    answer = client.get("/")
    assert answer.headers.get_list("x-frame-options") == ["DENY"]
    assert answer.headers.get_list("cache-control") == ["max-age=5"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    other = client_of({}, hosts=frozenset({"localhost"})).get("/", headers={"Host": "evil"})
    assert (other.status_code, other.text) == (421, "the server does not serve this host name")
    assert other.headers["x-frame-options"] == "DENY"
    assert other.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"Host": "localhost"}, 200), ({"Host": "LOCALHOST:1"}, 200), ({"Host": "[::1]:1"}, 200),
        ({"Host": "localhost.evil"}, 421), ({"Host": ""}, 421), ({"Host": "[::1"}, 421),
        ({"Sec-Fetch-Site": "same-origin"}, 200), ({"Sec-Fetch-Site": "none"}, 200),
        ({"Sec-Fetch-Site": "cross-site"}, 403), ({"Sec-Fetch-Site": "same-site"}, 403),
    ],
)  # fmt: skip
def test_other_hosts_and_sites_are_refused(given: dict[str, str], status: int) -> None:
    client = client_of({}, hosts=frozenset({"localhost", "::1"}))
    assert client.get("/", headers=given).status_code == status


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://p.example/x", True), ("http://127.0.0.1:8080", True), ("http://[::1]/", True),
        ("http://localhost", True), ("http://p.example", False), ("https://a@p.example", False),
        ("http://localhost.p.example", False), ("https:///x", False), ("file:///x", False),
    ],
)  # fmt: skip
def test_secrets_go_by_https_or_stay_on_this_machine(url: str, expected: bool) -> None:
    assert is_confidential(urlsplit(url)) is expected
