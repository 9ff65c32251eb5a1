"""Sessions: the users of the console, their roles, and tokens against forged requests.

CONSOLE-SESSIONS-1: A change needs a token that derives from the session's cookie and a key of this
    process. Another site can send the cookie, and cannot read the token.
CONSOLE-SESSIONS-2: A session has a random id of 128 bits. It ends when it was idle for `IDLE_S`,
    and with the process.
CONSOLE-SESSIONS-3: Without logins each browser has the console's own role, and only loopback is
    served, unless the role is viewer.
CONSOLE-SESSIONS-4: A session of an OpenID provider ends with the token.
CONSOLE-SESSIONS-5: With logins an unknown user costs as much time as a wrong password.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Final, Protocol

from sparklog.client.security import with_login
from sparklog.console.bill import Bill
from sparklog.console.broker_view import BrokerView
from sparklog.console.cluster_view import ClusterView
from sparklog.console.oidc import OidcLogins, OidcUser
from sparklog.console.resources import ConsoleRole
from sparklog.console.root_view import RootView
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.entropy import SYSTEM_ENTROPY, Entropy, new_nonce
from sparklog.core.errors import SaslAuthenticationFailed
from sparklog.security.jaas import OAUTHBEARER_MODULE
from sparklog.security.sasl.password_check import PasswordCheck

COOKIE: Final = "sparklog_console"
IDLE_S: Final = 8 * 3600.0
SESSIONS_MAX: Final = 1000
CREDENTIAL_TEXT_MAX: Final = 1024
_ID: Final = re.compile("[0-9a-f]{32}")
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]{1,65536}")


@dataclass(frozen=True, slots=True)
class ConsoleUser:
    """The user of one request."""

    name: str
    """Empty without logins."""
    role: ConsoleRole
    view: ClusterView


@dataclass(slots=True)
class ConsoleSession:
    """One browser's session."""

    session_id: str
    user: ConsoleUser | None
    used_s: float
    ends_s: float = math.inf
    """On the monotonic clock: a provider's token ends then."""


class Logins(Protocol):
    """Checks users and passwords."""

    def log_in(self, name: str, password: str) -> ConsoleUser:
        """Return the user. Raises SaslAuthenticationFailed: a wrong name or password."""


