"""ConsoleApp: routes, sessions, errors and headers of the console, over Starlette.

CONSOLE-1: Each page and each change comes from one table, so a page and the API never differ.
CONSOLE-2: A change runs after four checks: same site, token, role, and typed name.
CONSOLE-3: A handler blocks in a thread; the request ends with words after `ANSWER_WITHIN_S`.
CONSOLE-4: Every response has the strict `POLICY`: no inline script, no other host.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote

import anyio
from anyio import to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import (
    JSONResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route

from sparklog.console.browser_rules import HEADERS, ConsoleFiles, check_same_site, refused
from sparklog.console.cluster_view import ClusterView
from sparklog.console.console_errors import (
    ConsoleProblem,
    ForbiddenChange,
    LoginNeeded,
    problem_of,
)
from sparklog.console.export import PieceQueue, RunningExport, export_body
from sparklog.console.live_tail import TAIL_PARAMETERS, tail_events
from sparklog.console.oidc import PARAMETER_MAX, PENDING_S
from sparklog.console.openapi import API_PREFIX, TOKEN_HEADER, openapi_document
from sparklog.console.page_templates import STATIC, new_environment
from sparklog.console.record_export import RECORD_EXPORTS, RecordExport
from sparklog.console.record_pages import SNAPSHOT, find_record
from sparklog.console.resources import (
    BoundedValues,
    ChangeAction,
    ConsoleRole,
    FieldSpec,
    PageResource,
)
from sparklog.console.result_files import (
    MEDIA_TYPES,
    RESULT_PARAMETERS,
    SUFFIXES,
    write_result,
)
from sparklog.console.sessions import (
    COOKIE,
    CREDENTIAL_TEXT_MAX,
    ConsoleSession,
    ConsoleSessions,
    ConsoleUser,
    ProviderLogins,
)
from sparklog.console.site import ALL_CHANGES, ALL_PAGES, ALL_STREAMS, NAVIGATION
from sparklog.core.bounded_json import parse_json
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.errors import InvalidJson, InvalidRequest, SaslAuthenticationFailed, Unavailable
from sparklog.core.terminal_text import printable
from sparklog.core.web_guard import WebGuard

logger = logging.getLogger(__name__)

ANSWER_WITHIN_S: Final = 20.0
THREADS: Final = 16
TAILS: Final = 8
EXPORTS: Final = 4
DONE_COOKIE: Final = "sparklog_done"
PROVIDER_COOKIE: Final = "sparklog_login"
DONE_TEXT_MAX: Final = 500
FAILED_LOGIN_S: Final = 1.0
FIELDS_MAX: Final = 50
_SAFE_NAME: Final = re.compile(r"[^A-Za-z0-9._-]")

Endpoint = Callable[[Request], Awaitable[Response]]


class ConsoleApp:
    """The web application."""

    def __init__(
        self, sessions: ConsoleSessions, *, version: str, secure: bool, hosts: frozenset[str]
    ) -> None:
        """Serve these sessions; `secure` cookies go over HTTPS only; `hosts` may be asked for."""
        self.is_stopping: Callable[[], bool] = lambda: False
        """Set by the server that serves this: live pages end when it returns True."""
        self._sessions = sessions
        self._version = version
        self._secure = secure
        self._templates = new_environment()
        self._threads = anyio.CapacityLimiter(THREADS)
        self._tails = anyio.CapacityLimiter(TAILS)
        self._exports = anyio.CapacityLimiter(EXPORTS)
        self._openapi = openapi_document(ALL_PAGES, ALL_CHANGES, ALL_STREAMS, version)
        self.starlette = Starlette(
            routes=self._routes(),
            lifespan=self._lifespan,
            exception_handlers={404: self._missing, 405: self._missing},
        )
        self.starlette.add_middleware(WebGuard, hosts=hosts, refuse=refused, headers=HEADERS)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """End all sessions when the server stops."""
        yield
        self._sessions.close()

    def _routes(self) -> list[Route | Mount]:
        routes: list[Route | Mount] = [
            Mount("/static", ConsoleFiles(directory=STATIC), name="static"),
            Route("/login", self._guarded(self._login), methods=["GET", "POST"]),
            Route("/login/provider", self._guarded(self._to_provider)),
            Route("/login/callback", self._guarded(self._from_provider)),
            Route("/logout", self._guarded(self._logout), methods=["POST"]),
            Route(f"{API_PREFIX}/session", self._guarded(self._session)),
            Route(f"{API_PREFIX}/openapi.json", self._guarded(self._described)),
            Route(f"{API_PREFIX}/topics/{{topic}}/tail", self._guarded(self._tail)),
            *(
                Route(API_PREFIX + one.path, self._guarded(partial(self._export, one)))
                for one in RECORD_EXPORTS
            ),
            Route(f"{API_PREFIX}/sql/export", self._guarded(self._export_result)),
            Route(
                "/topics/{topic}/partitions/{partition}/records/{offset}/{part}",
                self._guarded(self._download),
            ),
        ]
        for change in ALL_CHANGES:
            endpoint = self._guarded(partial(self._change, change))
            routes += [
                Route(prefix + _pattern(change.path), endpoint, methods=["POST"])
                for prefix in ("", API_PREFIX)
            ]
        for page in ALL_PAGES:
            endpoint = self._guarded(partial(self._page, page))
            api_path = "/overview" if page.path == "/" else page.path
            routes.append(Route(_pattern(page.path), endpoint))
            routes.append(Route(API_PREFIX + _pattern(api_path), endpoint))
        return routes

    def _guarded(self, endpoint: Endpoint) -> Endpoint:
        """Return the endpoint with errors as pages or JSON."""

        async def answered(request: Request) -> Response:
            try:
                return await endpoint(request)
            except LoginNeeded:
                if not _is_api(request) and request.method == "GET":
                    asked = isinstance(self._sessions.logins, ProviderLogins)
                    return RedirectResponse("/login/provider" if asked else "/login", 303)
                return self._failed(request, problem_of(LoginNeeded()))
            except Exception as error:  # each one becomes a page with words
                problem = problem_of(error)
                if problem.status >= 500:
                    place = printable(request.url.path[:DONE_TEXT_MAX])
                    logger.warning("request failed. path=%s error=%r", place, error)
                return self._failed(request, problem)

        return answered

    async def _page(self, page: PageResource, request: Request) -> Response:
        session, user = self._session_of(request)
        values = _query_values(request, page.parameters, session)
        document = await self._in_thread(page.read, user.view, values)
        if _is_api(request):
            return JSONResponse(document)
        return self._render(request, page.template, session, user, d=document, page=page.name)

    async def _change(self, change: ChangeAction, request: Request) -> Response:
        session, user = self._session_of(request)
        check_same_site(request)
        given = await self._fields(request, change.body_max)
        token = request.headers.get(TOKEN_HEADER, given.pop("csrf", ""))
        if not self._sessions.is_token(session, token):
            raise ForbiddenChange("the page is too old, or another site sent this; load it again")
        if user.role < change.role:
            raise ForbiddenChange(
                f"this needs the role {change.role.word}; yours is {user.role.word}"
            )
        values = BoundedValues.checked(
            given, change.fields, request.path_params, session.session_id
        )
        change.check_confirmed(values)
        done = await self._in_thread(change.run, user.view, values)
        place = printable(request.url.path[:DONE_TEXT_MAX])
        logger.info("change. user=%r action=%s path=%s", user.name[:100], change.name, place)
        if _is_api(request):
            return JSONResponse({"message": done.message, **done.document})
        response = RedirectResponse(done.location, 303)
        if done.message:
            text = quote(done.message[:DONE_TEXT_MAX])
            self._set_cookie(response, DONE_COOKIE, text, seconds=60)
        return response

    async def _fields(self, request: Request, body_max: int) -> dict[str, str]:
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > body_max:
                raise InvalidRequest(f"the request is too large. bytes_max={body_max}")
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "application/json":
            return _json_fields(bytes(body), body_max)
        if kind not in {"application/x-www-form-urlencoded", ""}:
            raise InvalidRequest(f"send a form or JSON, not {kind[:60]!r}")
        try:
            text = body.decode()
            pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX)
        except ValueError as error:
            raise InvalidRequest(f"the form cannot be read: {error}") from error
        # A browser sends line breaks of a text area as CR LF.
        return _flat([(name, value.replace("\r\n", "\n")) for name, value in pairs])

    async def _in_thread(self, run: Callable[..., Any], *args: Any) -> Any:
        with anyio.fail_after(ANSWER_WITHIN_S):
            return await to_thread.run_sync(
                partial(run, *args), abandon_on_cancel=True, limiter=self._threads
            )

    def _session_of(self, request: Request) -> tuple[ConsoleSession, ConsoleUser]:
        session = self._sessions.find(request.cookies.get(COOKIE, ""))
        if session is None and self._sessions.logins is None:
            session = self._sessions.begin()
            request.state.new_session = session.session_id
        if session is None or session.user is None:
            raise LoginNeeded
        return session, session.user

    async def _session(self, request: Request) -> Response:
        session, user = self._session_of(request)
        response = JSONResponse(
            {"user": user.name, "role": user.role.word, "csrf": self._sessions.token(session)}
        )
        self._keep_session(request, response)
        return response

    async def _described(self, request: Request) -> Response:
        self._session_of(request)
        return JSONResponse(self._openapi)

    async def _tail(self, request: Request) -> Response:
        session, user = self._session_of(request)
        values = _query_values(request, TAIL_PARAMETERS, session)
        events = tail_events(
            user.view, values.text("topic"), values.optional_whole("partition"),
            values.text("decoder"), self._tails, self.is_stopping,
            lambda: self._sessions.find(session.session_id) is None,
        )  # fmt: skip
        headers = {"X-Accel-Buffering": "no", "Cache-Control": "no-store"}
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)

    async def _export(self, export: RecordExport, request: Request) -> Response:
        session, user = self._session_of(request)
        values = _query_values(request, export.parameters, session)
        form = values.text("format")
        name = f"{_SAFE_NAME.sub('_', values.text('topic'))}.{SUFFIXES[form]}"
        write = partial(export.write, user.view, values)
        return await self._exported(write, name, MEDIA_TYPES[form])

    async def _export_result(self, request: Request) -> Response:
        session, user = self._session_of(request)
        values = _query_values(request, RESULT_PARAMETERS, session)
        form = values.text("format")
        write = partial(write_result, user.view.queries, values)
        return await self._exported(write, f"result.{SUFFIXES[form]}", MEDIA_TYPES[form])

    async def _exported(
        self, read: Callable[[PieceQueue], None], name: str, media_type: str
    ) -> Response:
        if self._exports.statistics().borrowed_tokens >= self._exports.total_tokens:
            raise Unavailable("too many exports run; try again when one has ended")
        running = RunningExport(read)
        # The first piece decides about the status: an error before it has words.
        try:
            with anyio.fail_after(ANSWER_WITHIN_S):
                first = await running.first()
        except BaseException:
            running.stop()
            raise
        return StreamingResponse(
            self._counted(export_body(running, first)), media_type=media_type,
            headers={"Content-Disposition": f'attachment; filename="{name}"'},
        )  # fmt: skip

    async def _counted(self, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield a response's body while it counts as one of the running exports."""
        async with self._exports:
            async for piece in body:
                yield piece

    async def _download(self, request: Request) -> Response:
        session, user = self._session_of(request)
        part = request.path_params["part"]
        if part not in {"key", "value"}:
            raise InvalidRequest(f"a record has a key and a value, not {part[:40]!r}")
        values = _query_values(request, (SNAPSHOT,), session)
        tp, offset, found = await self._in_thread(find_record, user.view, values)
        data = found.column(part)[0].as_py()
        name = _SAFE_NAME.sub("_", f"{tp.topic}-{tp.partition}-{offset}-{part}.bin")
        return Response(
            data or b"", media_type="application/octet-stream",
            headers={"Content-Disposition": f'attachment; filename="{name}"'},
        )  # fmt: skip

    async def _login(self, request: Request) -> Response:
        if self._sessions.logins is None:
            return RedirectResponse("/", 303)
        if request.method == "GET":
            return self._login_page("")
        check_same_site(request)
        given = await self._fields(request, 4 * CREDENTIAL_TEXT_MAX)
        name, password = given.get("user", ""), given.get("password", "")
        try:
            if not 0 < len(name) <= CREDENTIAL_TEXT_MAX or len(password) > CREDENTIAL_TEXT_MAX:
                raise SaslAuthenticationFailed("no such name")
            user = await self._in_thread(self._sessions.logins.log_in, name, password)
        except SaslAuthenticationFailed:
            logger.warning("login failed. user=%r", name[:100])
            await anyio.sleep(FAILED_LOGIN_S)
            return self._login_page("The user or the password is wrong.", 401)
        return self._logged_in(user)

    def _logged_in(self, user: ConsoleUser, lasts_s: float = math.inf) -> Response:
        session = self._sessions.begin(user, lasts_s)
        response = RedirectResponse("/", 303)
        self._set_cookie(response, COOKIE, session.session_id)
        return response

    async def _to_provider(self, request: Request) -> Response:
        del request
        logins = self._sessions.logins
        if not isinstance(logins, ProviderLogins):
            return RedirectResponse("/login", 303)
        address, browser = await self._in_thread(logins.provider.begin)
        response = RedirectResponse(address, 303)
        self._set_cookie(response, PROVIDER_COOKIE, browser, seconds=round(PENDING_S))
        return response

    async def _from_provider(self, request: Request) -> Response:
        logins = self._sessions.logins
        if not isinstance(logins, ProviderLogins):
            return RedirectResponse("/login", 303)
        given = {n: t[:PARAMETER_MAX] for n, t in request.query_params.items()}
        browser = request.cookies.get(PROVIDER_COOKIE, "")
        try:
            user, ends_ms = await self._in_thread(logins.confirmed, browser, given)
        except SaslAuthenticationFailed as error:
            response = self._login_page(f"{error}; try again.", 401)
        else:
            response = self._logged_in(user, (ends_ms - SYSTEM_CLOCK.now_ms()) / 1000)
        response.delete_cookie(PROVIDER_COOKIE)
        return response

    async def _logout(self, request: Request) -> Response:
        session, _ = self._session_of(request)
        check_same_site(request)
        given = await self._fields(request, CREDENTIAL_TEXT_MAX)
        if not self._sessions.is_token(session, given.get("csrf", "")):
            raise ForbiddenChange("the page is too old; load it again")
        self._sessions.end(session.session_id)
        response = RedirectResponse("/login", 303)
        response.delete_cookie(COOKIE)
        return response

    async def _missing(self, request: Request, error: Exception) -> Response:
        del error
        problem = ConsoleProblem(404, "Not here", f"There is no page {request.url.path}.")
        return self._failed(request, problem)

    def _failed(self, request: Request, problem: ConsoleProblem) -> Response:
        if _is_api(request):
            document = {"error": problem.title, "message": problem.message}
            return JSONResponse(document, problem.status)
        try:
            session, user = self._session_of(request)
        except LoginNeeded:
            return self._login_page(problem.message, problem.status)
        return self._render(
            request, "problem.html", session, user, status=problem.status, page="problem",
            problem=problem,
        )  # fmt: skip

    def _login_page(self, problem: str, status: int = 200) -> Response:
        text = self._templates.get_template("login.html").render(
            problem=problem, version=self._version,
            provider=isinstance(self._sessions.logins, ProviderLogins),
        )  # fmt: skip
        return Response(text, status, media_type="text/html")

    def _render(
        self,
        request: Request,
        template: str,
        session: ConsoleSession,
        user: ConsoleUser,
        *,
        status: int = 200,
        **values: Any,
    ) -> Response:
        done = unquote(request.cookies.get(DONE_COOKIE, ""))[:DONE_TEXT_MAX]
        text = self._templates.get_template(template).render(
            csrf=self._sessions.token(session),
            user=user,
            may_edit=user.role >= ConsoleRole.EDITOR,
            may_admin=user.role >= ConsoleRole.ADMIN,
            logins=self._sessions.logins is not None,
            navigation=[n for n in NAVIGATION if _has(user.view, n.needs)],
            place=user.view.place,
            kind=user.view.kind,
            version=self._version,
            done=done,
            path=request.url.path,
            **values,
        )
        response = Response(text, status, media_type="text/html")
        if done:
            response.delete_cookie(DONE_COOKIE)
        self._keep_session(request, response)
        return response

    def _keep_session(self, request: Request, response: Response) -> None:
        made = getattr(request.state, "new_session", None)
        if made is not None:
            self._set_cookie(response, COOKIE, made)

    def _set_cookie(
        self, response: Response, name: str, value: str, seconds: int | None = None
    ) -> None:
        response.set_cookie(
            name, value, max_age=seconds, httponly=True, samesite="lax", secure=self._secure
        )


