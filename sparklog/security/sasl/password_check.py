"""PasswordCheck: proves passwords of the log's users by their SCRAM credentials.

An unknown user costs as much time as a wrong password.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from sparklog.core.entropy import SYSTEM_ENTROPY, Entropy, new_nonce
from sparklog.core.errors import SaslAuthenticationFailed
from sparklog.security.sasl.credentials import ScramCredential, ScramMechanism, new_credential

Credentials = Mapping[str, Mapping[ScramMechanism, ScramCredential]]
"""By user and mechanism."""
WRONG: Final = "the user or the password is wrong"


class PasswordCheck:
    """Checks a user and a password."""

    def __init__(
        self, credentials: Callable[[], Credentials], entropy: Entropy = SYSTEM_ENTROPY
    ) -> None:
        """Look users up in what `credentials` returns at each check."""
        self._credentials = credentials
        self._decoy = new_credential(ScramMechanism.SHA_512, new_nonce(entropy), entropy)

    def check(self, name: str, password: str) -> None:
        """Check a password. Cost: one derivation, some milliseconds.

        Raises:
            SaslAuthenticationFailed: the name or the password is wrong.
        """
        known = self._credentials().get(name, {})
        mechanism, credential = next(
            iter(sorted(known.items(), reverse=True)), (ScramMechanism.SHA_512, self._decoy)
        )
        if not credential.proves(mechanism, password) or not known:
            raise SaslAuthenticationFailed(WRONG)
