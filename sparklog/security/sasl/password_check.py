"""PasswordCheck: proves passwords of the log's users by their SCRAM credentials.

An unknown user costs as much time as a wrong password. One derivation runs at a time, so guesses
occupy one core at most. A right password is not derived again while it is used; see
`RememberedChecks`.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Final

from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.entropy import SYSTEM_ENTROPY, Entropy, new_nonce
from sparklog.core.errors import SaslAuthenticationFailed
from sparklog.security.sasl.credentials import ScramCredential, ScramMechanism, new_credential
from sparklog.security.sasl.mechanism import Authenticated, Step
from sparklog.security.sasl.remembered_checks import RememberedChecks

Credentials = Mapping[str, Mapping[ScramMechanism, ScramCredential]]
"""By user and mechanism."""
WRONG: Final = "the user or the password is wrong"


class PasswordCheck:
    """Checks a user and a password. Thread-safe."""

    def __init__(
        self,
        credentials: Callable[[], Credentials],
        entropy: Entropy = SYSTEM_ENTROPY,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Look users up in what `credentials` returns at each check."""
        self._credentials = credentials
        self._clock = clock
        self._decoy = new_credential(ScramMechanism.SHA_512, new_nonce(entropy), entropy)
        self._secret = entropy.random_bytes(32)
        self._right = RememberedChecks()
        self._right_lock = Lock()
        self._derivation_lock = Lock()

    def check(self, name: str, password: str) -> None:
        """Check a password. Cost: one derivation of some milliseconds, if it is new or wrong.

        Raises:
            SaslAuthenticationFailed: the name or the password is wrong.
        """
        known = self._credentials().get(name, {})
        mechanism, credential = next(
            iter(sorted(known.items(), reverse=True)), (ScramMechanism.SHA_512, self._decoy)
        )
        text = f"{name}\0{password}".encode()
        key = hmac.digest(self._secret, credential.stored_key + text, "sha256")
        with self._right_lock:
            if self._right.find("", key, self._clock.monotonic_s()) is not None:
                return
        with self._derivation_lock:
            proved = credential.proves(mechanism, password)
        if not proved or not known:
            raise SaslAuthenticationFailed(WRONG)
        with self._right_lock:
            step = Step(b"", Authenticated(name))
            self._right.proved(key, step, self._clock.monotonic_s())
