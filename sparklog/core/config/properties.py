"""Java properties files and references to secrets such as `${file:/run/secrets/kafka:password}`.

A reference names a provider, a path and a key. This module finds references; `providers` beside it
reads the files and the environment. A value is replaced once: a reference inside of a secret stays.

Source: `java.util.Properties.load`; Kafka's `ConfigTransformer` (KIP-297).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from sparklog.core.errors import InvalidConfig

PROPERTIES_MAX: Final = 10_000
"""Limit for the settings of one file."""

_REFERENCE: Final = re.compile(r"\$\{([^}:]*):(?:([^}]*?):)?([^}]*)\}")
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANK: Final = " \t\f"


@dataclass(frozen=True, slots=True)
class SecretReference:
    """One `${provider:path:key}`; the path is empty in `${env:NAME}`."""

    provider: str
    path: str
    key: str

    def __str__(self) -> str:
        path = f"{self.path}:" if self.path else ""
        return f"${{{self.provider}:{path}{self.key}}}"


def is_reference(text: str) -> bool:
    """Return True if a value is one reference and has no other text, so it shows no secret."""
    return _REFERENCE.fullmatch(text.strip()) is not None


def replace_references(text: str, read: Callable[[SecretReference], str]) -> str:
    """Return a value with each reference replaced by the text that `read` returns for it."""
    return _REFERENCE.sub(
        lambda found: read(SecretReference(found[1], found[2] or "", found[3])), text
    )


def referenced_files(text: str) -> list[str]:
    """Return the paths of the files to which the references of a value lead."""
    found = []
    for reference in _REFERENCE.finditer(text):
        provider, path, key = reference[1], reference[2] or "", reference[3]
        if provider in ("file", "dir") and path:
            found.append(path if provider == "file" else f"{path}/{key}")
    return found


def parse_properties(text: str, source: str) -> dict[str, str]:
    r"""Return the settings of a Java properties file; the last one of a name counts.

    A key ends at `=`, `:` or a blank. A backslash at the end of a line continues it, and starts an
    escape elsewhere. A line that begins with `#` or `!` is a comment.

    Args:
        text: the file's text.
        source: the file's name, for errors.

    Raises:
        InvalidConfig: a malformed `\u` escape, or too many settings. It does not show values.
    """
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key_end, value_start = _separator(line)
        try:
            found[_unescaped(line[:key_end])] = _unescaped(line[value_start:])
        except ValueError:
            raise InvalidConfig(
                f"a \\u escape needs four hexadecimal digits. file={source} line={number}"
            ) from None
        if len(found) > PROPERTIES_MAX:
            raise InvalidConfig(
                f"a properties file has more than {PROPERTIES_MAX} settings. file={source}"
            )
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number of the first line, and continued lines as one; comments are left out."""
    parts: list[str] = []
    first = 0
    for number, natural in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = natural.lstrip(_BLANK)
        if not parts:
            first = number
            if not line or line[0] in "#!":
                continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            parts.append(line[:-1])
            continue
        yield first, "".join((*parts, line))
        parts = []
    if any(parts):
        yield first, "".join(parts)


def _separator(line: str) -> tuple[int, int]:
    """Return the end of the key and the start of the value."""
    at = 0
    while at < len(line) and line[at] not in "=:" + _BLANK:
        at += 2 if line[at] == "\\" else 1
    end = min(at, len(line))
    rest = line[end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return end, len(line) - len(rest)


def _unescaped(text: str) -> str:
    r"""Return a text without its escapes.

    Raises:
        ValueError: a malformed `\u` escape.
    """
    if "\\" not in text:
        return text
    return re.sub(r"\\(u[0-9A-Fa-f]{4}|.?)", lambda found: _escape(found[1]), text, flags=re.S)


def _escape(name: str) -> str:
    if name == "u":
        raise ValueError(name)
    if len(name) == 5:
        return chr(int(name[1:], 16))
    return _ESCAPES.get(name, name)
