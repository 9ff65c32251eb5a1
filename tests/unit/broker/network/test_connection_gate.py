"""The gate of new connections: the rate of guesses, turns, and clients that log in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import pairwise
from math import ceil, log2
from typing import Any

from sparklog.broker.network.connection_gate import (
    AT_ONCE,
    BURST_S,
    CAUTIOUS_PER_S,
    LED_BY_LOGIN,
    PLACE_S,
    UNPROVED_PER_S,
    WAITING_OF_ADDRESS_MAX,
    ConnectionGate,
)
from sparklog.broker.network.server import TOO_MANY_UNPROVED, ServedListener, Server
from sparklog.broker.network.service import FailedLogin
from sparklog.broker.runtime.environment import Address, spawn
from sparklog.testing.virtual_loop import new_virtual_loop
from tests.unit.broker.network.test_server import Client, answer_any, heartbeat, tell

LOGIN_S = 0.1


class Clients:
    """Clients of a gate in virtual time."""

    def __init__(self) -> None:
        self.gate = ConnectionGate()
        self.begun = 0
        self.closed = 0

    async def guess(self, host: str, rate_per_s: int, seconds: float) -> None:
        """Connect at an even rate, and never log in."""

        def begin() -> bool:
            self.begun += 1
            return True

        for _ in range(round(rate_per_s * seconds)):
            self.closed += not self.gate.enter(host, begin)
            await asyncio.sleep(1 / rate_per_s)

    async def log_in(self, host: str) -> float:
        """Connect and log in; return the seconds until the connection began."""
        loop = asyncio.get_running_loop()
        entered_s, begun = loop.time(), loop.create_future()

        def begin() -> bool:
            begun.set_result(None)
            return True

        assert self.gate.enter(host, begin)
        await begun
        waited_s = loop.time() - entered_s
        await asyncio.sleep(LOGIN_S)
        self.gate.proved()
        return waited_s


def run(story: Callable[[Clients], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        await story(Clients())

    new_virtual_loop().run_until_complete(whole())


def test_guesses_pass_at_their_rate_and_another_address_soon() -> None:
    async def story(clients: Clients) -> None:
        guesses = spawn(clients.guess("mallory", 1000, 20))
        await asyncio.sleep(15)
        for _ in range(10):
            assert await clients.log_in("alice") <= 2 / CAUTIOUS_PER_S + 0.002
        await guesses
        # Each login of the ten lets one of the guesses begin, besides the next login.
        most = 20 * CAUTIOUS_PER_S + AT_ONCE + 10 * (LED_BY_LOGIN - 1)
        assert most - 15 <= clients.begun <= most + 1
        assert clients.closed == 20_000 - clients.begun - len(clients.gate)
        assert WAITING_OF_ADDRESS_MAX - 1 <= len(clients.gate) <= WAITING_OF_ADDRESS_MAX

    run(story)


def test_clients_that_log_in_do_not_wait_for_the_rate() -> None:
    async def story(clients: Clients) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await asyncio.gather(*(clients.log_in("gateway") for _ in range(400)))
        # The open connections double until they are as many as may be open without a login.
        doublings = ceil(log2(BURST_S * UNPROVED_PER_S / AT_ONCE))
        rounds = doublings + ceil(400 / (BURST_S * UNPROVED_PER_S))
        assert loop.time() - began_s <= rounds * LOGIN_S + LOGIN_S

    run(story)


def test_logins_do_not_raise_the_rate_of_guesses_beyond_the_bound() -> None:
    async def story(clients: Clients) -> None:
        logins = 0

        async def log_in_often() -> None:
            nonlocal logins
            for _ in range(60):
                await asyncio.gather(*(clients.log_in("mallory") for _ in range(20)))
                logins += 20

        guesses = spawn(clients.guess("mallet", 1000, 20))
        often = spawn(log_in_often())
        await guesses
        assert clients.begun <= (20 + BURST_S) * UNPROVED_PER_S + 1
        assert logins > CAUTIOUS_PER_S * 20
        often.cancel()

    run(story)


def test_a_herd_that_logs_in_beside_guesses_is_quick() -> None:
    async def story(clients: Clients) -> None:
        guesses = spawn(clients.guess("mallory", 1000, 20))
        await asyncio.sleep(10)
        waits_s = await asyncio.gather(*(clients.log_in(f"host{n}") for n in range(500)))
        # By the rate alone it would take 10 s; the places of those that log in come back.
        assert max(waits_s) <= 2.0
        await guesses

    run(story)


def test_others_have_their_turn_between_two_connections() -> None:
    async def story(clients: Clients) -> None:
        burst, waiting = AT_ONCE, 20

        def begin() -> bool:
            clients.begun += 1
            return True

        for _ in range(burst + 1 + waiting):
            assert clients.gate.enter("a", begin)
        assert clients.begun == burst + 1
        for _ in range(waiting):
            clients.gate.proved()
        begun = []
        for _ in range(2 * waiting):
            await asyncio.sleep(0)
            begun.append(clients.begun - burst - 1)
        assert begun[-1] == waiting
        assert all(later - earlier <= 1 for earlier, later in pairwise(begun))

    run(story)


def test_a_costly_handshake_takes_several_places() -> None:
    async def story(clients: Clients) -> None:
        clients.gate = ConnectionGate(handshake_s=lambda: 5 * PLACE_S)
        guesses = spawn(clients.guess("mallory", 1000, 20))
        await asyncio.sleep(15)
        for _ in range(10):
            assert await clients.log_in("alice") <= 2 * 5 / CAUTIOUS_PER_S + 0.002
        await guesses
        most = (20 * CAUTIOUS_PER_S + AT_ONCE) / 5 + 10 * (LED_BY_LOGIN - 1)
        assert most - 15 <= clients.begun <= most + 1

    run(story)


def test_a_client_that_has_left_takes_no_place() -> None:
    async def story(clients: Clients) -> None:
        for _ in range(10_000):
            assert clients.gate.enter("a", lambda: False)
        assert await clients.log_in("b") == 0.0

    run(story)


def test_connections_over_the_rate_of_a_gate_wait_or_are_closed() -> None:
    audited: list[FailedLogin] = []

    async def story(server: Server, _: Address) -> None:
        gate = ConnectionGate(per_s=0.001, burst_s=2000, waiting_of_address_max=2)
        server.audit_failed_login = audited.append
        address = await server.start(Address("127.0.0.1", 0), ServedListener(gate=gate))

        async def begun(number: int) -> Client:
            client = await Client.connect(address)
            client.send(heartbeat(), number)
            return client

        async def waiting(count: int) -> None:
            for _ in range(5000):
                if len(gate) == count:
                    return
                await asyncio.sleep(0.001)
            raise AssertionError(len(gate))

        for number in range(3):
            assert await (await begun(number)).next_id() == number
        patient = await begun(8)
        await waiting(1)
        hasty = await Client.connect(address)
        await waiting(2)
        assert await (await begun(9)).hung_up()
        assert [(one.mechanism, one.host) for one in audited] == [("", "127.0.0.1")]
        assert audited[0].reason == TOO_MANY_UNPROVED
        await hasty.close()
        gate.proved()
        gate.proved()
        assert await patient.next_id() == 8
        assert await (await begun(10)).next_id() == 10  # the one that has left took no place
        late = await begun(11)
        await waiting(1)
        await server.stop()
        assert await late.hung_up()

    tell(answer_any, story)
