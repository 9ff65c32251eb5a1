"""The demo's S3: conditional puts decide as S3's do, also under concurrent requests."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from werkzeug.test import EnvironBuilder, run_wsgi_app

from sparklog.spark.demo.s3_server import OneWriteAtATime, WsgiApp, s3_app

WITHIN_S = 30.0


def ask(app: WsgiApp, method: str, body: bytes = b"", **environ: Any) -> tuple[int, bytes]:
    builder = EnvironBuilder(
        "/bucket/name", "http://127.0.0.1", method=method, data=body, environ_overrides=environ
    )
    answer, status, _ = run_wsgi_app(app, builder.get_environ(), buffered=True)
    return int(status.split()[0]), b"".join(answer)


class LooksThenStores:
    """A store as moto is: whether a name is taken is found out before it is taken."""

    def __init__(self, meet: int = 1, within_s: float = WITHIN_S) -> None:
        """Have `meet` requests come together between looking and storing, if they can."""
        self.stored: bytes | None = None
        self.met = 0
        self._meeting = threading.Barrier(meet)
        self._within_s = within_s

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        taken = self.stored is not None
        try:
            self._meeting.wait(self._within_s)
            self.met += 1
        except threading.BrokenBarrierError:
            self._meeting.reset()
        if environ["REQUEST_METHOD"] == "PUT" and not taken:
            self.stored = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        start_response("412 Precondition Failed" if taken else "200 OK", [])
        return [self.stored or b""]


def test_concurrent_puts_of_one_name_create_it_once() -> None:
    inner = LooksThenStores(meet=2, within_s=0.2)
    app = OneWriteAtATime(inner)
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda body: ask(app, "PUT", body), (b"one", b"two")))
    assert sorted(status for status, _ in answers) == [200, 412]
    assert answers[0][1] == answers[1][1] == inner.stored
    assert inner.met == 0


def test_reads_go_on_beside_each_other() -> None:
    inner = LooksThenStores(meet=2)
    app = OneWriteAtATime(inner)
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda method: ask(app, method), ("GET", "HEAD")))
    assert [status for status, _ in answers] == [200, 200]
    assert inner.met == 2


class PausedBody(io.RawIOBase):
    """The bytes of a client that stops amid its request."""

    def __init__(self) -> None:
        self.asked, self.goes_on = threading.Event(), threading.Event()

    def read(self, size: int = -1, /) -> bytes:
        self.asked.set()
        assert self.goes_on.wait(WITHIN_S)
        return b"late"[:size]


def test_client_that_pauses_amid_a_put_delays_no_other() -> None:
    app = OneWriteAtATime(LooksThenStores())
    paused = PausedBody()

    def put_late() -> tuple[int, bytes]:
        sent: dict[str, Any] = {"wsgi.input": paused, "CONTENT_LENGTH": "4"}
        return ask(app, "PUT", **sent)

    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(put_late)
        assert paused.asked.wait(WITHIN_S)
        assert ask(app, "PUT", b"first") == (200, b"first")
        paused.goes_on.set()
        assert late.result(WITHIN_S) == (412, b"first")


@pytest.mark.parametrize(
    "told", [{"CONTENT_LENGTH": "4"}, {"CONTENT_LENGTH": "", "wsgi.input_terminated": True}]
)
def test_a_body_arrives_whole_with_a_length_and_in_chunks(told: dict[str, Any]) -> None:
    bodies: list[bytes] = []

    def inner(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        bodies.append(environ["wsgi.input"].read())
        start_response("200 OK", [])
        return []

    ask(OneWriteAtATime(inner), "PUT", **{"wsgi.input": io.BytesIO(b"sent"), **told})
    assert bodies == [b"sent"]


def test_s3_server_of_the_demo_is_motos() -> None:
    app = s3_app()
    known: dict[str, Any] = {
        "HTTP_AUTHORIZATION": "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/x"
    }
    run_wsgi_app(app, EnvironBuilder("/bucket", "http://127.0.0.1", method="PUT").get_environ())
    assert ask(app, "PUT", b"x", HTTP_IF_NONE_MATCH="*", **known)[0] == 200
    assert ask(app, "PUT", b"y", HTTP_IF_NONE_MATCH="*", **known)[0] == 412
    assert ask(app, "GET", **known) == (200, b"x")
    assert ask(app, "PUT", b"y", **known)[0] == 200
