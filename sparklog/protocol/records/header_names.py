"""Names of record headers as text, which loses none of their bytes.

Kafka's wire has bytes there, and Arrow and Spark have text. A name that is UTF-8 is that text.
Any other name becomes `ESCAPE` and the base64 of its bytes. So does a name that is itself the
escaped text of another name. Each name has one text, and each text is that of one name.
Source: FORMAT.md 2.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

ESCAPE: Final = "\ufffdbase64:"


def text_of(name: bytes) -> str:
    """Return a header's name as text."""
    try:
        text = name.decode()
    except UnicodeDecodeError:
        return ESCAPE + b64encode(name).decode("ascii")
    return text if _unescaped(text) is None else ESCAPE + b64encode(name).decode("ascii")


def name_of(text: str) -> bytes:
    """Return the name that a text stands for: its bytes, unless it is an escaped name."""
    name = _unescaped(text)
    return text.encode() if name is None else name


def _unescaped(text: str) -> bytes | None:
    """Return the name that `text_of` turns into this text by escaping it, or None."""
    if not text.startswith(ESCAPE):
        return None
    try:
        name = b64decode(text[len(ESCAPE) :], validate=True)
    except ValueError:
        return None
    return name if text_of(name) == text else None  # ends: the name is shorter than its text


def texts(names: pa.Array) -> pa.Array:
    """Return a binary array of names as strings; only an array with an escape is walked."""
    try:
        found = names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([text_of(name) for name in names.to_pylist()], pa.string())
    if not _has_escape(found):
        return found
    return pa.array([text_of(name) for name in names.to_pylist()], pa.string())


def names(texts: pa.Array) -> pa.Array:
    """Return an array of texts as names: the same array where none is escaped, else binary.

    An array of another type than text holds names already, and is returned as it is.
    """
    is_text = pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)
    if not (is_text or pa.types.is_string_view(texts.type)) or not _has_escape(texts):
        return texts
    stored = texts.cast(pa.binary()).to_pylist()
    return pa.array([_name_of_bytes(text) for text in stored], pa.binary())


def _name_of_bytes(text: bytes | None) -> bytes | None:
    """Return the name that a text's bytes stand for; a foreign writer's need not be UTF-8."""
    try:
        return None if text is None else name_of(text.decode())
    except UnicodeDecodeError:
        return text


def _has_escape(texts: pa.Array) -> bool:
    if pa.types.is_string_view(texts.type):
        texts = texts.cast(pa.string())
    return bool(pc.any(pc.starts_with(texts, ESCAPE)).as_py())
