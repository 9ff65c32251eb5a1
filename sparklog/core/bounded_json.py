"""The only JSON parser: bytes, nesting and number of values are bounded before a value is built.

Documents come from storage, clients, files and the history of jobs. Python's own parser raises
`RecursionError` for deep ones, and returns infinities, which no caller expects.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

from sparklog.core.errors import InvalidJson

BYTES_MAX: Final = 16 << 20
"""For requests, records, claims and lines."""
OBJECT_BYTES_MAX: Final = 256 << 20
"""For one stored object or footer: an image of 20,000 partitions has about 10 MiB."""
NESTING_MAX: Final = 64
"""Documents of this project have fewer than ten levels; a Delta schema may have more."""
BYTES_OF_VALUE: Final = 16
"""A document may hold one value for each 16 bytes of its limit. An empty list has two bytes, and
takes 64 in memory."""
VALUES_MIN: Final = 1000
"""Any document may hold as many."""

_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_OTHERS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")


def parse_json(
    data: str | bytes | bytearray | memoryview, what: str, *, bytes_max: int = BYTES_MAX
) -> Any:
    """Return the value of one JSON document.

    Args:
        `data`: the document, in UTF-8 if it is bytes.
        `what`: names the document in errors: a kind, with the object if the caller knows it.
        `bytes_max`: limit of the document in UTF-8.

    Raises:
        InvalidJson: too large, too deep, too many values, a number that is not finite, no JSON.
    """
    if len(data) > bytes_max:
        raise _too_large(what, len(data), bytes_max)
    try:
        encoded = data.encode() if isinstance(data, str) else bytes(data)
        text = data if isinstance(data, str) else encoded.decode()
    except UnicodeError as error:
        raise InvalidJson(f"{what} is not UTF-8 text: {error}") from error
    if len(encoded) > bytes_max:
        raise _too_large(what, len(encoded), bytes_max)
    if _nesting_exceeds(encoded, NESTING_MAX):
        raise InvalidJson(f"{what} is nested too deeply. levels_max={NESTING_MAX}")
    values_max = max(VALUES_MIN, bytes_max // BYTES_OF_VALUE)
    if _values_exceed(encoded, values_max):
        raise InvalidJson(f"{what} has too many values. values_max={values_max}")
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise InvalidJson(f"{what} is not JSON: {error}") from error


def _too_large(what: str, size_bytes: int, bytes_max: int) -> InvalidJson:
    return InvalidJson(f"{what} is too large. bytes={size_bytes} bytes_max={bytes_max}")


def _nesting_exceeds(data: bytes, limit: int) -> bool:
    """Return True if brackets nest deeper; malformed documents may pass with twice the limit."""
    if data.count(b"[") + data.count(b"{") <= limit:
        return False
    brackets = _STRING.sub(b"", data).translate(_BRACKETS, _OTHERS)
    for _ in range(limit):  # each round removes the innermost level everywhere
        rest = brackets.replace(b"[]", b"")
        if len(rest) == len(brackets):
            break
        brackets = rest
    return b"[]" in brackets or brackets.count(b"[") > limit


def _values_exceed(data: bytes, limit: int) -> bool:
    """Return True if a document has more values: each follows a comma or an opening bracket."""
    if _count_of_values(data) <= limit:
        return False
    return _count_of_values(_STRING.sub(b"", data)) > limit


def _count_of_values(data: bytes) -> int:
    return 1 + data.count(b",") + data.count(b"[") + data.count(b"{")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is not finite")
    return value


_DECODER: Final = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)
