"""The server of `sparklog sql --serve`: queries, arriving rows and look-ups over HTTP.

- A request names a host of the server, and comes from no other site.
- A statement, an answer, its time and its memory have limits, and few queries run at a time.
- A query ends when its client leaves.
- With logins nothing is read before the password was checked, and a wrong one takes a second.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final
from urllib.parse import unquote, unquote_to_bytes

import anyio
from anyio import to_thread
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from sparklog.core.bounded_json import parse_json
from sparklog.core.errors import (
    InvalidRequest,
    SaslAuthenticationFailed,
    SparklogError,
    TopicAuthorizationFailed,
    Unavailable,
    UnknownTopicOrPartition,
)
from sparklog.core.web_guard import NO_CONTENT_POLICY, WebGuard
from sparklog.core.web_requests import EncodedPath
from sparklog.sql.arrivals import ArrivalQuery, ArrivalSource
from sparklog.sql.engine import DecodeRules, QueryLimits
from sparklog.sql.http.access import BasicLogin, TopicAccess, basic_login
from sparklog.sql.http.answers import body_for
from sparklog.sql.http.workers import FollowWork, QueryWork, ThreadedBody
from sparklog.sql.key_state import newest_record
from sparklog.sql.result_values import json_value
from sparklog.sql.statement import STATEMENT_BYTES_MAX
from sparklog.sql.topics import TopicReader

logger = logging.getLogger(__name__)

API: Final = "/api/v1"
QUERIES_MAX: Final = 4
FOLLOWERS_MAX: Final = 32
LOOKUPS_MAX: Final = 8
BODY_BYTES_MAX: Final = 2 * STATEMENT_BYTES_MAX
KEY_CHARS_MAX: Final = 48 << 10
NUMBER_MAX: Final = 2**31 - 1
FAILED_LOGIN_S: Final = 1.0
EVENTS: Final = "text/event-stream"
_STATUS: Final[tuple[tuple[type[SparklogError], int], ...]] = (
    (SaslAuthenticationFailed, 401),
    (TopicAuthorizationFailed, 403),
    (UnknownTopicOrPartition, 404),
    (InvalidRequest, 400),
    (Unavailable, 503),
)

OpenArrivals = Callable[
    [TopicReader, ArrivalQuery, BasicLogin | None, bool], AbstractContextManager[ArrivalSource]
]
"""Follows the topic of a query, from its beginning if the flag is set."""


@dataclass(frozen=True, slots=True)
class QueryService:
    """The topics that a server answers for, and the most that a request may use."""

    access: TopicAccess
    arrivals: OpenArrivals
    limits: QueryLimits
    rules: DecodeRules


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """The parameters of one query."""

    statement: str
    form: str | None
    limits: QueryLimits
    rules: DecodeRules


def application(service: QueryService, hosts: frozenset[str]) -> Starlette:
    """Return the ASGI application; requests name one of `hosts`, or any if it is empty."""
    endpoints = _Endpoints(service)
    routes = [
        Route(f"{API}/sql", endpoints.query, methods=["GET", "POST"]),
        Route(f"{API}/sql/follow", endpoints.follow),
        Route(f"{API}/topics/{{topic}}/keys/{{key}}", endpoints.look_up),
    ]
    errors: dict[Any, Any] = {404: _no_such_path, 405: _no_such_path, SparklogError: _failed}
    guard = Middleware(
        WebGuard, hosts=hosts, refuse=_refused, own_site_only=True,
        headers={"Content-Security-Policy": NO_CONTENT_POLICY},
    )  # fmt: skip
    layers = [guard, Middleware(EncodedPath)]
    return Starlette(routes=routes, exception_handlers=errors, middleware=layers)


class _Endpoints:
    """The handlers, with the limits on what runs at a time."""

    def __init__(self, service: QueryService) -> None:
        self._service = service
        self._queries = RunningCount(QUERIES_MAX)
        self._followers = RunningCount(FOLLOWERS_MAX)
        self._lookups = anyio.CapacityLimiter(LOOKUPS_MAX)
        self._threads = anyio.CapacityLimiter(QUERIES_MAX + FOLLOWERS_MAX)

    async def query(self, request: Request) -> Response:
        """Answer one statement."""
        opened = self._opened(request)
        asked = _query_request(await _parameters(request), self._service)
        encoder = body_for(asked.form, request.headers.get("accept", ""))
        work = QueryWork(opened, asked.statement, asked.limits, asked.rules, encoder)
        body = ThreadedBody(work.run, work.stop, self._threads, held_back=1)
        headers = {} if asked.limits.rows_max is None else {"Rows-Max": str(asked.limits.rows_max)}
        return _ThreadedResponse(body, self._queries, encoder.media_type, headers)

    async def follow(self, request: Request) -> Response:
        """Send the rows of records as they arrive, as server-sent events."""
        opened = self._opened(request)
        given = dict(request.query_params)
        asked = _query_request(given, self._service)
        start = given.get("from", "end")
        if start not in ("end", "beginning"):
            raise InvalidRequest("from is end or beginning")
        login = basic_login(request.headers.get("authorization"))
        arrivals = self._service.arrivals
        work = FollowWork(
            opened,
            lambda topics, query: arrivals(topics, query, login, start == "beginning"),
            asked.statement,
            replace(asked.limits, timeout_s=None, rows_max=None, threads=1),
            asked.rules,
        )
        body = ThreadedBody(work.run, work.stop, self._threads)
        return _ThreadedResponse(body, self._followers, EVENTS, {"X-Accel-Buffering": "no"})

    async def look_up(self, request: Request) -> Response:
        """Answer the newest record of a key."""
        opened = self._opened(request)
        topic, key = unquote(request.path_params["topic"]), request.path_params["key"]
        if len(key) > KEY_CHARS_MAX:
            raise InvalidRequest(f"the key is too long. characters_max={KEY_CHARS_MAX}")
        number = request.query_params.get("partition")
        partition = None if number is None else _whole(number, "partition")
        look = partial(_newest, opened, topic, unquote_to_bytes(key), partition)
        found = await to_thread.run_sync(look, limiter=self._lookups)
        if found["value"] is None:
            raise UnknownTopicOrPartition(f"the newest record of the key is a tombstone. {topic=}")
        return JSONResponse({**found, "value": json_value(found["value"])})

    def _opened(self, request: Request) -> Callable[[], AbstractContextManager[TopicReader]]:
        """Return what opens the topics for a request. Raises SaslAuthenticationFailed."""
        access = self._service.access
        login = basic_login(request.headers.get("authorization")) if access.needs_login else None
        if access.needs_login and login is None:
            raise LoginMissing("a user and a password are needed")
        host = request.client.host if request.client is not None else ""
        return lambda: access.opened(login, host)


class RunningCount:
    """The number of requests of one kind that run now. Of one event loop only."""

    def __init__(self, most: int) -> None:
        """Allow `most` at a time."""
        self._most = most
        self._now = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count one more meanwhile. Raises Unavailable: there are as many as allowed."""
        if self._now >= self._most:
            raise Unavailable(f"too many requests run; try again. at_a_time={self._most}")
        self._now += 1
        try:
            yield
        finally:
            self._now -= 1


