"""Bearer tokens for tests: an issuer signs them, and its public key is a JWKS file."""

from __future__ import annotations

import json
import time
from pathlib import Path

from joserfc import jwk, jwt

AUDIENCE, ISSUER = "kafka", "test"


class TokenIssuer:
    """An issuer with one key."""

    def __init__(self) -> None:
        self._key = jwk.RSAKey.generate_key(2048, {"kid": "k", "use": "sig", "alg": "RS256"})

    def write_jwks(self, path: Path) -> Path:
        """Write the public key, as `sasl.oauthbearer.jwks.endpoint.url` takes it."""
        path.write_text(json.dumps({"keys": [self._key.as_dict(private=False)]}))
        return path

    def token(self, subject: str, lasts_s: int = 3600, audience: str = AUDIENCE) -> str:
        """Return a token for `subject`; a negative `lasts_s` makes an expired one."""
        now = int(time.time())
        claims = {
            "sub": subject,
            "iat": now + min(lasts_s, 0),
            "exp": now + lasts_s,
            "aud": audience,
            "iss": ISSUER,
        }
        return jwt.encode({"alg": "RS256", "kid": "k"}, claims, self._key)
