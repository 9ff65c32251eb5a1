"""Foreign text on a terminal: control characters become escapes and never reach it.

A record's value could otherwise move the cursor, recolour earlier output, set the window's title,
or let a terminal type for its user. Source: decision 50.
"""

from __future__ import annotations

import re
from typing import Final

_CONTROLS: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""C0 without tab and newline, DEL, C1, marks that reorder or break lines, and lone surrogates,
which stand for bytes that are not UTF-8.
"""


def printable(text: str) -> str:
    r"""Return `text` with every control character as an escape, such as `\x1b`."""
    return _CONTROLS.sub(_escape, text)


def printable_bytes(data: bytes) -> bytes:
    r"""Return UTF-8 with control characters, and bytes that are not UTF-8, as escapes."""
    return printable(data.decode("utf-8", "surrogateescape")).encode()


def printable_json(text: str) -> str:
    r"""Return equivalent JSON, with control characters as `\u009b`."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8, as Python carries it
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
