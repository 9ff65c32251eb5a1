"""The simulated network: order, cuts, resets, pauses and deaths."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sparklog.broker.runtime.environment import Address, Unreachable
from sparklog.core.entropy import SeededEntropy
from sparklog.testing.sim.network import NetworkFaults, SimNet, SimNetwork
from sparklog.testing.virtual_loop import Process, new_virtual_loop
from sparklog.testing.virtual_world import Trace

SERVER = Address("server", 9092)


class _Room:
    """A server that remembers what it was asked, and a client."""

    def __init__(self, seed: int = 1) -> None:
        self.loop = new_virtual_loop()
        self.trace = Trace(self.loop)
        self.net = SimNet(self.loop, SeededEntropy(seed), self.trace)
        self.asked: list[Any] = []
        self.server = self.start_server()
        self.client = Process(self.loop, "client")
        self.network = SimNetwork(self.net, "client")

    def start_server(self) -> Process:
        process = Process(self.loop, "server")
        self.net.listen(SERVER, process, self._serve)
        return process

    async def _serve(self, request: Any, context: object) -> Any:
        self.asked.append(request)
        if isinstance(request, float):
            await asyncio.sleep(request)
        if request == "break":
            raise ValueError(request)
        return f"re: {request}"

    def call(self, request: Any, timeout_s: float = 5.0, purpose: str = "") -> asyncio.Task[Any]:
        return self.client.spawn(
            self.network.call(SERVER, request, timeout_s=timeout_s, purpose=purpose)
        )

    def at(self, when_s: float, action: Any, *args: Any) -> None:
        self.loop.call_at(when_s, action, *args)

    def result(self, call: asyncio.Task[Any]) -> Any:
        return self.loop.run_until_complete(call)


@pytest.fixture(params=[True, False], ids=["one at a time", "pipelined"])
def room(request: pytest.FixtureRequest) -> _Room:
    room = _Room()
    room.net.one_at_a_time = request.param
    return room


def test_calls_of_one_connection_are_served_and_answered_in_order(room: _Room) -> None:
    answered: list[Any] = []
    room.net.faults = NetworkFaults(slow=0.5)
    calls = [room.call(request) for request in (0.5, "a", 0.1, "b")]
    for call in calls:
        call.add_done_callback(lambda call: answered.append(call.result()))
    room.loop.run_until_complete(asyncio.gather(*calls))
    room.loop.run_until_complete(asyncio.sleep(0))
    assert room.asked == [0.5, "a", 0.1, "b"]
    assert answered == ["re: 0.5", "re: a", "re: 0.1", "re: b"]


def test_long_poll_delays_no_connection_of_another_purpose(room: _Room) -> None:
    room.call(4.0, purpose="poll")
    assert room.result(room.call("a")) == "re: a"
    assert room.loop.time() < 0.1


def test_address_without_a_listener_refuses(room: _Room) -> None:
    room.server.kill()
    with pytest.raises(Unreachable):
        room.result(room.call("a"))
    assert room.loop.time() < 0.1


def test_a_peer_that_is_killed_while_it_serves_is_unreachable_at_once(room: _Room) -> None:
    room.at(1.0, room.server.kill)
    with pytest.raises(Unreachable):
        room.result(room.call(3.0))
    assert room.loop.time() < 1.1


def test_a_restarted_peer_serves_new_connections_and_resets_old_ones(room: _Room) -> None:
    room.result(room.call("a"))
    room.server.kill()
    room.start_server()
    with pytest.raises(Unreachable):
        room.result(room.call("b"))
    assert room.result(room.call("c")) == "re: c"


def test_paused_peer_is_silent_and_serves_its_requests_later(room: _Room) -> None:
    room.server.pause()
    room.at(8.0, room.server.resume)
    with pytest.raises(TimeoutError):
        room.result(room.call("a"))
    assert room.asked == []
    room.loop.run_until_complete(asyncio.sleep(4.0))
    assert room.asked == ["a"]


def test_cut_is_silent_and_messages_arrive_after_healing(room: _Room) -> None:
    room.net.cut("client", "server")
    room.at(8.0, room.net.heal)
    with pytest.raises(TimeoutError):
        room.result(room.call("a", timeout_s=1.0))
    assert room.loop.time() == 1.0
    room.loop.run_until_complete(asyncio.sleep(8.0))
    assert room.asked == ["a"]
    assert room.result(room.call("b")) == "re: b"


def test_a_cut_of_the_way_back_lets_requests_through(room: _Room) -> None:
    room.net.cut("server", "client")
    with pytest.raises(TimeoutError):
        room.result(room.call("a", timeout_s=1.0))
    assert room.asked == ["a"]


def test_a_patient_caller_gets_its_answer_after_healing(room: _Room) -> None:
    room.net.cut("client", "server")
    room.at(2.0, room.net.heal)
    assert room.result(room.call("a")) == "re: a"
    assert room.loop.time() > 2.0


def test_time_out_closes_the_connection_for_all_its_waiters(room: _Room) -> None:
    room.server.pause()
    first, second = room.call("a", timeout_s=1.0), room.call("b", timeout_s=4.0)
    with pytest.raises(TimeoutError):
        room.result(first)
    with pytest.raises(Unreachable):
        room.result(second)
    assert room.loop.time() == 1.0


def test_a_server_that_breaks_drops_the_connection_and_is_noted(room: _Room) -> None:
    with pytest.raises(Unreachable):
        room.result(room.call("break"))
    assert "ValueError" in room.net.errors[0]


def test_broken_connection_is_an_error_for_its_caller(room: _Room) -> None:
    room.at(1.0, room.net.break_connections, "server")
    with pytest.raises(Unreachable):
        room.result(room.call(3.0))


def test_messages_after_a_lost_one_on_its_connection_are_lost(room: _Room) -> None:
    room.net.faults = NetworkFaults(reset=0.2)
    calls = [room.call(number) for number in range(20)]
    room.loop.run_until_complete(asyncio.gather(*calls, return_exceptions=True))
    assert len(room.asked) < 20
    assert room.asked == list(range(len(room.asked)))


def test_close_drops_waiting_messages(room: _Room) -> None:
    call = room.call(3.0)
    room.loop.run_until_complete(asyncio.sleep(1.0))
    room.loop.run_until_complete(room.network.close())
    with pytest.raises(Unreachable):
        room.result(call)


def _story(seed: int) -> str:
    """Return the digest of a stormy minute."""
    room = _Room(seed)
    room.net.faults = NetworkFaults(slow=0.2, reset=0.05)

    async def talk() -> None:
        for n in range(200):
            try:
                await room.network.call(SERVER, n, timeout_s=0.2)
            except (Unreachable, TimeoutError) as error:
                room.trace.note(type(error).__name__)

    room.at(1.0, room.server.pause)
    room.at(2.0, room.server.resume)
    room.loop.run_until_complete(talk())
    return room.trace.digest()


def test_seed_determines_the_trace() -> None:
    assert _story(7) == _story(7)
    assert _story(7) != _story(8)
