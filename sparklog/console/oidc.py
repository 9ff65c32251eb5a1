"""OpenID Connect: the authorization code flow with PKCE, for logins of the console.

CONSOLE-OIDC-1: A login ends in the browser that began it. Its cookie, the state and the nonce
    belong together.
CONSOLE-OIDC-2: A state, and with it a code, is used once, and within `PENDING_S`.
CONSOLE-OIDC-3: The identity token passes the checks of a broker's bearer token: a signature by a
    key of the issuer, issuer, audience and times. Then come its nonce and authorized party.
CONSOLE-OIDC-4: Addresses are https, or loopback. Redirects of the endpoints are not followed.

Source: OpenID Connect Core 3.1, RFC 6749, RFC 7636, RFC 9207.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import urllib.error
import urllib.request
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from threading import Lock
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from sparklog.core.bounded_json import parse_json
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.entropy import SYSTEM_ENTROPY, Entropy, new_nonce
from sparklog.core.errors import (
    InvalidConfig,
    InvalidJson,
    SaslAuthenticationFailed,
    Unavailable,
)
from sparklog.core.web_requests import is_confidential
from sparklog.security.sasl.jwks import JWKS_BYTES_MAX, JwksCache
from sparklog.security.sasl.mechanism import SaslFailure
from sparklog.security.sasl.oauthbearer import TokenRules, validated_claims

logger = logging.getLogger(__name__)

PENDING_MAX: Final = 1000
PENDING_S: Final = 600.0
TIMEOUT_S: Final = 8.0
ANSWER_BYTES_MAX: Final = JWKS_BYTES_MAX
PARAMETER_MAX: Final = 4096
VERIFIER_BYTES: Final = 48
DISCOVERY: Final = "/.well-known/openid-configuration"


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """The console as a client of a provider."""

    issuer: str
    client_id: str
    redirect_uri: str
    """The console's own address, with the path `/login/callback`."""
    client_secret: str = ""
    """Empty for a public client."""
    scope: str = "openid profile"
    name_claim: str = "sub"
    """The claim with the user's name."""

    def __post_init__(self) -> None:
        """Check the addresses. Raises InvalidConfig."""
        for url in (self.issuer, self.redirect_uri):
            check_address(url)


@dataclass(frozen=True, slots=True)
class OidcUser:
    """A user that the provider confirmed."""

    name: str
    access_token: str
    expires_ms: int
    """Wall-clock time in ms at which the identity token ends."""


@dataclass(frozen=True, slots=True)
class _PendingLogin:
    browser: str
    nonce: str
    verifier: str
    began_s: float


def check_address(url: str) -> None:
    """Check an address of a provider. Raises InvalidConfig: neither https nor loopback."""
    parts = urlsplit(url)
    if not is_confidential(parts):
        raise InvalidConfig(f"an address of OpenID Connect is https. address={url[:200]}")


