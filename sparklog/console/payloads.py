"""Payload: bytes of a record as text that a page can show, never more than a bound of it.

JSON is recognised by its parse, and text by UTF-8. Maps and arrays that end with the bytes are
MessagePack. The first byte shows a schema registry's framing. Everything else is shown in hex.
Control characters become escapes (decision 50).
"""

from __future__ import annotations

import base64
import json
import struct
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sparklog.core.bounded_json import parse_json
from sparklog.core.errors import InvalidJson
from sparklog.core.terminal_text import printable

PREVIEW_BYTES: Final = 512
SHOWN_BYTES: Final = 64 * 1024
HEADERS_SHOWN: Final = 100
DECODERS: Final = ("auto", "text", "json", "msgpack", "hex")
HEX_ROW: Final = 16
_FRAME_BYTES: Final = 5


@dataclass(frozen=True, slots=True)
class ShownPayload:
    """Some bytes for people."""

    text: str
    decoder: str
    """`json`, `text`, `msgpack`, `hex`, `null` or `empty`; `avro` or `protobuf` by a schema."""
    size_bytes: int
    shortened: bool = False
    schema_id: int | str | None = None
    """Of the framing of a schema registry; a GUID is a text."""
    problem: str | None = None
    """The reason why a schema did not decode it."""

    def document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "text": self.text,
            "decoder": self.decoder,
            "bytes": self.size_bytes,
            "shortened": self.shortened,
            "schemaId": self.schema_id,
            "problem": self.problem,
        }


def shown_payload(
    data: bytes | None, decoder: str = "auto", *, bytes_max: int = PREVIEW_BYTES, pretty: bool
) -> ShownPayload:
    """Return bytes as text, at most `bytes_max` of them; `pretty` indents JSON."""
    if data is None:
        return ShownPayload("null", "null", 0)
    if not data:
        return ShownPayload("", "empty", 0)
    size = len(data)
    part = data[:bytes_max]
    short = size > bytes_max
    schema_id = _schema_id(part)
    if decoder in {"auto", "json"} and not short and schema_id is None:
        indented = _json(part, pretty=pretty)
        if indented is not None:
            return ShownPayload(printable(indented), "json", size)
    if decoder in {"auto", "text", "json"}:
        text = _text(part, short=short, strict=decoder == "auto")
        if text is not None:
            return ShownPayload(printable(text), "text", size, short, schema_id)
    if decoder in {"auto", "msgpack"} and size <= SHOWN_BYTES and schema_id is None:
        text = _msgpack(data, pretty=pretty)
        if text is not None:
            cut = len(text) > bytes_max
            return ShownPayload(printable(text[:bytes_max]), "msgpack", size, cut)
    return ShownPayload(_hex(part, pretty=pretty), "hex", size, short, schema_id)


def _schema_id(data: bytes) -> int | None:
    if len(data) < _FRAME_BYTES or data[0] != 0:
        return None
    (found,) = struct.unpack(">I", data[1:_FRAME_BYTES])
    return int(found)


def _json(data: bytes, *, pretty: bool) -> str | None:
    if data.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        value = parse_json(data, "the record")
        return json.dumps(value, ensure_ascii=False, indent=2 if pretty else None)
    except (InvalidJson, ValueError):
        return None


def _msgpack(data: bytes, *, pretty: bool) -> str | None:
    """Return MessagePack as JSON; None if the bytes are no map or array of it, or are more."""
    try:
        import msgpack  # noqa: PLC0415 - of the console's extra, seldom needed
    except ImportError:
        return None
    try:
        value = msgpack.unpackb(data, strict_map_key=False, timestamp=3)
        if not isinstance(value, dict | list) or not value:
            return None
        return json.dumps(value, ensure_ascii=False, indent=2 if pretty else None, default=_plain)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, datetime) else str(value)


def decoded_payload(
    size_bytes: int, kind: str, text: str, schema_id: int | str, *, bytes_max: int, pretty: bool
) -> ShownPayload:
    """Return a value that a schema decoded to `text`, as JSON of at most `bytes_max`."""
    if pretty:
        text = json.dumps(parse_json(text, "a decoded value"), ensure_ascii=False, indent=2)
    cut = len(text) > bytes_max
    return ShownPayload(printable(text[:bytes_max]), kind, size_bytes, cut, schema_id)


def _text(data: bytes, *, short: bool, strict: bool) -> str | None:
    if not strict:
        return data.decode("utf-8", "surrogateescape")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        # The cut may have split the last character.
        if not (short and error.start >= len(data) - 3):
            return None
        text = data[: error.start].decode()
    unusual = sum(1 for one in text if ord(one) < 32 and one not in "\t\r\n\x1b")
    return None if unusual * 10 > len(text) else text


def _hex(data: bytes, *, pretty: bool) -> str:
    if not pretty:
        return data.hex(" ")
    rows = (data[at : at + HEX_ROW] for at in range(0, len(data), HEX_ROW))
    return "\n".join(
        f"{number * HEX_ROW:08x}  {row.hex(' '):<{HEX_ROW * 3 - 1}}  {_letters(row)}"
        for number, row in enumerate(rows)
    )


def _letters(row: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
