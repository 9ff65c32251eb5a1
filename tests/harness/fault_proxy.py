"""A real HTTP proxy that stands in front of an S3 server and has faults by plan."""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any

from tests.harness.store_servers import s3_server

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}
FORWARD_TIMEOUT_S = 60.0
_ACCESS_KEY = re.compile(r"Credential=([^/]+)/")


class Action(Enum):
    """Fault of a request."""

    ANSWER = "answer with `status` and do not forward"
    FORWARD_THEN_ANSWER = "forward, then answer with `status` instead of the true answer"
    LOSE_REQUEST = "close the connection and do not forward"
    LOSE_ANSWER = "forward, then close the connection without an answer"
    RESET = "forward, then reset the connection (RST) without an answer"
    CUT_ANSWER = "forward, then close the connection in the middle of the body"
    DAMAGE_BODY = "forward with one bit of the request's body changed"
    DAMAGE_ANSWER = "forward, then answer with one bit of the body changed"
    HOLD = "forward, and keep the answer until `released` or closed"
    IGNORE_CONDITION = "forward without If-None-Match"
    LOSE_RACES = "look for the object; if there is none, forward without If-None-Match"


@dataclass
class Rule:
    """Requests that get a fault, and their number."""

    action: Action
    method: str
    path_has: str = ""
    times: int = 1_000_000
    status: int = 503
    code: str = "SlowDown"
    headers: list[tuple[str, str]] = field(default_factory=list)


FAILURES = (Action.ANSWER, Action.FORWARD_THEN_ANSWER, Action.LOSE_ANSWER, Action.RESET)
"""The faults that `fail_share` draws from."""
EXPIRED = Rule(Action.ANSWER, "", status=400, code="ExpiredToken")


