"""A program that fails to log in at an even rate.

Its arguments are `ADDRESSES CA MECHANISM RATE SECONDS`. `CA` is a file with the authority of the
brokers' certificates, or `-` for no TLS. Each try waits until the broker closes its connection.
Prints the number of tries, and how many ended as they should, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import struct
import sys
from collections.abc import Sequence

from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages import frames
from sparklog.protocol.messages.builder import build_request
from sparklog.security.sasl.plain import plain_token

USER = "load"
PLAIN = "PLAIN"
TRY_S = 30.0
NO_TLS = "-"


def _request(request: object) -> bytes:
    return bytes(frames.encode_request(request, 1, "guess"))


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


class Guesser:
    """Tries to log in with a wrong password."""

    def __init__(
        self, addresses: Sequence[str], mechanism: str, tls: ssl.SSLContext | None
    ) -> None:
        """Encode what each try sends."""
        self._places = [address.rpartition(":") for address in addresses]
        self._tls = tls
        self._is_plain = mechanism == PLAIN
        self._handshake = _request(build_request(Api.SASL_HANDSHAKE, 1, mechanism=mechanism))
        first = plain_token(USER, "guess") if self._is_plain else b"n,,n=load,r=nonce"
        self._first = self._token(first)

    async def guess(self, number: int) -> bool:
        """Return whether the broker rejected one login and closed the connection."""
        host, _, port = self._places[number % len(self._places)]
        reader, writer = await asyncio.open_connection(host, int(port), ssl=self._tls)
        try:
            writer.write(self._handshake)
            await _frame(reader)
            writer.write(self._first)
            answer = await _frame(reader)
            if not self._is_plain:
                nonce = answer[answer.index(b"r=") + 2 : answer.index(b",s=")]
                proof = b"c=biws,r=" + nonce + b",p=" + b"A" * 86 + b"=="
                writer.write(self._token(proof))
                await _frame(reader)
            return await reader.read() == b""
        finally:
            writer.close()

    def _token(self, token: bytes) -> bytes:
        return _request(build_request(Api.SASL_AUTHENTICATE, 1, auth_bytes=token))


async def _guess_all(guesser: Guesser, rate_per_s: float, seconds: float) -> tuple[int, int]:
    loop = asyncio.get_running_loop()
    start_s, tries = loop.time(), list[asyncio.Task[bool]]()
    while loop.time() - start_s < seconds:
        due = round((loop.time() - start_s) * rate_per_s)
        for number in range(len(tries), due):
            tries.append(loop.create_task(guesser.guess(number)))
        await asyncio.sleep(0.005)
    await asyncio.wait(tries, timeout=TRY_S)
    ended = [one for one in tries if one.done() and one.exception() is None and one.result()]
    return len(tries), len(ended)


def main(words: Sequence[str]) -> None:
    """Run the program."""
    addresses, authority, mechanism, rate, seconds = words
    tls = None if authority == NO_TLS else ssl.create_default_context(cafile=authority)
    guesser = Guesser(addresses.split(","), mechanism, tls)
    tried, rejected = asyncio.run(_guess_all(guesser, float(rate), float(seconds)))
    print(json.dumps({"tried": tried, "rejected": rejected}))


if __name__ == "__main__":
    main(sys.argv[1:])
