"""Patterns of topic names from clients: matched by RE2, in time linear in the name.

Python's own engine takes unbounded time for malicious patterns. RE2, which Kafka's brokers use as
well, comes with Arrow. A pattern must match the whole name. Source: KIP-848.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.core.errors import InvalidRegularExpression

PATTERN_BYTES_MAX: Final = 10_000
"""A pattern is compiled for every match; RE2 itself bounds its expansion."""


def check_pattern(pattern: str) -> None:
    """Reject an invalid pattern.

    Raises:
        InvalidRegularExpression: RE2 rejects it, or it is too long.
    """
    if len(pattern.encode()) > PATTERN_BYTES_MAX:
        raise InvalidRegularExpression(
            f"a pattern of topic names is too long. bytes_max={PATTERN_BYTES_MAX}"
        )
    matching(pattern, ("",))  # without any name, nothing would be compiled


def matching(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """Return the names that a pattern matches from end to end.

    Raises:
        InvalidRegularExpression: RE2 rejects it.
    """
    array = pa.array(list(names), pa.string())
    try:
        pc.match_substring_regex(array, pattern)  # alone first: it must not close the group below
        found = pc.match_substring_regex(array, f"^(?:{pattern})$")
    except pa.ArrowInvalid as error:
        raise InvalidRegularExpression(
            f"SubscribedTopicRegex is no pattern that RE2 takes: {error}. pattern={pattern!r}"
        ) from error
    return frozenset(array.filter(found).to_pylist())
