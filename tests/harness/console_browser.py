"""A client of the web console, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from starlette.testclient import TestClient

from sparklog.cluster.log import Log
from sparklog.console.app import ConsoleApp
from sparklog.console.cluster_view import ClusterView
from sparklog.console.resources import ConsoleRole
from sparklog.console.sessions import ConsoleSessions, ConsoleUser, Logins
from sparklog.core.web_requests import LOOPBACK_NAMES
from tests.harness.waiting import eventually
from tests.harness.web_server import web_server

NASTY = (
    b"<script>alert(1)</script>",
    b"\x1b[31mred\x07",
    "right\u202eleft".encode(),
    b"\x00\x00\x00\x00\x07framed\xff",
    b"",
    None,
    b'{"a": "</code><b>"}',
    b"x" * 3_000_000,
)


@dataclass
class Browser:
    """A client of one console, with the session's token."""

    client: TestClient
    log: Log | None = None

    def page(self, path: str, status: int = 200) -> str:
        answer = self.client.get(path)
        assert answer.status_code == status, answer.text
        return str(answer.text)

    def get(self, path: str, status: int = 200) -> Any:
        answer = self.client.get(f"/api/v1{path}")
        assert answer.status_code == status, answer.text
        return answer.json()

    def token(self) -> str:
        return str(self.get("/session")["csrf"])

    def post(self, path: str, status: int = 200, **fields: Any) -> Any:
        headers = {"X-CSRF-Token": self.token()}
        answer = self.client.post(f"/api/v1{path}", json=fields, headers=headers)
        assert answer.status_code == status, answer.text
        return answer.json()

    def submit(self, path: str, status: int = 200, **fields: str) -> str:
        """Send a form as a page does, and return the page after it."""
        answer = self.client.post(path, data={"csrf": self.token(), **fields})
        assert answer.status_code == status, answer.text
        return str(answer.text)


def run_ended(browser: Browser, started: dict[str, Any]) -> Any:
    """Return a run of a query after its end."""

    def run() -> Any:
        found = browser.get(f"/sql?run={started['run']}")["run"]
        return None if found["state"] == "running" else found

    return eventually(run, "the query ends")


def ended(browser: Browser, statement: str, **limits: int) -> Any:
    """Run a query, and return the run after its end."""
    return run_ended(browser, browser.post("/sql/run", statement=statement, **limits))


@contextmanager
def served(view: ClusterView, role: ConsoleRole = ConsoleRole.ADMIN) -> Iterator[str]:
    """Serve a console on a free port, as the command does; the URL."""
    sessions = ConsoleSessions(ConsoleUser("", role, view), None)
    app = ConsoleApp(sessions, version="0.0", secure=False, hosts=LOOPBACK_NAMES)
    with web_server(app.starlette) as (url, server):
        app.is_stopping = lambda: server.should_exit
        yield url


def browser_of(
    view: ClusterView, role: ConsoleRole = ConsoleRole.ADMIN, logins: Logins | None = None
) -> TestClient:
    common = None if logins else ConsoleUser("", role, view)
    sessions = ConsoleSessions(common, logins)
    app = ConsoleApp(sessions, version="0.0", secure=False, hosts=LOOPBACK_NAMES)
    return TestClient(app.starlette, base_url="http://localhost:9099")
