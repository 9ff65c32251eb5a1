"""Mutated requests of every API, noise and claims of sizes, sent to a real broker beside a client.

Each connection gets an answer or ends. The client is served all the time, the broker's memory stays
within its settings, and nothing unexpected is in its log.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from sparklog.protocol.messages import frames as messages
from tests.harness.broker_processes import BrokerProcess
from tests.harness.random_messages import message_types, random_entity
from tests.interop.test_hostile_requests import ALLOWED_BYTES, MIB, attack, broker

__all__ = ["broker"]
REQUESTS: list[Any] = [t for t in message_types() if t.__name__.endswith("Request")]
NEWEST: list[Any] = list({t.__api_key__: t for t in REQUESTS}.values())
PATIENCE_S = 1.0
"""After it the client sends no more: requests may ask to wait for days, or for no answer."""
END_S = 30.0
LINES = 12
CLAIMS = (-(1 << 31), -1, 0, 1, 7, 64 * MIB - 1, 64 * MIB, 104857601, (1 << 31) - 1)
COUNTS = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x01",
)
"""Of elements or bytes: the most that fixed and variable numbers can claim, and no number."""


def mutant(kind: Any, random: Random) -> bytes:
    """Return a frame of a request with some bytes changed; its header names the API."""
    whole = bytes(messages.encode_request(random_entity(kind, random), random.getrandbits(31), "f"))
    body = bytearray(whole[4:])
    for _ in range(random.randrange(4)):
        at = random.randrange(8, len(body))
        change = random.choice((*COUNTS, random.randbytes(random.randrange(1, 5))))
        body[at : at + len(change)] = change
    if random.random() < 0.2:
        del body[random.randrange(8, len(body)) :]
    return struct.pack(">i", len(body)) + body


def garbage(random: Random) -> bytes:
    """Return a claimed size with noise behind it, or the start of another protocol."""
    other = (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"")
    noise = random.choice((*other, random.randbytes(random.randrange(400))))
    return struct.pack(">i", random.choice(CLAIMS)) + noise if random.random() < 0.8 else noise


def exchange(address: str, frame: bytes) -> None:
    """Send bytes; return when there is an answer, or the broker has ended the connection.

    Raises:
        TimeoutError: neither comes, though the client has ended its side.
    """
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), END_S) as line, suppress(ConnectionError):
        line.sendall(frame)
        line.settimeout(PATIENCE_S)
        with suppress(TimeoutError):
            line.recv(4)
            return
        with suppress(OSError):
            line.shutdown(socket.SHUT_WR)
        line.settimeout(END_S)
        line.recv(4)


def send_all(address: str, frames: Iterable[bytes]) -> None:
    """Send each over a connection of its own, some at a time."""
    with ThreadPoolExecutor(LINES) as threads:
        for done in [threads.submit(exchange, address, frame) for frame in frames]:
            done.result()


def fuzz(broker: BrokerProcess, kinds: list[Any], seed: int) -> None:
    """Send a mutant of each kind and as much garbage, and look at what the broker did."""
    random = Random(seed)
    frames = [make for kind in kinds for make in (mutant(kind, random), garbage(random))]
    said = len(broker.log)
    peak, round_trips = attack(broker, lambda address: send_all(address, frames))
    log = broker.log[said:]
    assert round_trips > 0
    assert peak < ALLOWED_BYTES, f"{peak / MIB:.0f} MiB. seed={seed}"
    assert "Traceback" not in log, f"seed={seed}\n{log}"
    closed = [line for line in log.splitlines() if "closing a connection" in line]
    assert 0 < len(closed) <= len(frames), f"seed={seed}\n{log}"


@pytest.mark.parametrize("seed", [1])
def test_broker_serves_its_client_while_others_send_mutated_requests(
    broker: BrokerProcess, seed: int
) -> None:
    fuzz(broker, NEWEST, seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 120))
def test_broker_serves_a_client_while_others_send_mutated_requests(
    broker: BrokerProcess, seed: int
) -> None:
    fuzz(broker, REQUESTS, seed)
