"""Export: a thread that reads records or results of SQL, and the pieces of the response.

The thread puts pieces into a queue of `PIECES_MAX`. It waits while the queue is full, so memory is
the same for any number of records.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from queue import Empty, Full, Queue
from threading import Thread
from typing import Final

import anyio

from sparklog.core.errors import SparklogError

PIECES_MAX: Final = 16
LOOK_EVERY_S: Final = 0.02


class PieceQueue:
    """Pieces of an export between the reading thread and the response. Thread-safe."""

    def __init__(self) -> None:
        """Start empty."""
        self.stopped = False
        self._pieces: Queue[bytes] = Queue(PIECES_MAX)

    def put(self, piece: bytes) -> bool:
        """Add a piece, and wait while the queue is full; return False after the reader left."""
        while not self.stopped:
            try:
                self._pieces.put(piece, timeout=1.0)
            except Full:
                continue  # the reader is slow, or has gone
            return True
        return False

    def next_piece(self) -> bytes | None:
        """Return a piece, or None if there is none yet."""
        try:
            return self._pieces.get_nowait()
        except Empty:
            return None


class RunningExport:
    """One export: a thread that reads, and the pieces that wait for the response."""

    def __init__(self, read: Callable[[PieceQueue], None]) -> None:
        """Start the thread with `read`, which may raise SparklogError."""
        self._pieces = PieceQueue()
        self._failure: SparklogError | None = None
        self._thread = Thread(target=self._read, args=(read,), name="sparklog-export", daemon=True)
        self._thread.start()

    async def first(self) -> bytes:
        """Return the first piece; empty without records. Raises what reading raised."""
        async for piece in self.pieces():
            return piece
        return b""

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the pieces until the last record. Raises what reading raised."""
        while True:
            reading = self._thread.is_alive()
            piece = self._pieces.next_piece()
            if piece is not None:
                yield piece
            elif reading:
                await anyio.sleep(LOOK_EVERY_S)
            elif self._failure is not None:
                raise self._failure
            else:
                return

    def stop(self) -> None:
        """End the thread at its next piece."""
        self._pieces.stopped = True

    def _read(self, read: Callable[[PieceQueue], None]) -> None:
        try:
            read(self._pieces)
        except SparklogError as error:
            self._failure = error


async def export_body(running: RunningExport, first: bytes) -> AsyncIterator[bytes]:
    """Yield an export, and stop it when its reader has gone.

    Raises:
        SparklogError: reading failed; the response breaks off, so that its reader sees an error.
    """
    try:
        yield first
        async for piece in running.pieces():
            yield piece
    finally:
        running.stop()