class FaultProxy:
    """Forwards to a server on this machine; safe to change while it runs."""

    def __init__(self, upstream_port: int) -> None:
        self.upstream_port = upstream_port
        self.requests: list[tuple[str, str]] = []
        self.puts: list[tuple[str, bool]] = []
        """Path of each PUT, and whether it only creates (`If-None-Match: *`)."""
        self.moved: Counter[tuple[str, str]] = Counter()
        """By kind on a bill: requests, bytes that came in, and bytes of objects that went out.
        The kinds are put, list, get, head and delete.
        """
        self.running = 0
        """Requests that came in and are not answered."""
        self.has_expired: Callable[[str], bool] = lambda key_id: False
        """Returns True for access keys whose requests get `ExpiredToken`."""
        self.released = threading.Event()
        self._rules: list[Rule] = []
        self._share = 0.0
        self._random = Random(1)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._server: ThreadingHTTPServer | None = None
        self.port = 0
        self.listen()

    @property
    def endpoint_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def add(self, action: Action, method: str, path_has: str = "", **more: Any) -> None:
        with self._lock:
            self._rules.append(Rule(action, method, path_has, **more))

    def fail_share(self, share: float) -> None:
        """Let a share of all requests fail from now on: some refused, some without an answer."""
        with self._lock:
            self._share = share

    def billed(self) -> dict[str, tuple[int, int]]:
        """Return requests and bytes of each kind so far."""
        moved = dict(self.moved)
        return {
            kind: (count, moved[kind, "in"] + moved[kind, "out"])
            for (kind, what), count in sorted(moved.items())
            if what == "requests"
        }

    def clear(self) -> None:
        """Drop all rules."""
        with self._lock:
            self._rules.clear()

    def sent(self, method: str, path_has: str = "") -> int:
        """Return how many such requests came in."""
        return sum(m == method and path_has in p for m, p in self.requests)

    def listen(self) -> None:
        """Listen, on the same port as before if there was one."""
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._server = _Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def go_away(self) -> None:
        """Stop listening and break every connection; new ones are refused."""
        assert self._server is not None
        self._server.shutdown()
        with self._lock:
            for one in self._open:
                try:
                    one.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # closed by the client meanwhile
        self._server.server_close()
        self._server = None

    def close(self) -> None:
        self.released.set()
        if self._server is not None:
            self.go_away()

    def rule_for(self, method: str, path: str) -> Rule | None:
        with self._lock:
            self.requests.append((method, path))
            for rule in self._rules:
                if rule.times > 0 and rule.method == method and rule.path_has in path:
                    rule.times -= 1
                    return rule
            if self._share and self._random.random() < self._share:
                return Rule(self._random.choice(FAILURES), method)
        return None

    @contextmanager
    def counted(self, handler: _Handler, body: bytes) -> Iterator[None]:
        """Count a request while it is answered."""
        with self._lock:
            self.running += 1
        try:
            yield
        finally:
            kind = handler.command.lower()
            if kind == "get" and "list-type=" in handler.path:
                kind = "list"
            with self._lock:
                self.running -= 1
                self.moved[kind, "requests"] += 1
                self.moved[kind, "in"] += len(body)
                self.moved[kind, "out"] += handler.found_bytes if kind == "get" else 0

    def opened(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.add(connection)

    def closed(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.discard(connection)


class _Server(ThreadingHTTPServer):
    allow_reuse_address = True
    daemon_threads = False  # server_close waits for the handlers
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep quiet: broken connections are what this is for."""


class _Handler(BaseHTTPRequestHandler):
    owner: FaultProxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    found_bytes = 0
    """Body bytes of the last answer, if it was good."""

    def setup(self) -> None:
        super().setup()
        self.owner.opened(self.request)

    def finish(self) -> None:
        self.owner.closed(self.request)
        super().finish()

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.found_bytes = 0
        with self.owner.counted(self, body):
            self._respond(body)

    def _respond(self, body: bytes) -> None:
        if self.command == "PUT":
            self.owner.puts.append((self.path, self.headers.get("If-None-Match") == "*"))
        found = _ACCESS_KEY.search(self.headers.get("Authorization") or "")
        if found is not None and self.owner.has_expired(found[1]):
            self._answer_error(EXPIRED)
            return
        rule = self.owner.rule_for(self.command, self.path)
        action = rule.action if rule is not None else None
        if action is Action.LOSE_REQUEST:
            self.close_connection = True
            return
        if rule is not None and action is Action.ANSWER:
            self._answer_error(rule)
            return
        if rule is not None and action is Action.LOSE_RACES and self._is_there():
            self._answer_error(replace(rule, status=412, code="PreconditionFailed"))
            return
        if action in (Action.IGNORE_CONDITION, Action.LOSE_RACES):
            del self.headers["If-None-Match"]
        if action is Action.DAMAGE_BODY:
            body = _damaged(body)
        status, headers, answer = self._forward(body)
        if action is Action.HOLD:
            self.owner.released.wait(FORWARD_TIMEOUT_S)
        if action in (Action.LOSE_ANSWER, Action.RESET):
            self.close_connection = True
            if action is Action.RESET:
                now = struct.pack("ii", 1, 0)  # closing throws away what is unsent, and says so
                self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)
                self.request.close()
        elif rule is not None and action is Action.FORWARD_THEN_ANSWER:
            self._answer_error(rule)
        elif action is Action.DAMAGE_ANSWER:
            self._answer(status, headers, answer, _damaged(answer))
        elif action is Action.CUT_ANSWER:
            self._answer(status, headers, answer, answer[: len(answer) // 2])
            self.close_connection = True
        else:
            self._answer(status, headers, answer, answer)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _handle  # noqa: N815 - named by HTTP

    def _is_there(self) -> bool:
        upstream = HTTPConnection("127.0.0.1", self.owner.upstream_port, timeout=FORWARD_TIMEOUT_S)
        try:
            headers = {name: self.headers[name] for name in ("Host", "Authorization")}
            upstream.request("HEAD", self.path.partition("?")[0], headers=headers)
            return upstream.getresponse().status == 200
        finally:
            upstream.close()

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        upstream = HTTPConnection("127.0.0.1", self.owner.upstream_port, timeout=FORWARD_TIMEOUT_S)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in {"connection", "expect"}:
                    upstream.putheader(name, value)
            upstream.endheaders(body)
            answer: HTTPResponse = upstream.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            upstream.close()

    def _answer(
        self, status: int, headers: list[tuple[str, str]], whole: bytes, sent: bytes
    ) -> None:
        self.send_response_only(status)
        length = str(len(whole))
        for name, value in headers:
            if name.lower() == "content-length" and self.command == "HEAD":
                length = value
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(sent)
        self.found_bytes = len(sent) if status in (200, 206) else 0

    def _answer_error(self, rule: Rule) -> None:
        text = f"<Error><Code>{rule.code}</Code><Message>by plan</Message></Error>".encode()
        body = b"" if self.command == "HEAD" else text
        self._answer(rule.status, [("Content-Type", "application/xml"), *rule.headers], body, body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Keep quiet."""


def _damaged(body: bytes) -> bytes:
    """Return bytes of the same length, with one bit changed in the middle."""
    at = len(body) // 2
    return body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]


@contextmanager
def counted_store(folder: Path, set_variable: Callable[[str, str], None]) -> Iterator[FaultProxy]:
    """Serve S3 with the bucket `billed`, and set the variables that lead there by a proxy."""
    with s3_server(folder, "billed") as server, fault_proxy(server.port) as proxy:
        for name, value in server.environment(proxy.endpoint_url).items():
            set_variable(name, value)
        yield proxy


@contextmanager
def fault_proxy(upstream_port: int) -> Iterator[FaultProxy]:
    """Start a proxy and stop it at the end."""
    proxy = FaultProxy(upstream_port)
    try:
        yield proxy
    finally:
        proxy.close()
