"""Bearer tokens of OAUTHBEARER: a static one, one of a file, or one of an OAuth server.

An OAuth server is asked with the grant `client_credentials`. Redirects are not followed, because
they would send the secret to another host. Source: RFC 6749, section 4.4; KIP-768.
"""

from __future__ import annotations

import base64
import http.client
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode, urlsplit

from sparklog.client.security_settings import SaslSettings
from sparklog.core.bounded_json import parse_json
from sparklog.core.config.providers import read_bounded
from sparklog.core.errors import InvalidConfig, InvalidJson, SaslAuthenticationFailed, Unavailable
from sparklog.core.https_request import request_bounded
from sparklog.core.web_requests import is_confidential

ANSWER_BYTES_MAX: Final = 1 << 20
LIFETIME_S: Final = 3600.0
"""Assumed for a token that does not show its expiry."""
_SETTING: Final = "sasl.oauthbearer.token.endpoint.url"


def bearer_token(sasl: SaslSettings) -> str:
    """Return a token for the next login.

    Raises:
        InvalidConfig: the file or the address cannot be used.
        SaslAuthenticationFailed: the OAuth server rejects the client.
        Unavailable: the OAuth server does not answer.
    """
    if sasl.token:
        return sasl.token
    url = urlsplit(sasl.token_url)
    if url.scheme == "file":
        token = read_bounded(Path(unquote(url.path)), f"setting={_SETTING}").strip()
        if not token:
            raise InvalidConfig(f"the file has no token. {_SETTING}={sasl.token_url}")
        return token
    if url.username is not None:
        raise InvalidConfig(f"the address has a user; set a client id instead. setting={_SETTING}")
    if not is_confidential(url):
        raise InvalidConfig(
            f"tokens come from an https address or a file: URL. {_SETTING}={sasl.token_url}"
        )
    try:
        status, data = request_bounded(
            "POST", url, ANSWER_BYTES_MAX, headers=_headers(sasl), body=_body(sasl)
        )
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(
            f"the OAuth server does not answer. {_SETTING}={sasl.token_url} problem={error}"
        ) from error
    return _token_of(status, data, sasl)


def token_expiry_s(token: str, now_s: float) -> float:
    """Return when a JWT expires, in seconds since the Unix epoch; nothing is verified."""
    parts = token.split(".")
    if len(parts) == 3:
        try:
            padded = parts[1] + "=" * (-len(parts[1]) % 4)
            claims = parse_json(base64.urlsafe_b64decode(padded), "JWT", bytes_max=ANSWER_BYTES_MAX)
        except (InvalidJson, ValueError):
            claims = None
        expiry = claims.get("exp") if isinstance(claims, dict) else None
        if isinstance(expiry, int | float) and not isinstance(expiry, bool) and 0 < expiry < 1e12:
            return float(expiry)
    return now_s + LIFETIME_S


def _token_of(status: int, data: bytes, sasl: SaslSettings) -> str:
    where = f"{_SETTING}={sasl.token_url} status={status}"
    if status >= 500 or status == 429:
        raise Unavailable(f"the OAuth server is not ready; try again. {where}")
    if status != 200:
        raise SaslAuthenticationFailed(
            f"the OAuth server gives no token; check the client id and the client secret. {where} "
            f"client_id={sasl.client_id}"
        )
    try:
        document: Any = parse_json(data, "the OAuth server's answer", bytes_max=ANSWER_BYTES_MAX)
    except InvalidJson as error:
        raise SaslAuthenticationFailed(f"the OAuth server's answer is no JSON. {where}") from error
    token = document.get("access_token") if isinstance(document, dict) else None
    if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable():
        raise SaslAuthenticationFailed(f"the OAuth server's answer has no access_token. {where}")
    return token


def _body(sasl: SaslSettings) -> str:
    scope = {"scope": sasl.scope} if sasl.scope else {}
    return urlencode({"grant_type": "client_credentials", **scope})


def _headers(sasl: SaslSettings) -> dict[str, str]:
    client = f"{quote(sasl.client_id, safe='')}:{quote(sasl.client_secret, safe='')}"
    return {
        "Authorization": f"Basic {base64.b64encode(client.encode()).decode()}",
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
    }
