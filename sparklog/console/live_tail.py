"""LiveTail: new records of a topic as server-sent events, with a bounded queue.

A thread follows the topic, and puts previews into a queue of `QUEUE_ROWS`. Four times a second the
response takes all of them. If more arrive, the oldest are dropped, and the event says how many the
reader skipped. So memory is the same at any rate.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator, Callable
from threading import Lock
from typing import Any, Final

import anyio
import pyarrow as pa
from anyio import to_thread

from sparklog.console.cluster_view import ClusterView
from sparklog.console.record_pages import DECODER, PARTITIONS_READ_MAX, record_rows
from sparklog.console.resources import FieldSpec
from sparklog.console.schema_decoder import SchemaDecoding
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.errors import SparklogError, Unavailable, UnknownTopicOrPartition
from sparklog.core.types import TopicPartition

TAIL_PARAMETERS: Final = (FieldSpec("partition", "only this partition", "integer"), DECODER)
QUEUE_ROWS: Final = 500
"""Twice as many as 1,000 records a second bring between two events."""
EVERY_S: Final = 0.25
SIGN_OF_LIFE_S: Final = 15.0
"""Proxies close a response that is silent for longer, often after 30 or 60 s."""
CHECK_EVERY_S: Final = 60.0
"""The time in which a tail notices that its session has ended. It stays connected for that: records
that arrive meanwhile would be neither shown nor counted.
"""


class TailQueue:
    """Previews that the reader has not taken, and the number of dropped records. Thread-safe."""

    def __init__(self, decoder: str, decoding: SchemaDecoding | None = None) -> None:
        """Show keys and values by `decoder`, framed ones by `decoding`."""
        self.stopped = False
        self._decoder = decoder
        self._decoding = decoding
        self._rows: deque[dict[str, Any]] = deque()
        self._skipped = 0
        self._lock = Lock()

    def take(self, tp: TopicPartition, batch: pa.RecordBatch) -> bool:
        """Take records; return False after the reader has gone."""
        last = batch.slice(max(0, batch.num_rows - QUEUE_ROWS))
        rows = record_rows(tp, last, self._decoder, self._decoding)
        with self._lock:
            self._rows.extend(rows)
            self._skipped += batch.num_rows - len(rows)
            while len(self._rows) > QUEUE_ROWS:
                self._rows.popleft()
                self._skipped += 1
        return not self.stopped

    def drain(self) -> tuple[list[dict[str, Any]], int]:
        """Return all previews, and how many records were dropped before them."""
        with self._lock:
            rows, skipped = list(self._rows), self._skipped
            self._rows.clear()
            self._skipped = 0
        return rows, skipped


async def tail_events(
    view: ClusterView,
    topic: str,
    partition: int | None,
    decoder: str,
    limiter: anyio.CapacityLimiter,
    is_stopping: Callable[[], bool],
    has_ended: Callable[[], bool],
) -> AsyncIterator[bytes]:
    """Yield server-sent events until the reader goes, the server stops, or `has_ended()`.

    They are `records`, or `problem` as the last one. `has_ended` returns whether the session has.
    """
    queue = TailQueue(decoder, SchemaDecoding(view.schemas))
    problems: list[str] = []

    def follow() -> None:
        try:
            view.follow(topic, _numbers(view, topic, partition), queue.take)
        except SparklogError as error:
            problems.append(str(error))

    if limiter.available_tokens < 1:
        yield _event("problem", {"message": "too many pages follow topics; close one of them"})
        return
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_follow_in_thread, follow, limiter)
        checked_s = heard_s = SYSTEM_CLOCK.monotonic_s()
        try:
            yield _event("records", {"records": [], "skipped": 0})
            while not problems and not is_stopping():
                await anyio.sleep(EVERY_S)
                rows, skipped = queue.drain()
                now_s = SYSTEM_CLOCK.monotonic_s()
                if now_s - checked_s >= CHECK_EVERY_S:
                    checked_s = now_s
                    if has_ended():
                        problems.append("your session has ended; log in again")
                        break
                if rows or skipped:
                    yield _event("records", {"records": rows, "skipped": skipped})
                    heard_s = now_s
                elif now_s - heard_s >= SIGN_OF_LIFE_S:
                    yield b": still here\n\n"
                    heard_s = now_s
            for message in problems:
                yield _event("problem", {"message": message})
        finally:
            queue.stopped = True
            tasks.cancel_scope.cancel()


async def _follow_in_thread(follow: Any, limiter: anyio.CapacityLimiter) -> None:
    await to_thread.run_sync(follow, abandon_on_cancel=True, limiter=limiter)


def _numbers(view: ClusterView, topic: str, partition: int | None) -> list[int]:
    found = view.topics().get(topic)
    if found is None:
        raise UnknownTopicOrPartition(f"no such topic. topic={topic}")
    if partition is None:
        if found.partitions > PARTITIONS_READ_MAX:
            raise Unavailable(
                "the topic has too many partitions to follow together; choose one. "
                f"partitions={found.partitions} partitions_max={PARTITIONS_READ_MAX}"
            )
        return list(range(found.partitions))
    if not 0 <= partition < found.partitions:
        raise UnknownTopicOrPartition(f"no such partition. topic={topic} partition={partition}")
    return [partition]


def _event(name: str, document: dict[str, Any]) -> bytes:
    # JSON has no raw line break, so one data line is the whole event.
    return f"event: {name}\ndata: {json.dumps(document)}\n\n".encode()
