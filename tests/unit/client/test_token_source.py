"""Bearer tokens: of a setting, of a file, and of an OAuth server."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.client.security_settings import SaslSettings
from sparklog.client.token_source import LIFETIME_S, bearer_token, token_expiry_s
from sparklog.core.errors import InvalidConfig, SaslAuthenticationFailed, Unavailable


@contextmanager
def oauth_server(status: int, body: bytes) -> Iterator[tuple[str, list[Any]]]:
    """Serve one answer; yield the address and the requests that came."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            asked.append((self.path, self.headers["Authorization"], self.rfile.read(size)))
            self.send_response(status)
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token?x=1", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def asking(url: str) -> SaslSettings:
    return SaslSettings(
        "OAUTHBEARER", token_url=url, client_id="me:x", client_secret="marked", scope="a b"
    )


def test_static_token_is_returned() -> None:
    assert bearer_token(SaslSettings("OAUTHBEARER", token="a.b.c")) == "a.b.c"


def test_token_of_a_file_is_read_each_time(tmp_path: Path) -> None:
    file = tmp_path / "a token"
    sasl = SaslSettings("OAUTHBEARER", token_url=file.as_uri())
    file.write_text("first\n")
    assert bearer_token(sasl) == "first"
    file.write_text("second\n")
    assert bearer_token(sasl) == "second"
    file.write_text("\n")
    with pytest.raises(InvalidConfig, match="has no token"):
        bearer_token(sasl)


def test_oauth_server_is_asked_with_the_clients_credentials() -> None:
    with oauth_server(200, b'{"access_token":"a.b.c","expires_in":60}') as (url, asked):
        assert bearer_token(asking(url)) == "a.b.c"
    ((path, authorization, body),) = asked
    assert path == "/token?x=1"
    assert base64.b64decode(authorization.removeprefix("Basic ")) == b"me%3Ax:marked"
    assert body == b"grant_type=client_credentials&scope=a+b"


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, b"{}", SaslAuthenticationFailed),
        (302, b"", SaslAuthenticationFailed),
        (200, b"<html>", SaslAuthenticationFailed),
        (200, b'{"access_token":7}', SaslAuthenticationFailed),
        (200, b'{"access_token":"a\\nb"}', SaslAuthenticationFailed),
        (200, b"[" * 100_000, SaslAuthenticationFailed),
        (200, b" " * ((1 << 20) + 1), SaslAuthenticationFailed),
        (503, b"", Unavailable),
    ],
)
def test_wrong_answer_is_an_error_without_secrets(
    status: int, body: bytes, kind: type[Exception]
) -> None:
    with oauth_server(status, body) as (url, asked), pytest.raises(kind) as caught:
        bearer_token(asking(url))
    assert len(asked) == 1
    assert "marked" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://example.com/token", "ftp://a/b", "https://u:marked@a/b"])
def test_unsafe_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        bearer_token(asking(url))
    assert "marked" not in str(caught.value)


def test_silent_server_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="does not answer"):
        bearer_token(asking("http://127.0.0.1:1/token"))


def test_expiry_is_that_of_the_token() -> None:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": 1234}).encode()).decode().rstrip("=")
    assert token_expiry_s(f"e30.{claims}.x", 0.0) == 1234
    assert token_expiry_s("opaque", 1.0) == 1.0 + LIFETIME_S


@given(st.text())
def test_any_token_has_an_expiry(token: str) -> None:
    assert token_expiry_s(f"a.{token}.c", 1.0) >= 0
