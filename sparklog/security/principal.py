"""The name under which a client is known: `User:alice`.

Source: Kafka's KafkaPrincipal. Two principals are equal if their kinds and names are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sparklog.core.errors import InvalidRequest

USER: Final = "User"
_TEXT_CHARS_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class Principal:
    """A kind and a name, such as `User` and `alice`."""

    kind: str
    name: str

    def __str__(self) -> str:
        """Return `kind:name`, as ACLs and log lines have it."""
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""Each client of a listener without authentication."""
EVERY_USER: Final = Principal(USER, "*")
"""In an ACL: each principal."""


def parse_principal(text: str) -> Principal:
    """Return the principal that `kind:name` stands for; a name may have colons.

    Raises:
        InvalidRequest: no colon, an empty kind or name, or too long.
    """
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name or len(text) > _TEXT_CHARS_MAX:
        raise InvalidRequest(
            f"a principal has the form kind:name, as in User:alice. principal={text[:100]!r}"
        )
    return Principal(kind, name)
