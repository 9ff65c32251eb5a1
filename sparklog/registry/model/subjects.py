"""Subject names and their contexts.

A context has ids of its own. The subject `:.team:orders-value` is in the context `.team`; a name
without such a prefix is in the default context, which is a dot.
"""

from __future__ import annotations

import re
from typing import Final

from sparklog.registry.model.refusal import INVALID_SUBJECT, RegistryRefused

DEFAULT_CONTEXT: Final = "."
NAME_LENGTH_MAX: Final = 512
_QUALIFIED: Final = re.compile(r":(\.[^:]*):(.*)", re.DOTALL)
_RESERVED: Final = frozenset({"__GLOBAL", "__EMPTY"})


def split_subject(subject: str) -> tuple[str, str]:
    """Return the context of a subject, and its name in it.

    The name is empty where only a context is given, such as `:.team:`.
    """
    found = _QUALIFIED.fullmatch(subject)
    return (found[1], found[2]) if found else (DEFAULT_CONTEXT, subject)


def context_of(subject: str) -> str:
    """Return the context of a subject."""
    return split_subject(subject)[0]


def qualified(context: str, name: str) -> str:
    """Return the subject of a name in a context."""
    return name if context == DEFAULT_CONTEXT else f":{context}:{name}"


def checked_scope(subject: str) -> str:
    """Return the one spelling of a subject, or of a whole context such as `:.team:`.

    Raises:
        RegistryRefused: no legal name.
    """
    context, name = split_subject(subject)
    printable = subject.isprintable() and len(subject) <= NAME_LENGTH_MAX
    if not printable or not subject or name in _RESERVED:
        raise RegistryRefused(
            INVALID_SUBJECT,
            "The specified subject is not valid: a name has at most "
            f"{NAME_LENGTH_MAX} printable characters. subject={subject[:NAME_LENGTH_MAX]!r}",
        )
    return qualified(context, name)


def checked_subject(subject: str) -> str:
    """Return the one spelling of a subject.

    Raises:
        RegistryRefused: no legal name, or only a context.
    """
    scope = checked_scope(subject)
    if not split_subject(scope)[1]:
        raise RegistryRefused(INVALID_SUBJECT, "The specified subject is only a context.")
    return scope
