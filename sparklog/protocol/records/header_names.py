"""Names of record headers as text, which loses none of their bytes.

Kafka's wire has bytes there, and Arrow and Spark have text. A name that is UTF-8 is that text.
Any other name becomes `ESCAPE` and the base64 of its bytes. So does a name that begins with
`ESCAPE` itself, so that no two names have the same text. Source: FORMAT.md 2.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

ESCAPE: Final = "\ufffdbase64:"
_ESCAPE_BYTES: Final = ESCAPE.encode()


def text_of(name: bytes) -> str:
    """Return a header's name as text."""
    if not name.startswith(_ESCAPE_BYTES):
        try:
            return name.decode()
        except UnicodeDecodeError:
            pass
    return ESCAPE + b64encode(name).decode("ascii")


def name_of(text: str) -> bytes:
    """Return the name that a text stands for; after `ESCAPE`, text that is not base64 is a name."""
    if text.startswith(ESCAPE):
        try:
            name = b64decode(text[len(ESCAPE) :], validate=True)
        except ValueError:
            return text.encode()
        if text == ESCAPE + b64encode(name).decode("ascii"):
            return name
    return text.encode()


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
    return pa.array([name_of(text) for text in texts.to_pylist()], pa.binary())


def _has_escape(texts: pa.Array) -> bool:
    if pa.types.is_string_view(texts.type):
        texts = texts.cast(pa.string())
    return bool(pc.any(pc.starts_with(texts, ESCAPE)).as_py())
