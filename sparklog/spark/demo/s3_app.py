"""moto's S3, with writes that happen at one moment each, as S3's do.

moto looks whether a name is taken, and then stores: of two conditional puts at once both could be
told that they created it. On S3 one of them is told 412, and all of the log rests on that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from io import BytesIO
from threading import Lock
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

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
        # Its body is read first: a client that pauses amid it holds up nobody.
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
