"""SignedLine: JSON objects over TCP between two ends that share a token, each object with a code.

    driver: {"nonce": N1}
    broker: {"nonce": N2, "broker": 1, "proof": code of N1 and N2}
    either: {"body": …, "code": code of its number and its text}

  SIGNED-LINE-1: the token is never sent; each end proves that it has it
  SIGNED-LINE-2: an object that another process changed, repeated, left out or added ends the line

The content is not encrypted: it has addresses, process ids and orders, and no secrets.
"""

from __future__ import annotations

import hmac
import json
import socket
from collections.abc import Mapping
from hashlib import sha256
from threading import Lock
from typing import Any, BinaryIO, Final

from sparklog.core.bounded_json import parse_json
from sparklog.core.entropy import SYSTEM_ENTROPY, new_nonce

LINE_BYTES_MAX: Final = 64 * 1024
_BROKER, _DRIVER = "broker", "driver"


class SignedLine:
    """One end of a line, after both ends have proved that they have the token."""

    def __init__(self, line: socket.socket, reader: BinaryIO, key: bytes, own: str) -> None:
        """Use a connected socket; see `accept` and `call`."""
        self._line = line
        self._reader = reader
        self._key = key
        self._own = own
        self._other = _DRIVER if own == _BROKER else _BROKER
        self._sent = 0
        self._read = 0
        self._lock = Lock()

    def send(self, said: Mapping[str, Any]) -> None:
        """Send an object; a line that is gone is no error, as its reader notices."""
        body = json.dumps(said)
        with self._lock:
            code = _code(self._key, f"{self._own} {self._sent} {body}")
            self._sent += 1
            _send(self._line, {"body": body, "code": code})

    def read(self) -> dict[str, Any] | None:
        """Return the next object; None at the line's end or for a wrong one (SIGNED-LINE-2)."""
        outer = _read(self._reader)
        body = None if outer is None else outer.get("body")
        if outer is None or not isinstance(body, str):
            return None
        expected = _code(self._key, f"{self._other} {self._read} {body}")
        if not _equal(outer.get("code"), expected):
            return None
        self._read += 1
        try:
            found = parse_json(body.encode(), "line of the driver")
        except ValueError:
            return None
        return found if isinstance(found, dict) else None


def accept(line: socket.socket, reader: BinaryIO, token: str) -> tuple[int, SignedLine] | None:
    """Return a caller's broker id and the driver's end; None for a stranger."""
    nonce = new_nonce(SYSTEM_ENTROPY)
    _send(line, {"nonce": nonce})
    hello = _read(reader)
    if hello is None:
        return None
    broker, theirs = hello.get("broker"), hello.get("nonce")
    if not isinstance(broker, int) or not isinstance(theirs, str):
        return None
    key = _key(token, nonce, theirs)
    if not _equal(hello.get("proof"), _code(key, f"hello {broker}")):
        return None
    return broker, SignedLine(line, reader, key, _DRIVER)


def call(line: socket.socket, reader: BinaryIO, token: str, broker: int) -> SignedLine | None:
    """Return the broker's end; None if the other end does not begin as a driver does.

    A false driver has no key, so each of its orders ends the line.
    """
    challenge = _read(reader)
    theirs = None if challenge is None else challenge.get("nonce")
    if not isinstance(theirs, str):
        return None
    nonce = new_nonce(SYSTEM_ENTROPY)
    key = _key(token, theirs, nonce)
    proof = _code(key, f"hello {broker}")
    _send(line, {"nonce": nonce, "broker": broker, "proof": proof})
    return SignedLine(line, reader, key, _BROKER)


def _key(token: str, driver_nonce: str, broker_nonce: str) -> bytes:
    return hmac.digest(token.encode(), f"{driver_nonce} {broker_nonce}".encode(), sha256)


def _code(key: bytes, text: str) -> str:
    return hmac.digest(key, text.encode(), sha256).hex()


def _equal(given: object, expected: str) -> bool:
    return isinstance(given, str) and hmac.compare_digest(given.encode(), expected.encode())


def _read(reader: BinaryIO) -> dict[str, Any] | None:
    """Return the next object; None for the end, and for what is no object."""
    try:
        text = reader.readline(LINE_BYTES_MAX)
        found = parse_json(text, "line of the driver") if text.endswith(b"\n") else None
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _send(line: socket.socket, said: Mapping[str, Any]) -> None:
    try:
        line.sendall(json.dumps(said).encode() + b"\n")
    except OSError:
        pass  # the other end is gone, which its reader notices
