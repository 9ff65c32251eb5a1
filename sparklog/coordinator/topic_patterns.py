"""Patterns of topic names, given by anybody: matched by RE2, in time linear in the name.

Python's own engine takes time without bound for patterns made to that end. RE2, which Kafka's
brokers use as well, comes with Arrow. A pattern must match the whole name. Source: KIP-848.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.core.errors import InvalidRegularExpression

PATTERN_BYTES_MAX: Final = 10_000
"""A pattern is compiled for every look; RE2 itself bounds what one may unfold to."""


def check_pattern(pattern: str) -> None:
    """Refuse what is no pattern.

    Raises:
        InvalidRegularExpression: RE2 does not take it, or it is too long.
    """
    if len(pattern.encode()) > PATTERN_BYTES_MAX:
        raise InvalidRegularExpression(
            f"a pattern of topic names is too long. bytes_max={PATTERN_BYTES_MAX}"
        )
    matching(pattern, ("",))  # without any name, nothing would be compiled


def matching(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """Return the names that a pattern matches from end to end.

    Raises:
        InvalidRegularExpression: RE2 does not take it.
    """
    array = pa.array(list(names), pa.string())
    try:
        pc.match_substring_regex(array, pattern)  # alone: what is wrapped below may not close early
        found = pc.match_substring_regex(array, f"^(?:{pattern})$")
    except pa.ArrowInvalid as error:
        raise InvalidRegularExpression(
            f"SubscribedTopicRegex is no pattern that RE2 takes: {error}. pattern={pattern!r}"
        ) from error
    return frozenset(array.filter(found).to_pylist())