class OidcLogins:
    """Logins by one provider. Thread-safe."""

    def __init__(
        self,
        settings: OidcSettings,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
    ) -> None:
        """Use this provider; nothing is sent before the first login."""
        self.settings = settings
        self._clock = clock
        self._entropy = entropy
        self._keys = JwksCache()
        self._found: Mapping[str, Any] | None = None
        self._pending: OrderedDict[str, _PendingLogin] = OrderedDict()
        self._lock = Lock()
        self._keys_lock = Lock()
        self._rules = TokenRules(
            frozenset({settings.client_id}), settings.issuer, subject_claim=settings.name_claim
        )

    def begin(self) -> tuple[str, str]:
        """Return the provider's page for a new login, and the value of the browser's cookie.

        Raises:
            Unavailable: the provider does not answer. InvalidConfig: it is another issuer.
        """
        endpoint = self._endpoint("authorization_endpoint")
        state, nonce, browser = (new_nonce(self._entropy) for _ in range(3))
        verifier = _base64url(self._entropy.random_bytes(VERIFIER_BYTES))
        now_s = self._clock.monotonic_s()
        with self._lock:
            self._pending[state] = _PendingLogin(browser, nonce, verifier, now_s)
            while len(self._pending) > PENDING_MAX:
                self._pending.popitem(last=False)
        query = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": self.settings.redirect_uri,
            "scope": self.settings.scope,
            "state": state,
            "nonce": nonce,
            "code_challenge": _base64url(hashlib.sha256(verifier.encode()).digest()),
            "code_challenge_method": "S256",
        }
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}", browser

    def finish(self, browser: str, given: Mapping[str, str]) -> OidcUser:
        """Return the user of a login that the provider sent back.

        Args:
            browser: the cookie of the browser.
            given: the parameters of the callback.

        Raises:
            SaslAuthenticationFailed: the login is not confirmed; the log has the reason.
            Unavailable: the provider does not answer.
        """
        pending = self._taken(browser, given.get("state", ""))
        if "error" in given or not given.get("code"):
            raise _rejected(f"the provider refused: {given.get('error', 'no code')[:200]!r}")
        if given.get("iss", self.settings.issuer) != self.settings.issuer:
            raise _rejected("the callback names another issuer")
        tokens = self._tokens(given["code"], pending.verifier)
        id_token, access_token = tokens.get("id_token"), tokens.get("access_token")
        if not isinstance(id_token, str) or not isinstance(access_token, str):
            raise _rejected("the provider returned no tokens")
        authenticated, claims = self._validated(id_token)
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), pending.nonce.encode()):
            raise _rejected("the token has another nonce")
        several = isinstance(claims.get("aud"), list) and len(claims["aud"]) > 1
        party = claims.get("azp")
        if (several or party is not None) and party != self.settings.client_id:
            raise _rejected("the token is for another party")
        return OidcUser(authenticated.name, access_token, authenticated.expires_ms or 0)

    def _taken(self, browser: str, state: str) -> _PendingLogin:
        now_s = self._clock.monotonic_s()
        with self._lock:
            pending = self._pending.pop(state, None)
        if pending is None or now_s - pending.began_s > PENDING_S:
            raise _rejected("the state is not that of a login that goes on")
        if not hmac.compare_digest(pending.browser.encode(), browser.encode("utf-8", "replace")):
            raise _rejected("another browser began this login")
        return pending

    def _tokens(self, code: str, verifier: str) -> Mapping[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.settings.redirect_uri,
            "client_id": self.settings.client_id,
            "code_verifier": verifier,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if self.settings.client_secret:
            pair = f"{quote(self.settings.client_id)}:{quote(self.settings.client_secret)}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        status, data = _ask(self._endpoint("token_endpoint"), urlencode(form).encode(), headers)
        if status != 200:
            raise _rejected(f"the provider gave no token for the code. status={status}")
        return _document(data)

    def _validated(self, token: str) -> tuple[Any, Mapping[str, Any]]:
        for is_last in (False, True):
            now_ms = self._clock.now_ms()
            with self._keys_lock:
                if now_ms >= self._keys.due_ms:
                    self._load_keys(now_ms)
                try:
                    return validated_claims(token, self._keys, self._rules, now_ms)
                except SaslFailure as failure:
                    # An unknown key makes the keys due again, at most once in some seconds.
                    if is_last or now_ms < self._keys.due_ms:
                        raise _rejected(str(failure)) from failure
        raise AssertionError("the second look is the last")

    def _load_keys(self, now_ms: int) -> None:
        try:
            status, data = _ask(self._endpoint("jwks_uri"))
            if status != 200:
                raise Unavailable(f"the provider did not return its keys. status={status}")
            self._keys.loaded(data, now_ms)
        except (Unavailable, InvalidConfig):
            self._keys.failed(now_ms)
            if not self._keys.keys:
                raise

    def _endpoint(self, name: str) -> str:
        """Return an address of the provider, found once. Raises Unavailable, InvalidConfig."""
        if self._found is None:
            status, data = _ask(self.settings.issuer.rstrip("/") + DISCOVERY)
            if status != 200:
                raise Unavailable(f"the provider does not describe itself. status={status}")
            found = _document(data)
            if found.get("issuer") != self.settings.issuer:
                raise InvalidConfig(
                    "the provider has another issuer than --oidc-issuer. "
                    f"issuer={str(found.get('issuer'))[:200]!r}"
                )
            self._found = found
        address = self._found.get(name)
        if not isinstance(address, str):
            raise InvalidConfig(f"the provider has no {name}")
        check_address(address)
        return address


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def _ask(
    url: str, form: bytes | None = None, headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    """Return the status and the bounded body of an answer. Raises Unavailable."""
    opener = urllib.request.build_opener(_NoRedirects)
    wanted = {"Accept": "application/json", **(headers or {})}
    request = urllib.request.Request(url, form, wanted)  # noqa: S310 - see check_address
    try:
        try:
            answer = opener.open(request, timeout=TIMEOUT_S)
        except urllib.error.HTTPError as refused:
            answer = refused
        with answer:
            status, data = int(answer.status), answer.read(ANSWER_BYTES_MAX + 1)
    except (OSError, HTTPException, ValueError) as error:
        raise Unavailable(f"the provider does not answer. problem={error}") from error
    if len(data) > ANSWER_BYTES_MAX:
        raise Unavailable(f"the provider's answer is too large. bytes_max={ANSWER_BYTES_MAX}")
    return status, bytes(data)


def _document(data: bytes) -> Mapping[str, Any]:
    try:
        found = parse_json(data, "the provider's answer", bytes_max=ANSWER_BYTES_MAX)
    except InvalidJson as error:
        raise Unavailable(f"the provider's answer is no JSON: {error}") from error
    if not isinstance(found, Mapping):
        raise Unavailable("the provider's answer is no JSON object")
    return found


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _rejected(reason: str) -> SaslAuthenticationFailed:
    logger.warning("a login was rejected. reason=%s", reason)
    return SaslAuthenticationFailed("the provider did not confirm the login")
