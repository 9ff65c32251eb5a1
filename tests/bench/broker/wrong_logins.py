"""Programs beside a load: one fails to log in at an even rate, one only rejects logins.

    guess ADDRESSES CA MECHANISM RATE SECONDS
    reject CERTIFICATE

`CA` is a file with the authority of the brokers' certificates, `CERTIFICATE` a file with one and
its key; both are `-` for no TLS. Each try has another password, and waits until the server closes
its connection. `guess` prints as JSON how many tries there were, how many the server rejected, and
how many it closed without an answer. It also prints how many cores it used itself.

`reject` answers each try as a broker does, without any check, and closes after 100 ms. It shows
what the tries alone cost a machine that they share with brokers. It prints its port, and ends with
its standard input.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import cast

import uvloop
from kio.schema.errors import ErrorCode

from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages import frames
from sparklog.protocol.messages.builder import ResponseBuilder, build_request
from sparklog.protocol.messages.frames import FrameReader
from sparklog.security.sasl.plain import plain_token

USER = "load"
PLAIN = "PLAIN"
TRY_S = 30.0
NO_TLS = "-"
CLOSE_S = 0.1
FRAME_BYTES_MAX = 1 << 20
NONCE = b"n" * 32
"""Stands for the nonce of a server, which has this size."""
GUESS = "guess-%08d"
REJECTED = "rejected"
UNANSWERED = "unanswered"


def _request(request: object) -> bytes:
    return bytes(frames.encode_request(request, 1, "guess"))


def _token(token: bytes) -> bytes:
    return _request(build_request(Api.SASL_AUTHENTICATE, 1, auth_bytes=token))


class Guesses:
    """The frames that all tries of one mechanism send."""

    def __init__(self, mechanism: str) -> None:
        """Encode it once."""
        self._handshake = _request(build_request(Api.SASL_HANDSHAKE, 1, mechanism=mechanism))
        self._is_plain = mechanism == PLAIN
        self._plain = _token(plain_token(USER, GUESS % 0))
        self._first = _token(b"n,,n=%s,r=nonce" % USER.encode())
        self._final = _token(b"c=biws,r=nonce" + NONCE + b",p=" + b"A" * 86 + b"==")
        self.frames = 2 if self._is_plain else 3
        """Answers until the login is rejected."""

    def next(self, number: int, answers: int, answer: bytes) -> bytes:
        """Return the frame of a try after this many answers."""
        if answers == 0:
            return self._handshake
        if answers == 1 and self._is_plain:
            return self._plain.replace((GUESS % 0).encode(), (GUESS % number).encode())
        if answers == 1:
            return self._first
        start = answer.index(b"r=nonce") + len(b"r=nonce")
        return self._final.replace(NONCE, answer[start : answer.index(b",s=")])


class _Try(asyncio.Protocol):
    """One try to log in."""

    def __init__(self, guesses: Guesses, number: int) -> None:
        self._guesses = guesses
        self._number = number
        self._answers = 0
        self._reader = FrameReader(FRAME_BYTES_MAX)
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._guesses.next(self._number, 0, b""))

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (frame := self._reader.next_frame()) is not None:
            self._answers += 1
            if self._answers < self._guesses.frames:
                answer = self._guesses.next(self._number, self._answers, bytes(frame))
                self._transport.write(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            rejected = self._answers == self._guesses.frames
            self.ended.set_result(REJECTED if rejected else UNANSWERED)


async def _guess(places: Sequence[str], tls: ssl.SSLContext | None, guesses: Guesses,
                 number: int) -> str:  # fmt: skip
    host, _, port = places[number % len(places)].rpartition(":")
    loop = asyncio.get_running_loop()
    try:
        _, one = await loop.create_connection(
            lambda: _Try(guesses, number), host, int(port), ssl=tls
        )
    except OSError:
        return UNANSWERED
    return await one.ended


async def _guess_all(words: Sequence[str]) -> dict[str, float]:
    addresses, authority, mechanism, rate, seconds = words
    tls = None if authority == NO_TLS else ssl.create_default_context(cafile=authority)
    places, guesses = addresses.split(","), Guesses(mechanism)
    loop = asyncio.get_running_loop()
    start_s, start_cpu_s = loop.time(), time.process_time()
    tries: list[asyncio.Task[str]] = []
    while loop.time() - start_s < float(seconds):
        due = round((loop.time() - start_s) * float(rate))
        new = range(len(tries), due)
        tries += [loop.create_task(_guess(places, tls, guesses, number)) for number in new]
        await asyncio.sleep(0.005)
    cores = (time.process_time() - start_cpu_s) / (loop.time() - start_s)
    await asyncio.wait(tries, timeout=TRY_S)
    found = Counter(t.result() for t in tries if t.done() and t.exception() is None)
    return {
        "tried": len(tries),
        REJECTED: found[REJECTED],
        UNANSWERED: found[UNANSWERED],
        "cores": cores,
    }


class _Rejecter(asyncio.Protocol):
    """Answers the tries of one connection."""

    def __init__(self, answers: dict[int, bytes]) -> None:
        self._answers = answers
        self._reader = FrameReader(FRAME_BYTES_MAX)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (frame := self._reader.next_frame()) is not None:
            is_first = b"n,,n=" in frame
            is_handshake = frame[1] == Api.SASL_HANDSHAKE
            self._transport.write(self._answers[2 if is_first else 1 if is_handshake else 0])
            if not is_first and not is_handshake:
                asyncio.get_running_loop().call_later(CLOSE_S, self._transport.close)


def _answers() -> dict[int, bytes]:
    """Return a rejection, the answer to a handshake, and that to a first SCRAM message."""
    handshake = build_request(Api.SASL_HANDSHAKE, 1, mechanism=PLAIN)
    token = build_request(Api.SASL_AUTHENTICATE, 1, auth_bytes=b"")
    first = b"r=nonce" + NONCE + b",s=c2FsdA==,i=4096"
    none, failed = ErrorCode.none, ErrorCode.sasl_authentication_failed
    ends = {"session_lifetime": timedelta(0)}
    bodies = [
        ResponseBuilder.to(token).response(
            error_code=failed, error_message="Authentication failed", auth_bytes=b"", **ends
        ),
        ResponseBuilder.to(handshake).response(error_code=none, mechanisms=(PLAIN,)),
        ResponseBuilder.to(token).response(
            error_code=none, error_message=None, auth_bytes=first, **ends
        ),
    ]
    header = [Api.SASL_AUTHENTICATE, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE]
    return {
        number: bytes(frames.encode_response(frames.RequestHeader(api, 1, 1), body))
        for number, (api, body) in enumerate(zip(header, bodies, strict=True))
    }


async def _reject(words: Sequence[str]) -> None:
    (certificate,) = words
    tls = None
    if certificate != NO_TLS:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(Path(certificate))
    loop, answers = asyncio.get_running_loop(), _answers()
    server = await loop.create_server(
        lambda: _Rejecter(answers), "127.0.0.1", 0, ssl=tls, backlog=512
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


def main(words: Sequence[str]) -> None:
    """Run one of the programs."""
    uvloop.install()
    if words[0] == "guess":
        print(json.dumps(asyncio.run(_guess_all(words[1:]))))
    else:
        asyncio.run(_reject(words[1:]))


if __name__ == "__main__":
    main(sys.argv[1:])
