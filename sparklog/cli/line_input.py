"""LineInput: lines from standard input, with limits for the wait and for the length of a line.

It reads the file descriptor itself, and without a thread: a thread in a blocking read would keep an
interrupted process from ending.
"""

from __future__ import annotations

import io
import os
import select
from typing import BinaryIO

from sparklog.core.errors import RecordTooLarge

READ_BYTES = 256 * 1024


class LineInput:
    """Splits a byte stream at newlines, and removes a carriage return before one."""

    def __init__(self, stream: BinaryIO, line_bytes_max: int) -> None:
        """Read `stream`; a line longer than `line_bytes_max` is an error."""
        self._stream = stream
        self._line_bytes_max = line_bytes_max
        self._partial = bytearray()
        self._ended = False
        try:
            self._descriptor: int | None = stream.fileno()
        except io.UnsupportedOperation:
            self._descriptor = None

    def lines(self, timeout_s: float | None) -> list[bytes] | None:
        """Return the next lines; none after `timeout_s`, None at the end of input.

        Raises:
            RecordTooLarge: a line without an end.
        """
        if self._ended:
            return None
        if not self._ready(timeout_s):
            return []
        data = self._read()
        if not data:
            self._ended = True
            return [self._whole(bytes(self._partial))] if self._partial else None
        self._partial += data
        *lines, rest = self._partial.split(b"\n") if b"\n" in data else [self._partial]
        if len(rest) > self._line_bytes_max:
            raise RecordTooLarge(
                "a line is longer than any record may be; raise max.message.bytes or cut it. "
                f"bytes={len(rest)} max={self._line_bytes_max}"
            )
        self._partial = bytearray(rest) if lines else self._partial
        return [self._whole(bytes(line)) for line in lines]

    def _ready(self, timeout_s: float | None) -> bool:
        if self._descriptor is None or timeout_s is None:
            return True
        return bool(select.select([self._descriptor], [], [], max(0.0, timeout_s))[0])

    def _read(self) -> bytes:
        if self._descriptor is None:
            return self._stream.read(READ_BYTES)
        return os.read(self._descriptor, READ_BYTES)

    @staticmethod
    def _whole(line: bytes) -> bytes:
        return line.removesuffix(b"\r")
