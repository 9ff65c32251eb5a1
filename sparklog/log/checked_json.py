"""A stored JSON document with its checksum: `{"format", ["end_offset"], "crc32c", "body"}`.

`body` is the text of a JSON object, and `crc32c` covers that text. Source: FORMAT.md 8 and its
pages on writing and upkeep.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from crc32c import crc32c

from sparklog.core.bounded_json import OBJECT_BYTES_MAX, parse_json
from sparklog.core.errors import DataCorrupt

FORMAT: Final = 1
_BODIES: Final = ("body", "commit", "image", "producers", "snapshot")
"""The field was named after the kind of document before the format was released."""


def encode_checked(body: Mapping[str, Any], *, end_offset: int | None = None) -> bytes:
    """Return the object of a document.

    Args:
        body: its JSON values.
        end_offset: the offset that the document is about, where it is about one.
    """
    text = json.dumps(body, separators=(",", ":"))
    about = {} if end_offset is None else {"end_offset": end_offset}
    whole = {"format": FORMAT, **about, "crc32c": crc32c(text.encode()), "body": text}
    return json.dumps(whole, separators=(",", ":")).encode()


def decode_checked(data: bytes, what: str, *, end_offset: int | None = None) -> Any:
    """Return the JSON values of a document.

    Args:
        data: the object.
        what: names the document in errors, with its object.
        end_offset: what the document must be about.

    Raises:
        DataCorrupt: damaged, too large or nested too deeply, about another offset, or written by
            a newer sparklog.
    """
    try:
        whole = parse_json(data, what, bytes_max=OBJECT_BYTES_MAX)
        version, crc = whole["format"], whole["crc32c"]
        if version > FORMAT:
            raise DataCorrupt(
                f"{what} was written by a newer sparklog; upgrade. format={version} known={FORMAT}"
            )
        text = next(whole[name] for name in _BODIES if name in whole)
        if crc32c(text.encode()) != crc:
            raise DataCorrupt(f"{what} fails its checksum")
        if end_offset is not None and whole["end_offset"] != end_offset:
            raise DataCorrupt(f"{what} is about another offset")
        return parse_json(text, what, bytes_max=OBJECT_BYTES_MAX)
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
        raise DataCorrupt(f"{what} is not as the format says: {error!r}") from error