class RootLogins:
    """Users of the log under a root: their SCRAM credentials, and roles of the command line."""

    def __init__(
        self,
        view: RootView,
        roles: Mapping[str, ConsoleRole],
        entropy: Entropy = SYSTEM_ENTROPY,
        *,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Use the users of `view`; one without a role is a viewer.

        With a client's `settings` each user asks the brokers, too, by the same name and password.
        """
        self._view = view
        self._settings = settings
        self._roles = dict(roles)
        self._check = PasswordCheck(lambda: view.image().scram_credentials, entropy)

    def log_in(self, name: str, password: str) -> ConsoleUser:
        """Return the user. Raises SaslAuthenticationFailed: a wrong name or password."""
        self._check.check(name, password)
        view = self._view
        if self._settings is not None:
            view = view.with_brokers(with_login(self._settings, name, password))
        return ConsoleUser(name, self._roles.get(name, ConsoleRole.VIEWER), view)


class BrokerLogins:
    """Users of brokers: the console acts as each of them, so that ACLs decide."""

    def __init__(
        self,
        bootstrap: str,
        settings: Mapping[str, str],
        most: ConsoleRole,
        bill: Bill | None = None,
    ) -> None:
        """Log in with these settings, where each user's name and password take the place."""
        self._bill = bill
        self._bootstrap = bootstrap
        self._settings = dict(settings)
        self._most = most

    def log_in(self, name: str, password: str) -> ConsoleUser:
        """Return the user. Raises SaslAuthenticationFailed; Unavailable: no broker answers."""
        own = with_login(self._settings, name, password)
        view = BrokerView(self._bootstrap, own, bill=self._bill)
        return checked_user(name, self._most, view)


class ProviderLogins:
    """Users of an OpenID provider; without passwords here."""

    def __init__(self, provider: OidcLogins, user_of: Callable[[OidcUser], ConsoleUser]) -> None:
        """Let `user_of` make the users that `provider` confirms."""
        self.provider = provider
        self._user_of = user_of

    def log_in(self, name: str, password: str) -> ConsoleUser:
        """Raise SaslAuthenticationFailed: the provider has the passwords."""
        del name, password
        raise SaslAuthenticationFailed("log in at the provider")

    def confirmed(self, browser: str, given: Mapping[str, str]) -> tuple[ConsoleUser, int]:
        """Return the user of a login that came back, and when its token ends, in ms.

        Raises as `OidcLogins.finish`. At brokers the console has logged in by the access token.
        """
        found = self.provider.finish(browser, given)
        return self._user_of(found), found.expires_ms


def broker_user(
    bootstrap: str,
    settings: Mapping[str, str],
    most: ConsoleRole,
    bill: Bill | None,
    found: OidcUser,
) -> ConsoleUser:
    """Return a user that acts at brokers by the access token of an OpenID provider.

    Raises:
        SaslAuthenticationFailed: the brokers reject the token. Unavailable: no broker answers.
    """
    if _TOKEN.fullmatch(found.access_token) is None:
        raise SaslAuthenticationFailed("the access token is none that brokers take")
    own = {
        "security.protocol": sasl_protocol(settings),
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f'{OAUTHBEARER_MODULE} required token="{found.access_token}";',
    }
    kept = {n: t for n, t in settings.items() if not n.startswith("sasl.")}
    return checked_user(found.name, most, BrokerView(bootstrap, {**kept, **own}, bill=bill))


def sasl_protocol(settings: Mapping[str, str]) -> str:
    """Return the protocol of the settings, with SASL."""
    protocol = settings.get("security.protocol", "PLAINTEXT").upper()
    return protocol if protocol.startswith("SASL_") else f"SASL_{protocol}"


def checked_user(name: str, most: ConsoleRole, view: BrokerView) -> ConsoleUser:
    """Return the user after a login at a broker. Raises SaslAuthenticationFailed, Unavailable."""
    try:
        with view.brokers_admin() as admin:
            admin.brokers()
    except BaseException:
        view.close()
        raise
    return ConsoleUser(name, most, view)


class ConsoleSessions:
    """All sessions of the process. Thread-safe."""

    def __init__(
        self,
        common: ConsoleUser | None,
        logins: Logins | None,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
    ) -> None:
        """Serve `common` without logins, or users of `logins`."""
        self.logins = logins
        self._common = common
        self._clock = clock
        self._entropy = entropy
        self._key = entropy.random_bytes(32)
        self._sessions: OrderedDict[str, ConsoleSession] = OrderedDict()
        self._lock = Lock()

    def begin(self, user: ConsoleUser | None = None, lasts_s: float = math.inf) -> ConsoleSession:
        """Return a new session, and end the one that was idle longest if there are too many.

        Without logins a session is its id alone, so that visitors push out no others.
        """
        now_s = self._clock.monotonic_s()
        session = ConsoleSession(
            new_nonce(self._entropy), user or self._common, now_s, now_s + lasts_s
        )
        if self.logins is None:
            return session
        ended: list[ConsoleSession] = []
        with self._lock:
            self._sessions[session.session_id] = session
            while len(self._sessions) > SESSIONS_MAX:
                ended.append(self._sessions.popitem(last=False)[1])
        self._release(ended)
        return session

    def find(self, session_id: str) -> ConsoleSession | None:
        """Return a session that has not ended."""
        if self.logins is None:
            known = _ID.fullmatch(session_id) is not None
            return ConsoleSession(session_id, self._common, 0.0) if known else None
        now_s = self._clock.monotonic_s()
        ended: list[ConsoleSession] = []
        with self._lock:
            while self._sessions:
                oldest = next(iter(self._sessions.values()))
                if now_s - oldest.used_s <= IDLE_S:
                    break
                ended.append(self._sessions.popitem(last=False)[1])
            found = self._sessions.get(session_id)
            if found is not None and now_s >= found.ends_s:
                ended.append(self._sessions.pop(session_id))
                found = None
            if found is not None:
                found.used_s = now_s
                self._sessions.move_to_end(session_id)
        self._release(ended)
        return found

    def end(self, session_id: str) -> None:
        """End a session."""
        with self._lock:
            ended = self._sessions.pop(session_id, None)
        self._release([] if ended is None else [ended])

    def close(self) -> None:
        """End all sessions."""
        with self._lock:
            ended = list(self._sessions.values())
            self._sessions.clear()
        self._release(ended)

    def token(self, session: ConsoleSession) -> str:
        """Return the token that a change of this session needs."""
        return hmac.digest(self._key, session.session_id.encode(), hashlib.sha256).hex()

    def is_token(self, session: ConsoleSession, given: str) -> bool:
        """Return True for the session's token."""
        return hmac.compare_digest(self.token(session).encode(), given.encode("utf-8", "replace"))

    def _release(self, ended: list[ConsoleSession]) -> None:
        for one in ended:
            user = one.user
            if user is not None and user is not self._common:
                user.view.release()
