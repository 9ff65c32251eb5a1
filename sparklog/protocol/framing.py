"""Frames in a stream of bytes: a 4-byte size and as many bytes. Sans-IO.

Whoever reads a connection feeds what arrived and takes the frames that are complete.
"""

from __future__ import annotations

import struct
from typing import Final

from sparklog.core.errors import InvalidRequest

SIZE_BYTES: Final = 4
_SIZE: Final = struct.Struct(">i")
_KEPT_BYTES: Final = 256 * 1024
"""An emptied buffer larger than this is given back."""


class FrameReader:
    """Collects bytes and cuts them into frames."""

    __slots__ = ("_at", "_buffer", "_frame_bytes_max")

    def __init__(self, frame_bytes_max: int) -> None:
        """Refuse frames of more than `frame_bytes_max` bytes, size not counted."""
        self._buffer = bytearray()
        self._at = 0
        self._frame_bytes_max = frame_bytes_max

    def __len__(self) -> int:
        """Return how many bytes are held."""
        return len(self._buffer) - self._at

    def feed(self, data: bytes) -> None:
        """Add bytes that arrived."""
        self._buffer += data

    def next_frame(self) -> bytes | None:
        """Return the next complete frame without its size, or None for more bytes.

        Raises:
            InvalidRequest: the size is negative or too large: this is no such stream.
        """
        held = len(self._buffer) - self._at
        if held >= SIZE_BYTES:
            size = _SIZE.unpack_from(self._buffer, self._at)[0]
            if not 0 <= size <= self._frame_bytes_max:
                raise InvalidRequest(
                    "a frame is too large, or this is not Kafka's protocol. "
                    f"size={size} socket.request.max.bytes={self._frame_bytes_max}"
                )
            end = self._at + SIZE_BYTES + size
            if end <= len(self._buffer):
                frame = bytes(memoryview(self._buffer)[self._at + SIZE_BYTES : end])
                self._at = end
                return frame
        self._compact()
        return None

    def _compact(self) -> None:
        if self._at == len(self._buffer) and len(self._buffer) > _KEPT_BYTES:
            self._buffer = bytearray()
        else:
            del self._buffer[: self._at]
        self._at = 0
