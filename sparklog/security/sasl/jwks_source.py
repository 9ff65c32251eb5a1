"""Reads the public keys of an OAuth provider from a file or an https address.

Redirects are not followed, and the answer is bounded. Source: RFC 7517; KIP-768.
"""

from __future__ import annotations

import http.client
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from sparklog.core.config.providers import read_bounded
from sparklog.core.errors import InvalidConfig, Unavailable
from sparklog.core.https_request import request_bounded
from sparklog.core.web_requests import is_confidential
from sparklog.security.sasl.jwks import JWKS_BYTES_MAX

SETTING: Final = "sasl.oauthbearer.jwks.endpoint.url"
_OK: Final = 200


def check_jwks_url(url: str) -> None:
    """Check that keys may come from an address.

    Raises:
        InvalidConfig: it is neither a file nor an https address. Loopback may be http.
    """
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.path:
        return
    if not is_confidential(parts):
        raise InvalidConfig(f"keys come from an https address or a file: URL. {SETTING}={url}")


def read_jwks(url: str) -> bytes:
    """Return the document at a checked address. Blocks.

    Raises:
        InvalidConfig: the file cannot be read.
        Unavailable: the provider does not answer, or not with the keys.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        return read_bounded(Path(unquote(parts.path)), f"setting={SETTING}").encode()
    try:
        status, document = request_bounded(
            "GET", parts, JWKS_BYTES_MAX, headers={"Accept": "application/json"}
        )
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"the provider does not answer: {error!r}. {SETTING}={url}") from error
    if status != _OK or len(document) > JWKS_BYTES_MAX:
        raise Unavailable(
            f"the provider did not return its keys. status={status} "
            f"bytes={len(document)} {SETTING}={url}"
        )
    return document
