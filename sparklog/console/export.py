"""Export: records as JSON lines, as `sparklog consume --json` prints them, and results of SQL.

A thread reads, and puts pieces of at most `PIECE_ROWS` records into a queue of `PIECES_MAX`. It
waits while the queue is full, so memory is the same for any number of records.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from queue import Empty, Full, Queue
from threading import Thread
from typing import Final

import anyio
import pyarrow as pa

from sparklog.cli.console.record_format import record_documents
from sparklog.console.cluster_view import ClusterView, PartitionRange
from sparklog.console.record_pages import (
    POSITION,
    SNAPSHOT,
    STARTS,
    page_source,
)
from sparklog.console.resources import BoundedValues, FieldSpec
from sparklog.core.errors import SparklogError
from sparklog.core.types import TopicPartition

PIECE_ROWS: Final = 100
PIECES_MAX: Final = 16
LOOK_EVERY_S: Final = 0.02
RECORDS_MAX: Final = 10_000_000
EXPORT_PARAMETERS: Final = (
    FieldSpec("partition", "only this partition", "integer"),
    FieldSpec("from", "where to start", choices=STARTS, default="oldest"),
    POSITION,
    SNAPSHOT,
    FieldSpec("limit", "at most so many records", "integer", default="10000", least=1,
              most=RECORDS_MAX),
)  # fmt: skip


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


class ExportPieces:
    """Turns records into pieces, at most `limit` records."""

    def __init__(self, pieces: PieceQueue, limit: int) -> None:
        """Add to `pieces`."""
        self._pieces = pieces
        self._left = limit

    def take(self, tp: TopicPartition, batch: pa.RecordBatch) -> bool:
        """Take records, and wait while the queue is full; return False when no more are wanted."""
        for at in range(0, min(batch.num_rows, self._left), PIECE_ROWS):
            some = batch.slice(at, min(PIECE_ROWS, self._left))
            lines = (json.dumps(one, ensure_ascii=True) for one in record_documents(tp, some))
            self._left -= some.num_rows
            if not self._pieces.put(("\n".join(lines) + "\n").encode()):
                return False
        return self._left > 0 and not self._pieces.stopped


def read_export(view: ClusterView, values: BoundedValues, queue: PieceQueue) -> None:
    """Read the records of an export, partition by partition. Raises as the page of records."""
    pieces = ExportPieces(queue, values.whole("limit"))
    start = values.text("from")
    with page_source(view, values) as source:
        bounds = source.bounds(start, values.text("at"))
        if start in {"newest", "before"}:
            limit = values.whole("limit")
            ranges = [
                PartitionRange(tp, max(source.firsts[tp], bounds[tp] - limit), bounds[tp])
                for tp in source.chosen
            ]
        else:
            ranges = [PartitionRange(tp, bounds[tp], source.ends[tp]) for tp in source.chosen]
        for one in ranges:
            if queue.stopped:
                return
            source.read([one], pieces.take)


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
