"""Rules for browsers: headers of every response, how long files are kept, and the same site.

The policy allows the console's own files only, so markup that escaped its quotes could run nothing.
"""

from __future__ import annotations

import os
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from sparklog.console.console_errors import ForbiddenChange
from sparklog.core.web_guard import MISDIRECTED

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
# Not no-referrer: a browser would then send forms of the console's own pages with `Origin: null`.
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
ASSET_SECONDS: Final = 3600


class ConsoleFiles(StaticFiles):
    """Files of the console, which browsers keep for a while."""

    def file_response(
        self,
        full_path: str | os.PathLike[str],
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        """Return the response for one file."""
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers["Cache-Control"] = f"max-age={ASSET_SECONDS}"
        return response


def refused(status: int, words: str) -> Response:
    """Return the answer to a request that `WebGuard` refused."""
    hint = "; start it with --allow-host NAME" if status == MISDIRECTED else ""
    return PlainTextResponse(f"{words}{hint}\n", status)


def check_same_site(request: Request) -> None:
    """Check that a page of this console sent a change. Raises ForbiddenChange."""
    site = request.headers.get("sec-fetch-site", "none")
    origin = request.headers.get("origin", "")
    host = request.headers.get("host", "")
    same = not origin or urlsplit(origin).netloc == host
    if site not in {"none", "same-origin"} or not same:
        raise ForbiddenChange("another site sent this request; open the console itself")
