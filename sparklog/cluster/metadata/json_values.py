"""Values of metadata records and snapshots from their JSON form.

Each reader raises TypeError or ValueError for a value of another form.
"""

from __future__ import annotations

import base64
from typing import Any

from sparklog.core.quotas import QuotaEntity


def text_or_none(value: Any) -> str | None:
    """Return text, or None."""
    return value if value is None else str(value)


def numbers(value: Any) -> tuple[int, ...]:
    """Return whole numbers."""
    return tuple(map(int, value))


def texts(value: Any) -> tuple[str, ...]:
    """Return texts."""
    return tuple(map(str, value))


def rate_or_none(value: Any) -> float | None:
    """Return a rate, or None."""
    return value if value is None else float(value)


def bytes_of(value: Any) -> bytes:
    """Return the bytes that base64 text stands for.

    Raises:
        TypeError, ValueError: the value is not base64 text.
    """
    if not isinstance(value, str):
        raise TypeError(f"base64 text is missing. type={type(value).__name__}")
    return base64.b64decode(value, validate=True)


def text_of(data: bytes) -> str:
    """Return bytes as base64 text."""
    return base64.b64encode(data).decode()


def quota_entity(value: Any) -> QuotaEntity:
    """Return a quota's entity from JSON values.

    Raises:
        TypeError, ValueError: the values are not an entity.
    """
    return tuple((str(kind), text_or_none(name)) for kind, name in value)
