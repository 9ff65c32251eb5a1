"""An OpenID provider for tests, over real HTTP, which checks what a provider has to check."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from joserfc import jwk, jwt
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.harness.web_server import web_server

CLIENT_ID, CLIENT_SECRET, BROKERS = "console", "s3/cret:", "kafka"


class OidcProvider:
    """A provider whose only user has agreed."""

    def __init__(self) -> None:
        self.issuer = ""
        self.subject = "ann"
        self.changes: dict[str, Any] = {}
        """Claims that the next identity tokens have instead."""
        self.redirect_uri = ""
        self.key = new_key("first")
        self.signing = self.key
        self.keys_read = 0
        self._codes: dict[str, dict[str, str]] = {}
        self.app = Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self._described),
                Route("/authorize", self._authorize),
                Route("/token", self._token, methods=["POST"]),
                Route("/keys", self._keys),
            ]
        )

    def token(self, audience: str, **claims: Any) -> str:
        now = int(time.time())
        all_claims = {
            "iss": self.issuer, "sub": self.subject, "aud": audience, "iat": now,
            "exp": now + 600, **claims,
        }  # fmt: skip
        header = {"alg": "RS256", "kid": str(self.signing.kid)}
        return jwt.encode(header, all_claims, self.signing)

    async def _described(self, _: Request) -> Response:
        return JSONResponse(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
            }
        )

    async def _authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        right = (
            asked["response_type"] == "code"
            and asked["client_id"] == CLIENT_ID
            and asked["redirect_uri"] == self.redirect_uri
            and asked["code_challenge_method"] == "S256"
            and "openid" in asked["scope"].split()
        )
        if not right:
            return JSONResponse({"error": "invalid_request"}, 400)
        code = f"code-{len(self._codes)}"
        self._codes[code] = asked
        query = {"code": code, "state": asked["state"], "iss": self.issuer}
        return RedirectResponse(f"{self.redirect_uri}?{urlencode(query)}", 302)

    async def _token(self, request: Request) -> Response:
        form = dict(parse_qsl((await request.body()).decode()))
        asked = self._codes.pop(form.get("code", ""), None)
        basic = base64.b64encode(f"{CLIENT_ID}:{quote(CLIENT_SECRET)}".encode()).decode()
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (
            asked is None
            or form["grant_type"] != "authorization_code"
            or form["redirect_uri"] != asked["redirect_uri"]
            or challenge != asked["code_challenge"]
            or request.headers.get("authorization") != f"Basic {basic}"
        ):
            return JSONResponse({"error": "invalid_grant"}, 400)
        claims = {"nonce": asked["nonce"], **self.changes}
        audience = claims.pop("aud", CLIENT_ID)
        return JSONResponse(
            {
                "token_type": "Bearer",
                "id_token": self.token(audience, **claims),
                "access_token": self.token(BROKERS),
            }
        )

    async def _keys(self, _: Request) -> Response:
        self.keys_read += 1
        return JSONResponse({"keys": [self.key.as_dict(private=False)]})


def new_key(name: str) -> jwk.RSAKey:
    """Return a key with this id."""
    return jwk.RSAKey.generate_key(2048, {"kid": name, "use": "sig", "alg": "RS256"})


@contextmanager
def running_provider() -> Iterator[OidcProvider]:
    """Serve a provider on loopback."""
    provider = OidcProvider()
    with web_server(provider.app) as (provider.issuer, _):
        yield provider
