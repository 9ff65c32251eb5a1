"""Output: a command's results, as text in the format of Kafka's tools or as JSON lines.

Both are streams, so a command over a huge partition needs no more memory than one over a small one.
Results go to standard output, messages about them to standard error.

A terminal gets no control characters from records: `core.terminal`. A pipe or a file gets the bytes
unchanged.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, BinaryIO

from sparklog.core.byte_text import readable_bytes
from sparklog.core.terminal_text import printable, printable_bytes, printable_json


class Output:
    """One command's results."""

    def __init__(self, stream: BinaryIO, *, as_json: bool) -> None:
        """Write to `stream`."""
        self._stream = stream
        self._escapes = stream.isatty()
        self.as_json = as_json

    def put(self, text: str | bytes, document: Mapping[str, Any]) -> None:
        """Write one result: the line `text`, or `document` in JSON mode."""
        if self.as_json:
            self.document(document)
        else:
            self.line(text)

    def line(self, text: str | bytes) -> None:
        """Write a line that has no JSON form; nothing in JSON mode."""
        if not self.as_json:
            data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
            self._write(data + b"\n")

    def document(self, document: Mapping[str, Any]) -> None:
        """Write a JSON object that has no text form; nothing in text mode."""
        if self.as_json:
            text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
            if self._escapes:
                text = printable_json(text)
            self._stream.write(text.encode("utf-8", "surrogateescape") + b"\n")

    def fields(self, word: str, kind: str, fields: Mapping[str, Any]) -> None:
        """Write a list of fields: `word name: value …`, or JSON of type `kind`."""
        self.put(f"{word} {spelled(fields)}" if word else spelled(fields), {"type": kind, **fields})

    def raw(self, data: bytes) -> None:
        """Write bytes unchanged; on a terminal with `core.terminal`'s escapes."""
        self._write(data)

    def _write(self, data: bytes) -> None:
        self._stream.write(printable_bytes(data) if self._escapes else data)

    def flush(self) -> None:
        """Write buffered output, before a wait, so that a reader gets everything."""
        self._stream.flush()


def spelled(fields: Mapping[str, Any]) -> str:
    """Return fields in the format of Kafka's DumpLogSegments."""
    return " ".join(f"{name}: {_word(value)}" for name, value in fields.items())


def _word(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case list():
            return f"[{','.join(map(str, value))}]"
        case None:
            return "none"
    return str(value)


def say(message: str) -> None:
    """Print a message that is not a result, on standard error."""
    print(printable(message.replace("\n", " ")), file=sys.stderr, flush=True)


def readable(data: bytes | None) -> str | dict[str, str] | None:
    """Return bytes for JSON: a string if they are UTF-8, else `{"base64": …}`."""
    return None if data is None else readable_bytes(data)
