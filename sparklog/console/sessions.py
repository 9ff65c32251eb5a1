"""Sessions: the users of the console, their roles, and tokens against forged requests.

CONSOLE-SESSIONS-1: A change needs a token that derives from the session's cookie and a key of this
    process. Another site can send the cookie, and cannot read the token.
CONSOLE-SESSIONS-2: A session has a random id of 128 bits. It ends when it was idle for `IDLE_S`,
    and with the process.
CONSOLE-SESSIONS-3: Without logins each browser has the console's own role, and only loopback is
    served, unless the role is viewer.
CONSOLE-SESSIONS-4: With logins an unknown user costs as much time as a wrong password.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Final, Protocol

from sparklog.client.security import with_login
from sparklog.console.broker_view import BrokerView
from sparklog.console.cluster_view import ClusterView
from sparklog.console.resources import ConsoleRole
from sparklog.console.root_view import RootView
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.entropy import SYSTEM_ENTROPY, Entropy, new_nonce
from sparklog.security.sasl.password_check import PasswordCheck

COOKIE: Final = "sparklog_console"
IDLE_S: Final = 8 * 3600.0
SESSIONS_MAX: Final = 1000
CREDENTIAL_TEXT_MAX: Final = 1024
_ID: Final = re.compile("[0-9a-f]{32}")


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


class Logins(Protocol):
    """Checks users and passwords."""

    def log_in(self, name: str, password: str) -> ConsoleUser:
        """Return the user. Raises SaslAuthenticationFailed: a wrong name or password."""


class RootLogins:
    """Users of the log under a root: their SCRAM credentials, and roles of the command line."""

    def __init__(
        self, view: RootView, roles: Mapping[str, ConsoleRole], entropy: Entropy = SYSTEM_ENTROPY
    ) -> None:
        """Use the users of `view`; one without a role is a viewer."""
        self._view = view
        self._roles = dict(roles)
        self._check = PasswordCheck(lambda: view.image().scram_credentials, entropy)

    def log_in(self, name: str, password: str) -> ConsoleUser:
        """Return the user. Raises SaslAuthenticationFailed: a wrong name or password."""
        self._check.check(name, password)
        return ConsoleUser(name, self._roles.get(name, ConsoleRole.VIEWER), self._view)


class BrokerLogins:
    """Users of brokers: the console acts as each of them, so that ACLs decide."""

    def __init__(self, bootstrap: str, settings: Mapping[str, str], most: ConsoleRole) -> None:
        """Log in with these settings, where each user's name and password take the place."""
        self._bootstrap = bootstrap
        self._settings = dict(settings)
        self._most = most

    def log_in(self, name: str, password: str) -> ConsoleUser:
        """Return the user. Raises SaslAuthenticationFailed; Unavailable: no broker answers."""
        view = BrokerView(self._bootstrap, with_login(self._settings, name, password))
        try:
            with view.brokers_admin() as admin:
                admin.brokers()
        except BaseException:
            view.close()
            raise
        return ConsoleUser(name, self._most, view)


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

    def begin(self, user: ConsoleUser | None = None) -> ConsoleSession:
        """Return a new session, and end the one that was idle longest if there are too many.

        Without logins a session is its id alone, so that visitors push out no others.
        """
        session = ConsoleSession(
            new_nonce(self._entropy), user or self._common, self._clock.monotonic_s()
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
            if user is not None and user is not self._common and isinstance(user.view, BrokerView):
                user.view.close()