class LoginMissing(SaslAuthenticationFailed):
    """A request without a login, where one is needed."""


class _ThreadedResponse(Response):
    """Sends a body that a thread makes."""

    def __init__(
        self,
        body: ThreadedBody,
        running: RunningCount,
        media_type: str,
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(media_type=media_type, headers=headers)
        del self.headers["content-length"]
        self._pieces = body
        self._running = running

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def more(piece: bytes) -> None:
            await send({"type": "http.response.body", "body": piece, "more_body": True})

        async def start(piece: bytes) -> None:
            nonlocal started
            started = True
            head = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await send(head)
            await more(piece)

        try:
            with self._running.one():
                whole = await self._pieces.run(receive, start, more)
        except SparklogError as error:
            if not started:
                refused = await _failed(Request(scope), error)
                await refused(scope, receive, send)
                return
            # The client sees that the answer breaks off: the connection is closed in the middle.
            logger.warning("an answer broke off: %s", error)
            return
        if whole:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _parameters(request: Request) -> dict[str, Any]:
    """Return the parameters of a query: of the URL, or of a body."""
    if request.method != "POST":
        return dict(request.query_params)
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > BODY_BYTES_MAX:
            raise InvalidRequest(f"the request is too large. bytes_max={BODY_BYTES_MAX}")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/sql":
        try:
            return {**request.query_params, "statement": body.decode()}
        except UnicodeDecodeError as error:
            raise InvalidRequest(f"the statement is not UTF-8: {error}") from None
    if kind != "application/json":
        raise InvalidRequest("send application/json or application/sql")
    found = parse_json(bytes(body), "the request", bytes_max=BODY_BYTES_MAX)
    if not isinstance(found, dict):
        raise InvalidRequest("the request is no JSON object")
    return found


def _query_request(given: Mapping[str, Any], service: QueryService) -> QueryRequest:
    """Return a checked request. Raises InvalidRequest."""
    known = {"statement", "format", "rows_max", "timeout_s", "decode_errors", "from"}
    unknown = sorted(set(given) - known)
    if unknown:
        raise InvalidRequest(f"no such parameter: {unknown[0][:40]!r}")
    statement, form = given.get("statement"), given.get("format")
    if not isinstance(statement, str) or not statement.strip():
        raise InvalidRequest("the parameter statement is missing")
    if form is not None and not isinstance(form, str):
        raise InvalidRequest("format is json, csv or arrow")
    errors = given.get("decode_errors", "fail" if service.rules.strict else "null")
    if errors not in ("fail", "null"):
        raise InvalidRequest("decode_errors is fail or null")
    limits = replace(
        service.limits,
        rows_max=_lower(given, "rows_max", service.limits.rows_max),
        timeout_s=_lower(given, "timeout_s", service.limits.timeout_s),
    )
    return QueryRequest(statement, form, limits, replace(service.rules, strict=errors == "fail"))


def _lower(given: Mapping[str, Any], name: str, most: float | None) -> Any:
    """Return a limit of a request, which is never above the server's."""
    if name not in given:
        return most
    asked = max(1, _whole(str(given[name]), name))
    return asked if most is None else min(asked, most)


def _whole(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 10 or int(text) > NUMBER_MAX:
        raise InvalidRequest(f"{name} is no number up to {NUMBER_MAX}")
    return int(text)


def _newest(
    opened: Callable[[], AbstractContextManager[TopicReader]],
    topic: str,
    key: bytes,
    partition: int | None,
) -> dict[str, Any]:
    with opened() as topics:
        found = newest_record(topics, topic, key, partition)
    if found is None:
        raise UnknownTopicOrPartition(f"no record has the key. {topic=}")
    place, record = found
    (row,) = record.to_pylist()
    value = row.pop("value")
    named = {name: json_value(one) for name, one in row.items()}
    return {"topic": place.topic, "partition": place.partition, **named, "value": value}


def _refused(status: int, words: str) -> Response:
    return JSONResponse({"error": words}, status)


async def _no_such_path(request: Request, error: Exception) -> Response:
    status = int(getattr(error, "status_code", 404))
    return JSONResponse({"error": f"HTTP {status}"}, status)


async def _failed(request: Request, error: Exception) -> Response:
    """Return the response of an error."""
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    headers = {}
    if status == 401:
        if not isinstance(error, LoginMissing):
            await anyio.sleep(FAILED_LOGIN_S)
        headers = {"WWW-Authenticate": 'Basic realm="sparklog", charset="UTF-8"'}
    elif status == 503:
        headers = {"Retry-After": "1"}
    if status >= 500:
        logger.warning("a request failed: %s", error)
    return JSONResponse({"error": str(error)}, status, headers)