def _has(view: ClusterView, needs: str) -> bool:
    """Return True if the view has a page that needs `root`, `brokers`, or nothing."""
    return needs in ("", view.kind) or (needs == "brokers" and view.asks_brokers)


def _pattern(path: str) -> str:
    # Names of groups, users and subjects may contain slashes.
    for name in ("group", "user", "subject"):
        path = path.replace(f"{{{name}}}", f"{{{name}:path}}")
    return path


def _is_api(request: Request) -> bool:
    path: str = request.url.path
    return path.startswith(API_PREFIX + "/")


def _flat(pairs: list[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in pairs:
        if name in found and found[name] != value and "" not in (found[name], value):
            raise InvalidRequest(f"{name[:40]} is given twice")
        found[name] = value or found.get(name, "")
    if len(found) > FIELDS_MAX:
        raise InvalidRequest(f"too many fields. fields_max={FIELDS_MAX}")
    return found


def _query_values(
    request: Request, parameters: tuple[FieldSpec, ...], session: ConsoleSession
) -> BoundedValues:
    given = _flat(request.query_params.multi_items())
    return BoundedValues.checked(given, parameters, request.path_params, session.session_id)


def _json_fields(body: bytes, body_max: int) -> dict[str, str]:
    try:
        document = parse_json(body or b"{}", "the request", bytes_max=body_max)
    except InvalidJson as error:
        raise InvalidRequest(str(error)) from error
    if not isinstance(document, Mapping) or len(document) > FIELDS_MAX:
        raise InvalidRequest("the request is a JSON object with the fields of the action")
    found = {}
    for name, value in document.items():
        if isinstance(value, bool):
            found[name] = str(int(value))
        elif isinstance(value, str | int):
            found[name] = str(value)
        else:
            raise InvalidRequest(f"{name[:40]} is a string, a whole number or a boolean")
    return found
