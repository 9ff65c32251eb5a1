"""The only module that draws randomness and ids. All others take an `Entropy`."""

from __future__ import annotations

import base64
import random
import secrets
from typing import Protocol


class Entropy(Protocol):
    """Randomness for nonces, ids and jitter."""

    def random_bytes(self, count: int) -> bytes:
        """Return `count` random bytes."""
        ...

    def random(self) -> float:
        """Return a float in [0, 1), for jitter."""
        ...


class SystemEntropy:
    """The operating system's randomness."""

    def random_bytes(self, count: int) -> bytes:
        """Return `count` random bytes."""
        return secrets.token_bytes(count)

    def random(self) -> float:
        """Return a float in [0, 1), for jitter."""
        return random.random()  # noqa: S311 - jitter, not a secret


class SeededEntropy:
    """Reproducible randomness. For tests and simulation."""

    def __init__(self, seed: int) -> None:
        """Derive all values from `seed`."""
        self._random = random.Random(seed)  # noqa: S311 - reproducible on purpose

    def random_bytes(self, count: int) -> bytes:
        """Return the next `count` bytes of the seeded sequence."""
        return self._random.randbytes(count)

    def random(self) -> float:
        """Return the next float in [0, 1) of the seeded sequence."""
        return self._random.random()


SYSTEM_ENTROPY = SystemEntropy()


def new_nonce(entropy: Entropy) -> str:
    """Return a writer's nonce: 128 random bits as 32 lower-case hex digits."""
    return entropy.random_bytes(16).hex()


def new_topic_id(entropy: Entropy) -> str:
    """Return a topic id in Kafka's spelling: 128 bits, 22 URL-safe base64 characters.

    As in Kafka, an id that starts with a dash is drawn again, so that no command line takes it for
    an option.
    """
    while True:
        text = base64.urlsafe_b64encode(entropy.random_bytes(16)).decode("ascii").rstrip("=")
        if not text.startswith("-"):
            return text
