"""Work in a thread whose pieces a response sends, until the client leaves.

The thread waits while the client is slow: a few pieces are ahead. When the client leaves, `stop` is
called in the event loop; the thread then ends at its next piece.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager
from threading import Event
from typing import Any, Final

import anyio
from anyio import from_thread, to_thread
from anyio.abc import ObjectReceiveStream, ObjectSendStream

from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.errors import SparklogError
from sparklog.sql.arrivals import ArrivalQuery, ArrivalSource
from sparklog.sql.engine import DecodeRules, Query, QueryLimits
from sparklog.sql.http.answers import BodyEncoder, columns_of, compact_text
from sparklog.sql.result_values import json_value, shaped_rows
from sparklog.sql.topics import TopicReader

PIECES_AHEAD: Final = 2
SIGN_OF_LIFE_S: Final = 15.0
"""Proxies close a response that is silent for longer."""
LASTS_S: Final = 600.0
"""A client that follows connects again after it, and its rights are checked again."""
WAIT_S: Final = 0.2
STOP_AGAIN_S: Final = 0.05

Emit = Callable[[bytes], None]
"""Hands a piece over; raises `ClientGone` after the client left."""
Receive = Callable[[], Awaitable[Any]]
Start = Callable[[bytes], Awaitable[None]]
"""Sends the head of the response, and the first bytes of the body."""
Send = Callable[[bytes], Awaitable[None]]


class ClientGone(Exception):
    """The client has left, so the work ends."""


class ThreadedBody:
    """A body that a thread makes."""

    def __init__(
        self,
        work: Callable[[Emit], None],
        stop: Callable[[], None],
        limiter: anyio.CapacityLimiter,
        *,
        held_back: int = 0,
    ) -> None:
        """Run `work` in a thread of `limiter`.

        Args:
            work: emits the pieces; an error before the response began becomes its answer.
            stop: makes `work` end soon, from any thread.
            limiter: of threads.
            held_back: pieces that are kept until one more, or the end, shows that work succeeds.
        """
        self._work = work
        self._stop = stop
        self._limiter = limiter
        self._held_back = held_back
        self._error: Exception | None = None

    async def run(self, receive: Receive, start: Start, send: Send) -> bool:
        """Make the body and send it; return False if the client left before its end.

        Raises:
            Exception: what `work` raised, before or after the response began.
        """
        gone = False
        ended = anyio.Event()
        sending = anyio.CancelScope()
        pieces_in, pieces_out = anyio.create_memory_object_stream[bytes](PIECES_AHEAD)

        async def watch() -> None:
            nonlocal gone
            while (await receive())["type"] != "http.disconnect":
                pass
            gone = True
            sending.cancel()

        async def made() -> None:
            try:
                await to_thread.run_sync(self._worked, pieces_in, limiter=self._limiter)
            finally:
                pieces_in.close()
                ended.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            tasks.start_soon(made)
            try:
                with sending:
                    await self._send_all(pieces_out, start, send)
            except OSError:
                gone = True
            finally:
                pieces_out.close()
                with anyio.CancelScope(shield=True):
                    await self._end(ended)
                tasks.cancel_scope.cancel()
        if self._error is not None and not gone:
            raise self._error
        return not gone

    async def _send_all(self, pieces: ObjectReceiveStream[bytes], start: Start, send: Send) -> None:
        held: list[bytes] = []
        started = False
        async for piece in pieces:
            if started:
                await send(piece)
                continue
            held.append(piece)
            if len(held) > self._held_back:
                started = True
                await start(b"".join(held))
        if self._error is None and not started:
            await start(b"".join(held))

    async def _end(self, ended: anyio.Event) -> None:
        """Stop the work until it has ended: a query that only begins now misses a stop."""
        while not ended.is_set():
            self._stop()
            with anyio.move_on_after(STOP_AGAIN_S):
                await ended.wait()

    def _worked(self, pieces: ObjectSendStream[bytes]) -> None:
        def emit(piece: bytes) -> None:
            try:
                from_thread.run(pieces.send, piece)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, CancelledError):
                raise ClientGone from None

        try:
            self._work(emit)
        except ClientGone:
            pass
        except Exception as error:  # of a query; the response reports it
            self._error = error


class QueryWork:
    """Runs a statement, and emits its result."""

    def __init__(
        self,
        opened: Callable[[], AbstractContextManager[TopicReader]],
        statement: str,
        limits: QueryLimits,
        rules: DecodeRules,
        encoder: BodyEncoder,
    ) -> None:
        """Prepare; `opened` opens the topics in the thread of the work."""
        self._opened = opened
        self._asked = (statement, limits, rules)
        self._encoder = encoder
        self._query: Query | None = None
        self._stopped = Event()

    def stop(self) -> None:
        """Cancel the query, from any thread."""
        self._stopped.set()
        if self._query is not None:
            self._query.cancel()

    def run(self, emit: Emit) -> None:
        """Run to the end. Raises as `Query`."""
        with self._opened() as topics, Query(topics, *self._asked) as query:
            self._query = query
            if self._stopped.is_set():
                raise ClientGone
            for batch in query.batches():
                emit(self._encoder.piece(batch))
            emit(self._encoder.end(query))


class FollowWork:
    """Follows a topic, and emits rows of arriving records as server-sent events.

    The events are `columns` at first, `rows`, and `problem` as the last one.
    """

    def __init__(
        self,
        opened: Callable[[], AbstractContextManager[TopicReader]],
        arrivals: Callable[[TopicReader, ArrivalQuery], AbstractContextManager[ArrivalSource]],
        statement: str,
        limits: QueryLimits,
        rules: DecodeRules,
    ) -> None:
        """Prepare; `opened` and `arrivals` are called in the thread of the work."""
        self._opened = opened
        self._arrivals = arrivals
        self._asked = (statement, limits, rules)
        self._stopped = Event()

    def stop(self) -> None:
        """End at the next look, from any thread."""
        self._stopped.set()

    def run(self, emit: Emit) -> None:
        """Follow until `stop`. Raises as `ArrivalQuery`, before the first event only."""
        with (
            self._opened() as topics,
            ArrivalQuery(topics, *self._asked) as query,
            self._arrivals(topics, query) as source,
        ):
            emit(_event("columns", {"columns": columns_of(query.schema)}))
            try:
                self._follow(query, source, emit)
            except SparklogError as error:
                emit(_event("problem", {"message": str(error)}))

    def _follow(self, query: ArrivalQuery, source: ArrivalSource, emit: Emit) -> None:
        began_s = said_s = SYSTEM_CLOCK.monotonic_s()
        while not self._stopped.is_set():
            for arrived in source.ready(None):
                for rows in query.answer(arrived.topic_partition, arrived.batch):
                    emit(_event("rows", {"rows": list(shaped_rows(rows, json_value))}))
                    said_s = SYSTEM_CLOCK.monotonic_s()
            now_s = SYSTEM_CLOCK.monotonic_s()
            if now_s - began_s > LASTS_S:
                return
            if now_s - said_s > SIGN_OF_LIFE_S:
                emit(b": still here\n\n")
                said_s = now_s
            source.wait(WAIT_S)


def _event(name: str, document: dict[str, Any]) -> bytes:
    # JSON has no raw line break, so one data line is the whole event.
    return f"event: {name}\ndata: {compact_text(document)}\n\n".encode("utf-8", "backslashreplace")
