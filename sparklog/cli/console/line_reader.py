"""LineReader: parses a line of input to a record, by the properties of Kafka's console producer.

It works on bytes: bytes that are not UTF-8 stay unchanged. Separators are literal.
Source: the properties of Kafka's LineMessageReader, with its defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparklog.cli.arguments import UsageError, check_known, is_true
from sparklog.core.errors import InvalidRequest

DEFAULTS = {
    "parse.key": "false",
    "key.separator": "\t",
    "parse.headers": "false",
    "headers.delimiter": "\t",
    "headers.separator": ",",
    "headers.key.separator": ":",
    "ignore.error": "false",
}
NULL_MARKER = "null.marker"
PROPERTIES = (*DEFAULTS, NULL_MARKER)

_MUST_DIFFER = (
    ("headers.delimiter", "headers.separator"),
    ("headers.delimiter", "headers.key.separator"),
    ("headers.separator", "headers.key.separator"),
    (NULL_MARKER, "key.separator"),
    (NULL_MARKER, "headers.separator"),
    (NULL_MARKER, "headers.delimiter"),
    (NULL_MARKER, "headers.key.separator"),
)

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True)
class LineRecord:
    """The record of one line."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] | None

    @property
    def size_bytes(self) -> int:
        """Return the approximate size of its data in bytes."""
        headers = sum(len(name) + len(value or b"") for name, value in self.headers or ())
        return len(self.key or b"") + len(self.value or b"") + headers


class LineReader:
    """Parses lines; counts them for its messages."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Use these properties, and the defaults for the rest.

        Raises:
            UsageError: an unknown property, or two separators that are the same.
        """
        check_known(properties, PROPERTIES, "--reader-property")
        chosen = {**DEFAULTS, **properties}
        for one, other in _MUST_DIFFER:
            if chosen.get(one) == chosen.get(other):
                raise UsageError(f"{one} and {other} may not be equal")
        for name in DEFAULTS:
            if not chosen[name]:
                raise UsageError(f"{name} may not be empty")
        self._parse_key = is_true(chosen["parse.key"])
        self._parse_headers = is_true(chosen["parse.headers"])
        self._ignore_error = is_true(chosen["ignore.error"])
        self._key_separator = _bytes(chosen["key.separator"])
        self._headers_delimiter = _bytes(chosen["headers.delimiter"])
        self._headers_separator = _bytes(chosen["headers.separator"])
        self._header_key_separator = _bytes(chosen["headers.key.separator"])
        self._null = _bytes(chosen[NULL_MARKER]) if NULL_MARKER in chosen else None
        self._line_number = 0

    def parse(self, line: bytes) -> LineRecord:
        """Return the record of the next line, which has no line end.

        Raises:
            InvalidRequest: a separator is missing and `ignore.error` is not set.
        """
        self._line_number += 1
        rest = line
        headers = key = None
        if self._parse_headers:
            headers, rest = self._cut(line, rest, self._headers_delimiter, "headers delimiter")
        if self._parse_key:
            key, rest = self._cut(line, rest, self._key_separator, "key separator")
        return LineRecord(
            self._or_null(key), self._or_null(rest), self._headers(self._or_null(headers))
        )

    def _cut(
        self, line: bytes, rest: bytes, separator: bytes, name: str
    ) -> tuple[bytes | None, bytes]:
        before, found, after = rest.partition(separator)
        if found:
            return before, after
        if self._ignore_error:
            return None, rest
        raise self._error(f"no {name} found", line)

    def _or_null(self, data: bytes | None) -> bytes | None:
        return None if data == self._null else data

    def _headers(self, data: bytes | None) -> tuple[Header, ...] | None:
        if not data:
            return None
        pairs = data.split(self._headers_separator)
        while pairs and not pairs[-1]:
            pairs.pop()
        return tuple(self._header(pair) for pair in pairs)

    def _header(self, pair: bytes) -> Header:
        name, found, value = pair.partition(self._header_key_separator)
        if not found and not self._ignore_error:
            raise self._error("no header key separator found", pair)
        if name == self._null:
            raise self._error("a header key cannot be null", pair)
        try:
            return name.decode(), self._or_null(value) if found else None
        except UnicodeDecodeError as error:
            raise self._error("a header key must be UTF-8", pair) from error

    def _error(self, problem: str, where: bytes) -> InvalidRequest:
        shown = where[:200].decode("utf-8", "replace")
        return InvalidRequest(
            f"{problem} on line number {self._line_number}; fix it, or set ignore.error=true. "
            f"text={shown!r}"
        )


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
