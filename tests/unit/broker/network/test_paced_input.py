"""Steps of clients that have yet to prove who they are: few in a turn, in order, for a time."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop
from kio.schema.errors import ErrorCode

from sparklog.broker.network.paced_input import READ_BYTES_MAX, PacedInput, StepPacer
from sparklog.security.sasl.client import SaslLogin
from sparklog.testing.virtual_loop import new_virtual_loop
from tests.harness.secured_server import AUTHORITY, Peer, Secured, serve
from tests.unit.broker.network.test_server import metadata

LOOPS = (asyncio.new_event_loop, uvloop.new_event_loop)
ALICE = SaslLogin("SCRAM-SHA-256", "alice", "wonder land")
STALLED = 40


class Steps:
    """Steps of a pacer that takes 1 s of a turn; each step costs what it says."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.ran: list[str] = []
        self.pacer = StepPacer(1.0, lambda: self.now_s)

    def arrive(self, host: str, cost_s: float) -> None:
        def step() -> None:
            self.now_s += cost_s
            self.ran.append(host)

        if not self.pacer.run(step):
            self.pacer.add(host, step)

    async def turn(self) -> list[str]:
        """Return the steps that ran in the next turn of the event loop."""
        before = len(self.ran)
        await asyncio.sleep(0)
        return self.ran[before:]


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    new_virtual_loop().run_until_complete(story())


def test_a_turn_begins_no_step_once_its_time_is_used() -> None:
    async def story() -> None:
        steps = Steps()
        for _ in range(7):
            steps.arrive("a", 0.4)
        assert len(steps.ran) == 3
        assert [len(await steps.turn()) for _ in range(3)] == [3, 1, 0]
        steps.arrive("a", 5.0)
        steps.arrive("a", 0.1)
        assert len(steps.ran) == 8
        assert len(await steps.turn()) == 1
        assert len(steps.pacer) == 0

    run(story)


def test_addresses_take_turns_with_their_steps() -> None:
    async def story() -> None:
        steps = Steps()
        steps.arrive("first", 1.0)
        for host in ("a", "a", "a", "b", "c", "b"):
            steps.arrive(host, 1.0)
        assert [await steps.turn() for _ in range(6)] == [["a"], ["b"], ["c"], ["a"], ["b"], ["a"]]

    run(story)


class FakeSocket:
    """A socket whose bytes come as far as its protocol reads."""

    def __init__(self) -> None:
        self.reads = True
        self.closed = False
        self.aborted = False
        self.protocol: Any = None

    def get_protocol(self) -> Any:
        return self.protocol

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = self.aborted = True

    def arrive(self, data: bytes) -> bytes:
        """Give what the protocol reads; return the rest."""
        while data and self.reads:
            place = self.protocol.get_buffer(-1)
            size = min(len(place), len(data))
            assert size
            place[:size] = data[:size]
            self.protocol.buffer_updated(size)
            data = data[size:]
        return data


class FakeTls:
    """TLS that collects what it gets."""

    def __init__(self, fails: bool = False) -> None:
        self.got = b""
        self.ended = False
        self.lost = False
        self._place = bytearray(1000)
        self._fails = fails

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._place)

    def buffer_updated(self, size: int) -> None:
        if self._fails:
            raise ValueError("no TLS")
        self.got += self._place[:size]

    def eof_received(self) -> None:
        self.ended = True

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True


class FakeClient:
    """A client whose TLS begins at once, behind a pacer."""

    def __init__(self, tls: FakeTls) -> None:
        self.steps, self.socket, self.tls = Steps(), FakeSocket(), tls
        self.proved = False
        self.input = PacedInput("a", self.steps.pacer, lambda: self.proved)
        self.input._connected = True
        self.input.connection_made(self.socket)  # type: ignore[arg-type]
        self.socket.set_protocol(self.input)

    def begin_tls(self) -> None:
        """Do as `loop.start_tls` does."""
        self.socket.set_protocol(self.tls)
        self.input._step_between()
        self.socket.resume_reading()


def test_bytes_wait_in_order_and_the_rest_of_them_unread() -> None:
    async def story() -> None:
        client = FakeClient(FakeTls())
        sent = bytes(range(256)) * 100
        rest = client.socket.arrive(sent)
        assert len(rest) == len(sent) - READ_BYTES_MAX
        client.steps.arrive("b", 2.0)
        client.begin_tls()
        rest = client.socket.arrive(rest)
        assert len(rest) == len(sent) - 2 * READ_BYTES_MAX
        assert not client.socket.reads
        while rest:
            client.steps.arrive("b", 2.0)
            await asyncio.sleep(0)
            rest = client.socket.arrive(rest)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert client.tls.got == sent
        assert client.socket.reads

    run(story)


def test_the_input_of_a_proved_client_steps_aside() -> None:
    async def story() -> None:
        client = FakeClient(FakeTls())
        client.begin_tls()
        await asyncio.sleep(0)
        client.steps.arrive("b", 2.0)
        client.socket.arrive(b"unproved")
        assert client.tls.got == b""
        await asyncio.sleep(0)
        assert client.tls.got == b"unproved"
        client.steps.arrive("b", 2.0)
        client.proved = True
        client.socket.arrive(b", proved")
        assert client.tls.got == b"unproved, proved"
        assert client.socket.protocol is client.tls

    run(story)


def test_tls_learns_that_its_client_has_left() -> None:
    async def story() -> None:
        client = FakeClient(FakeTls())
        assert client.input.eof_received() is None
        client.input.connection_lost(None)
        client.begin_tls()
        await asyncio.sleep(0)
        client.steps.arrive("b", 2.0)
        client.socket.arrive(b"last words")
        client.input.eof_received()
        assert (client.tls.got, client.tls.ended) == (b"last words", True)
        client.input.connection_lost(None)
        assert client.tls.lost
        await asyncio.sleep(0)
        assert client.tls.got == b"last words"

    run(story)


def test_tls_that_raises_ends_its_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        client = FakeClient(FakeTls(fails=True))
        client.begin_tls()
        await asyncio.sleep(0)
        client.steps.arrive("b", 2.0)
        client.socket.arrive(b"bytes")
        client.steps.arrive("c", 1.0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert client.socket.aborted
        assert client.steps.ran == ["b", "c"]
        assert "a connection broke off client=a" in caplog.text

    run(story)


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_users_log_in_beside_clients_that_stall(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    store = AUTHORITY.issue("broker", "127.0.0.1").write(tmp_path / "broker.pem")

    async def story(secured: Secured) -> None:
        at = secured.at("SASL_SSL")
        context = ssl.create_default_context(cadata=AUTHORITY.pem)
        stalled = []
        for _ in range(STALLED):
            _, writer = await asyncio.open_connection(at.host, at.port)
            writer.write(b"\x16\x03\x01\x02\x00\x01")  # the start of a handshake
            stalled.append(writer)
        peers = await asyncio.gather(*(Peer.connect(at, context) for _ in range(8)))
        for peer in peers:
            assert (await peer.log_in(ALICE))[0] is ErrorCode.none
            await peer.ask(metadata())
        assert secured.principals == ["User:alice"] * 8
        for writer in (*stalled, *(peer.writer for peer in peers)):
            writer.close()

    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "ssl.keystore.location": str(store),
    }
    serve(story, settings, loop_factory=loop_factory)
