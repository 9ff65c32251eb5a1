"""Runs a query in a thread, so that an interrupt stops it at once.

DuckDB does not return to Python while it computes. The main thread waits here for batches instead,
and cancels the query when it is interrupted.
"""

from __future__ import annotations

from collections.abc import Iterator
from queue import Empty, Full, Queue
from threading import Event, Thread

import pyarrow as pa

from sparklog.sql.engine import Query

BATCHES_WAITING: int = 4
WAIT_S: float = 0.05


class QueryThread:
    """The thread of one query."""

    def __init__(self, query: Query) -> None:
        """Run `query`, which the caller closes."""
        self._query = query
        self._queue: Queue[pa.RecordBatch | BaseException | None] = Queue(BATCHES_WAITING)
        self._ended = Event()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the result as `Query.batches` does, and raise as it does.

        The query is cancelled when the caller stops early or is interrupted.
        """
        thread = Thread(target=self._run, name="sparklog-query", daemon=True)
        thread.start()
        done = False
        try:
            while True:
                try:
                    item = self._queue.get(timeout=WAIT_S)
                except Empty:
                    continue
                if item is None or isinstance(item, BaseException):
                    done = True
                    if item is not None:
                        raise item
                    return
                yield item
        finally:
            self._ended.set()
            if not done:
                self._query.cancel()
            thread.join()

    def _run(self) -> None:
        last: BaseException | None = None
        try:
            for batch in self._query.batches():
                self._put(batch)
                if self._ended.is_set():
                    return
        except BaseException as error:
            last = error
        self._put(last)

    def _put(self, item: pa.RecordBatch | BaseException | None) -> None:
        while not self._ended.is_set():
            try:
                self._queue.put(item, timeout=WAIT_S)
            except Full:
                continue
            return
