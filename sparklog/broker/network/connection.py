"""One client's connection: frames in, answers out, in the order of the requests.

Requests start in the order they came. Those of `PIPELINED` do not wait for each other. So the
broker appends a producer's next batch while the last one is on its way to storage. Any other
request starts when all before it are answered, and holds up those behind it, as all do in Kafka. A
plain Produce is begun without a task, if no earlier one of its connection has one.

  CONNECTION-1: answers leave in the order of their requests
  CONNECTION-2: the broker reads nothing while this connection, or the whole broker, works on too
      much. A large request counts from when its size is known, and has a time to arrive in
  CONNECTION-3: nothing is started while the client does not take its answers, nor while it is over
      its quota
  CONNECTION-4: the worst effect of any bytes from the client is that the broker disconnects it
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, cast

from sparklog.broker.network.client_login import LOGIN_APIS, ClientLogin
from sparklog.broker.network.connection_limits import host_of
from sparklog.broker.network.request_kinds import PIPELINED, WAITING
from sparklog.broker.network.request_time import RequestTime
from sparklog.broker.network.service import FailedLogin, ListenerAccess, Service
from sparklog.broker.runtime.cause import RequestCause, set_cause
from sparklog.broker.runtime.log_limiter import kind_of
from sparklog.broker.runtime.request import (
    UNTHROTTLED,
    CloseConnection,
    ConnectionEnd,
    ExpectedClose,
    NoResponse,
    RequestContext,
)
from sparklog.core.errors import InvalidRequest
from sparklog.protocol.api_keys import LABELS, Api
from sparklog.protocol.messages import frames, produce_fast_path
from sparklog.protocol.messages.frames import FrameReader, RequestHeader, UnsupportedVersion
from sparklog.protocol.messages.produce_fast_path import PlainProduce


@dataclass(slots=True, eq=False)
class InFlightRequest:
    """A request and, in time, its answer. Handlers of Produce get it as a `Reply`."""

    owner: Connection
    header: RequestHeader
    request: Any
    """An entity, or a `PlainProduce` that has not been begun."""
    size: int
    started_s: float = 0.0
    task: asyncio.Task[None] | None = None
    time: RequestTime | None = None
    """Charges the client for its time; None: that has no quota."""
    done: bool = False
    answer_frame: bytearray | None = None
    """The answer; None when done: the client wants none."""

    def answer(self, frame: bytearray, throttle: timedelta = UNTHROTTLED) -> None:
        """Send this when those before it have gone."""
        self.answer_frame = frame
        if throttle:
            self.owner.throttle(throttle)
        self.owner.finished(self)

    def go_on(self, work: Coroutine[Any, Any, Any]) -> None:
        """Send the response entity that `work` returns."""
        self.owner.start_task(self, work)


logger = logging.getLogger(__name__)

REQUESTS_MAX: Final = 64
"""Requests of one connection being worked on. Kafka's producers have 5 in flight by default;
librdkafka may have a million, which then wait in the socket."""

COMMITS_MAX: Final = 256
"""As many when they are commits of offsets: these and their answers are small. All that come while
storage takes the ones before are committed together."""

WRITE_BUFFER_BYTES: Final = 1024 * 1024
"""Answers a client may leave untaken before nothing more is started for it."""

RESERVED_BYTES_MIN: Final = 64 * 1024
"""Requests from this size on take their memory before their bytes arrive. Smaller ones
come in one piece, as a rule."""
FRAME_S: Final = 30.0
FRAME_BYTES_PER_S: Final = 1024 * 1024
"""The time such a request may take to arrive: `FRAME_S`, and its size at this rate."""


class Connection(asyncio.Protocol):
    """The server's end of one connection."""

    def __init__(
        self, service: Service, access: ListenerAccess, closed: Callable[[Connection], None]
    ) -> None:
        """Serve one client of a listener; `closed` is called once the connection is gone."""
        self._service = service
        self._closed = closed
        self._access = access
        self.login = None if access.login is None else access.login()
        self._reader = FrameReader(
            service.frame_bytes_max if self.login is None else self.login.receive_bytes_max
        )
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._host = ""
        self._context = RequestContext()
        self._exchanges: deque[InFlightRequest] = deque()
        self._next: InFlightRequest | None = None
        """Decoded, and waiting to be started."""
        self._time: RequestTime | None = None
        """That of the last request; it charges the client for decoding the next one."""
        self._running = 0
        self._running_alone = False
        self._produce_tasks = 0
        """Produce requests that are answered by tasks."""
        self._reading = True
        self._writable = True
        self._waiting_for_memory = False
        self._claimed = 0
        """Memory in bytes that the request holds which arrives, or waits to be started."""
        self._frame_timer: asyncio.TimerHandle | None = None
        """Runs while a request arrives that has claimed bytes."""
        self._draining = False
        self._settling: asyncio.Handle | None = None
        self._throttled: asyncio.TimerHandle | None = None
        self.active_s = self._loop.time()
        """When a byte came in or an answer went out last, by the loop's clock."""

    @property
    def busy(self) -> bool:
        """Return whether a request is being worked on."""
        return bool(self._exchanges) or self._next is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember whom to answer."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._host = host_of(transport.get_extra_info("peername"))
        principal = self._access.principal_of(transport)
        if principal is None:
            self._log_closing(
                "no rule of ssl.principal.mapping.rules matches the client's certificate. "
                f"listener={self._access.name}"
            )
            self._transport.close()
            return
        self._context = RequestContext(
            None, self._host, principal, self._access.name, connection=ConnectionEnd()
        )

    def data_received(self, data: bytes) -> None:
        """Take what arrived and start what may start."""
        self.active_s = self._loop.time()
        self._reader.feed(data)
        self._advance()

    def pause_writing(self) -> None:
        """Start nothing more: the client does not take its answers."""
        self._writable = False

    def resume_writing(self) -> None:
        """Go on: the client has caught up."""
        self._writable = True
        self._advance()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting on the client's behalf. The broker still appends the client's batches."""
        self._transport = None
        if self._throttled is not None:
            self._throttled.cancel()
        if self._frame_timer is not None:
            self._frame_is_here(self._frame_timer)
        if self.login is not None:
            self.login.client_left()
        claimed, self._claimed = self._claimed, 0
        for exchange in self._exchanges:
            if exchange.task is not None and exchange.header.api_key in WAITING:
                # Not at once: a task that is cancelled before it has begun gives nothing back.
                self._loop.call_soon(exchange.task.cancel)
        self._next = None
        if self._context.connection is not None:
            self._context.connection.happened()
        if claimed:
            self._service.request_memory.give_back(claimed)
        self._closed(self)

    def drain(self) -> None:
        """Read no more, and close when everything that was started is answered."""
        self._draining = True
        self._next = None
        self._read(wanted=False)
        self._close_if_drained()

    def close(self) -> None:
        """Close now; what was written, or is ready to be, still goes out."""
        self._send_finished()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close now and drop what was written."""
        if self._transport is not None:
            self._transport.abort()

    def _advance(self) -> None:
        try:
            stalled = not self._start_all()
        except InvalidRequest as error:
            self._log_closing(str(error))
            self.close()
            return
        self._read(wanted=not stalled)

    def _start_all(self) -> bool:
        """Start what may start; return whether more bytes are wanted."""
        while self._transport is not None and not self._draining:
            if len(self._exchanges) >= COMMITS_MAX or not self._writable:
                return False
            if self._throttled is not None:
                return False
            if self._next is None:
                if self.login is not None and self._exchanges and not self.login.complete:
                    return False
                frame = self._reader.next_frame()
                if frame is None:
                    size = self._reader.arriving_bytes
                    return size < RESERVED_BYTES_MIN or bool(self._claimed) or self._claim(size)
                if self._frame_timer is not None:
                    self._frame_is_here(self._frame_timer)
                if self._time is None:
                    self._next = self._decoded(frame)
                else:
                    self._next = self._time.measured(self._decoded, frame)
            if not self._start_next(self._next):
                return False
            self._next = None
        return False

    def _claim(self, size: int) -> bool:
        """Take the share of a large request before its bytes; return whether these are wanted."""
        if not self._service.request_memory.reserve(size):
            self._wait_for_memory()
            return False
        self._claimed = size
        limit_s = FRAME_S + size / FRAME_BYTES_PER_S
        self._frame_timer = self._loop.call_later(limit_s, self._frame_is_late)
        return True

    def _frame_is_here(self, timer: asyncio.TimerHandle) -> None:
        timer.cancel()
        self._frame_timer = None
        self._service.request_memory.arrived(self._claimed)

    def _frame_is_late(self) -> None:
        self._log_closing(
            f"a request took too long to arrive. bytes={len(self._reader)} of={self._claimed}"
        )
        self.abort()

    def _log_closing(self, fault: str) -> None:
        kind = f"{self._access.name} {kind_of(fault)}"
        text = f"closing a connection: {fault} client={self._host}"
        self._service.closing_log.add(kind, text, self._host, logging.INFO)

    def _wait_for_memory(self) -> None:
        if not self._waiting_for_memory:
            self._waiting_for_memory = True
            self._service.request_memory.wait(self._memory_released)

    def _decoded(self, frame: bytes) -> InFlightRequest:
        login = self.login
        if login is not None and not login.complete:
            if login.expects_token:
                header = RequestHeader(Api.SASL_AUTHENTICATE, 0, 0)
                return InFlightRequest(self, header, frame, len(frame))
            login.check_frame(frame)
        plain = produce_fast_path.read(frame)
        if plain is not None:
            return InFlightRequest(self, plain.header, plain, len(frame))
        try:
            header, request = frames.decode_request(frame)
        except UnsupportedVersion as error:
            if error.header.api_key != Api.API_VERSIONS:
                raise
            if login is not None and not login.complete:
                login.saw_api_versions(supported=False)
            header = RequestHeader(Api.API_VERSIONS, 0, error.header.correlation_id)
            answer = frames.encode_response(header, self._service.refuse(error.header))
            return InFlightRequest(self, header, None, len(frame), done=True, answer_frame=answer)
        if login is not None and not login.complete and header.api_key == Api.API_VERSIONS:
            login.saw_api_versions(supported=True)
        return InFlightRequest(self, header, request, len(frame))

    def _start_next(self, exchange: InFlightRequest) -> bool:
        if exchange.done:
            if self._claimed:
                self._service.request_memory.give_back(self._claimed)
                self._claimed = 0
            self._exchanges.append(exchange)
            self._settle_soon()
            return True
        api = exchange.header.api_key
        if self.login is not None and self.login.complete:
            self.login.check_session(api)
        if len(self._exchanges) >= REQUESTS_MAX and api != Api.OFFSET_COMMIT:
            return False
        alone = api not in PIPELINED
        if self._running and (alone or self._running_alone):
            return False
        if self._claimed:
            self._claimed = 0
        elif not self._service.request_memory.take(exchange.size):
            self._wait_for_memory()
            return False
        self._running += 1
        self._running_alone = alone
        self._exchanges.append(exchange)
        exchange.started_s = self._loop.time()
        request, exchange.request = exchange.request, None
        client_id = exchange.header.client_id
        if client_id != self._context.client_id:
            self._context = replace(self._context, client_id=client_id)
        context, timed = self._context, self._service.timed
        self._time = exchange.time = timed.time_of(context, api) if timed.exist else None
        if type(request) is PlainProduce:
            # The request gets no task, unless a produce request before it has yet to append.
            if exchange.time is None and not self._produce_tasks:
                try:
                    if self._service.begin_produce(request, exchange, context):
                        return True
                except Exception as error:
                    self._broke(exchange, error)
                    self.finished(exchange)
                    return True
            _, request = frames.decode_request(request.frame)
        if self.login is not None and api in LOGIN_APIS:
            self.start_task(exchange, self._log_in(self.login, exchange, request))
        else:
            self.start_task(exchange, self._service.handle(request, context))
        return True

    async def _log_in(self, login: ClientLogin, exchange: InFlightRequest, request: Any) -> Any:
        """Answer one message of a login, and let the client in when it is complete."""
        again = login.principal is not None
        answer = await login.answer(exchange.header.api_key, request, self._host)
        if answer.fault:
            self._service.login_failed(
                FailedLogin(self._access.name, login.mechanism, answer.fault, self._host, again)
            )
            self._close_later(login.failure_delay_s)
        elif (
            login.principal is not None
            and login.complete
            and exchange.header.api_key != Api.SASL_HANDSHAKE
        ):
            self._reader.frame_bytes_max = self._service.frame_bytes_max
            self._context = replace(
                self._context, principal=login.principal, by_token=login.by_token
            )
            self._service.metrics.authentication(
                self._access.name, login.mechanism, succeeded=True, again=again
            )
        if isinstance(request, bytes) and not answer.fault:
            exchange.answer_frame = frames.sized_token(answer.token)
        return answer.response

    def _close_later(self, delay_s: float) -> None:
        """Read nothing more, and close after a while: guessing passwords takes time."""
        if self._throttled is not None:
            self._throttled.cancel()
        self._throttled = self._loop.call_later(delay_s, self.close)

    def start_task(self, exchange: InFlightRequest, work: Awaitable[Any]) -> None:
        """Answer with the response entity that `work` returns."""
        self._produce_tasks += exchange.header.api_key == Api.PRODUCE
        exchange.task = self._loop.create_task(self._work(exchange, work))

    def throttle(self, time: timedelta) -> None:
        """Start nothing more for so long: the client is over its quota."""
        until_s = self._loop.time() + time.total_seconds()
        if self._throttled is not None:
            until_s = max(until_s, self._throttled.when())
            self._throttled.cancel()
        self._throttled = self._loop.call_at(until_s, self._listen_again)

    def _listen_again(self) -> None:
        self._throttled = None
        self._advance()

    def _memory_released(self) -> None:
        self._waiting_for_memory = False
        self._advance()

    async def _work(self, exchange: InFlightRequest, work: Awaitable[Any]) -> None:
        set_cause(RequestCause(exchange.header, self._host))
        try:
            time = exchange.time
            if time is None:
                response = await work
                throttle = getattr(response, "throttle_time", UNTHROTTLED)
            else:
                response, throttle = time.throttled(await time.timed(work))
            if throttle:
                self.throttle(throttle)
            if response is not None and not isinstance(response, NoResponse):
                if time is None:
                    exchange.answer_frame = frames.encode_response(exchange.header, response)
                else:
                    encode = frames.encode_response
                    exchange.answer_frame = time.measured(encode, exchange.header, response)
        except CloseConnection as error:
            if isinstance(error, ExpectedClose):
                logger.debug("closing a connection: %s client=%s", error, self._host)
            else:
                self._log_closing(str(error))
            self.close()
        except Exception as error:
            self._broke(exchange, error)
        finally:
            self._produce_tasks -= exchange.header.api_key == Api.PRODUCE
            self.finished(exchange)

    def _broke(self, exchange: InFlightRequest, error: Exception) -> None:
        header = exchange.header
        api = Api(header.api_key).name
        text = (
            f"a request failed, closing its connection api={api} version={header.api_version} "
            f"client={self._host}"
        )
        kind = f"{api} {type(error).__name__}"
        self._service.closing_log.add(kind, text, self._host, logging.ERROR, error)
        self.close()

    def finished(self, exchange: InFlightRequest) -> None:
        """Record that a request's answer is there, or that it gets none."""
        exchange.done = True
        exchange.task = None
        self._running -= 1
        seconds = self._loop.time() - exchange.started_s
        header = exchange.header
        self._service.metrics.request(LABELS[header.api_key], header.api_version, seconds)
        self._settle_soon()
        self._service.request_memory.give_back(exchange.size)

    def _settle_soon(self) -> None:
        """Settle once the loop has run what is ready: answers that come together go together."""
        if self._settling is None:
            self._settling = self._loop.call_soon(self._settle)

    def _settle(self) -> None:
        """Send what is finished, and start what may start now."""
        self._settling = None
        self._send_finished()
        if self._draining:
            self._close_if_drained()
        else:
            self._advance()

    def _send_finished(self) -> None:
        """Send every answer that has no unanswered request before it."""
        ready = []
        while self._exchanges and self._exchanges[0].done:
            answer = self._exchanges.popleft().answer_frame
            if answer is not None:
                ready.append(answer)
        if ready and self._transport is not None:
            self.active_s = self._loop.time()
            self._transport.writelines(ready)

    def _close_if_drained(self) -> None:
        if not self._exchanges:
            self.close()

    def _read(self, *, wanted: bool) -> None:
        if self._transport is None or wanted == self._reading:
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()
