"""Frames in a stream of bytes: a 4-byte size and as many bytes. Sans-IO.

The reader of a connection feeds received bytes and takes the complete frames.
"""

from __future__ import annotations

import struct
from typing import Final

from sparklog.core.errors import InvalidRequest

SIZE_BYTES: Final = 4
_SIZE: Final = struct.Struct(">i")


class FrameReader:
    """Collects bytes and splits them into frames.

    A frame that arrives in one piece is cut from that piece; only split frames are joined.
    """

    __slots__ = ("_at", "_buffer", "_frame_bytes_max")

    def __init__(self, frame_bytes_max: int) -> None:
        """Reject frames of more than `frame_bytes_max` bytes, size not counted."""
        self._buffer: bytes | bytearray = b""
        self._at = 0
        self._frame_bytes_max = frame_bytes_max

    def __len__(self) -> int:
        """Return the number of buffered bytes."""
        return len(self._buffer) - self._at

    @property
    def arriving_bytes(self) -> int:
        """Return the size of the incomplete frame; 0 if its size is not known yet."""
        start = self._at + SIZE_BYTES
        if start > len(self._buffer):
            return 0
        size: int = _SIZE.unpack_from(self._buffer, self._at)[0]
        return size

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        if self._at == len(self._buffer):
            self._buffer, self._at = data, 0
            return
        if isinstance(self._buffer, bytearray):
            del self._buffer[: self._at]
        else:
            self._buffer = bytearray(memoryview(self._buffer)[self._at :])
        self._at = 0
        self._buffer += data

    def next_frame(self) -> bytes | None:
        """Return the next complete frame without its size; None if it is incomplete.

        Raises:
            InvalidRequest: the size is negative or too large: this is not Kafka's protocol.
        """
        buffer, start = self._buffer, self._at + SIZE_BYTES
        if start > len(buffer):
            return None
        size = _SIZE.unpack_from(buffer, self._at)[0]
        if not 0 <= size <= self._frame_bytes_max:
            raise InvalidRequest(
                "a frame is too large, or this is not Kafka's protocol. "
                f"size={size} socket.request.max.bytes={self._frame_bytes_max}"
            )
        end = start + size
        if end > len(buffer):
            return None
        self._at = end
        frame = bytes(memoryview(buffer)[start:end])
        if end == len(buffer):
            self._buffer, self._at = b"", 0
        return frame
