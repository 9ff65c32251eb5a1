"""RememberedChecks: the results of checks of passwords, so that a process derives from each once.

A derivation costs milliseconds. A program with an old password may try it a hundred times a second,
and a thousand clients with one password may connect at once. A result is known by the key of its
check: a hash of the user, the password and the stored credential. Its secret is of this process, so
the hash is of no use elsewhere.

  REMEMBERED-CHECKS-1: a changed or removed credential has other keys, so no result outlives it
  REMEMBERED-CHECKS-2: a wrong password is remembered for its address only. Otherwise the time of a
      try would show what other clients have tried
  REMEMBERED-CHECKS-3: memory is bounded, and wrong passwords do not push out right ones
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

from sparklog.security.sasl.mechanism import SaslFailure, Step

RIGHT_MAX: Final = 4096
RIGHT_S: Final = 3600.0
"""A right password is forgotten after this time without a login."""
WRONG_MAX: Final = 1024
WRONG_S: Final = 10.0
"""A wrong one is forgotten after this time, however often it is tried."""


class RememberedChecks:
    """The results of one process. The caller's thread only; times are monotonic, in seconds."""

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._right: OrderedDict[bytes, tuple[float, Step]] = OrderedDict()
        """The time of the newest login and its last step, by key; the oldest time first."""
        self._wrong: OrderedDict[tuple[str, bytes], tuple[float, str, str]] = OrderedDict()
        """The time and the texts of a failure, by address and key; the oldest time first."""

    def __len__(self) -> int:
        """Return how many results are remembered, those that are too old included."""
        return len(self._right) + len(self._wrong)

    def find(self, host: str, key: bytes, now_s: float) -> Step | None:
        """Return the step of a right password, or None if the check is new.

        Raises:
            SaslFailure: this address has tried this wrong password lately.
        """
        self._forget(now_s)
        right = self._right.get(key)
        if right is not None:
            self.proved(key, right[1], now_s)
            return right[1]
        wrong = self._wrong.get((host, key))
        if wrong is not None:
            raise SaslFailure(wrong[1], client_message=wrong[2])
        return None

    def proved(self, key: bytes, step: Step, now_s: float) -> None:
        """Remember a right password."""
        self._right[key] = (now_s, step)
        self._right.move_to_end(key)
        if len(self._right) > RIGHT_MAX:
            self._right.popitem(last=False)

    def failed(self, host: str, key: bytes, failure: SaslFailure, now_s: float) -> None:
        """Remember a wrong password of an address."""
        self._wrong[host, key] = (now_s, str(failure), failure.client_message)
        if len(self._wrong) > WRONG_MAX:
            self._wrong.popitem(last=False)

    def _forget(self, now_s: float) -> None:
        _drop_older(self._right, now_s - RIGHT_S)
        _drop_older(self._wrong, now_s - WRONG_S)


def _drop_older(results: OrderedDict[Any, tuple[Any, ...]], than_s: float) -> None:
    while results:
        oldest = next(iter(results))
        if results[oldest][0] >= than_s:
            return
        del results[oldest]
