"""An S3 server on this machine, for the demo: moto's, on a free port, with its requests counted.

Run as `python -m sparklog.spark.demo.s3_server BUCKET`. It prints its port as a JSON line, then
answers each line on standard input with the requests so far. It ends when standard input ends, so
it cannot outlive the process that started it.

It is moto's S3, with writes that happen at one moment each, as S3's do.

moto looks whether a name is taken, and then stores: of two conditional puts at once both could get
the answer that they created it. On S3 one of them gets 412, and all of the log rests on that.
"""

from __future__ import annotations

import json
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from io import BytesIO
from threading import Lock, Thread
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

WsgiApp = Callable[[dict[str, Any], Any], Iterable[bytes]]


class OneWriteAtATime:
    """Passes requests on: those that read side by side, those that write one after the other."""

    def __init__(self, app: WsgiApp) -> None:
        """Pass requests on to `app`."""
        self._app = app
        self._lock = Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answer one request."""
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return self._app(environ, start_response)
        # Its body is read first: a client that pauses amid it holds up no other.
        environ["wsgi.input"] = BytesIO(_body(environ))
        with self._lock:
            return self._app(environ, start_response)


def _body(environ: dict[str, Any]) -> bytes:
    ends_itself = environ.get("wsgi.input_terminated", False)
    size = -1 if ends_itself else int(environ.get("CONTENT_LENGTH") or 0)
    data: bytes = environ["wsgi.input"].read(size)
    return data


def s3_app() -> WsgiApp:
    """Return moto's S3; its objects live in this process's memory."""
    return OneWriteAtATime(DomainDispatcherApplication(create_backend_app))


class CountingApp:
    """Counts requests by what an object store bills them as, and passes them on."""

    def __init__(self, app: WsgiApp) -> None:
        """Count what `app` is asked."""
        self._app = app
        self._counts: Counter[str] = Counter()
        self._lock = Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Count, and answer."""
        kind = environ["REQUEST_METHOD"]
        if kind == "GET" and "list-type" in environ.get("QUERY_STRING", ""):
            kind = "LIST"
        with self._lock:
            self._counts[kind] += 1
        return self._app(environ, start_response)

    def counts(self) -> dict[str, int]:
        """Return the requests by kind."""
        with self._lock:
            return dict(self._counts)


def serve() -> None:
    """Serve until standard input ends."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app = CountingApp(s3_app())
    server = make_server("127.0.0.1", 0, app, threaded=True)
    Thread(target=server.serve_forever, name="s3", daemon=True).start()
    print(json.dumps({"port": server.server_port}), flush=True)
    for _ in sys.stdin:
        print(json.dumps(app.counts()), flush=True)
    server.shutdown()


if __name__ == "__main__":
    serve()
