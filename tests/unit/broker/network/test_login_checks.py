"""Checks of logins: their share of time, turns between addresses, and clients that go away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sparklog.broker.network.fair_queue import ITEMS_MAX, OF_ADDRESS_MAX
from sparklog.broker.network.login_checks import (
    BURST_S,
    FAILED_SHARE,
    CheckedClient,
    LoginChecks,
    NotChecked,
)
from sparklog.broker.runtime.environment import spawn
from sparklog.security.sasl.mechanism import Authenticated, Check, SaslFailure, Step
from sparklog.security.sasl.remembered_checks import WRONG_S
from sparklog.testing.virtual_loop import new_virtual_loop

COST_S = 0.002
RIGHT = Step(b"", Authenticated("alice"))


class Derivations:
    """Makes checks that take `COST_S` of virtual time, and counts those that run."""

    def __init__(self) -> None:
        self.count = 0
        self.running = 0
        self.most = 0
        self.spent_s = 0.0
        self.guesses: list[asyncio.Task[str]] = []
        self.checks = LoginChecks(self.compute, lambda: self.spent_s)  # type: ignore[arg-type]

    async def compute(self, function: Callable[..., object], *arguments: object) -> object:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(COST_S)
        self.running -= 1
        return function(*arguments)

    def right(self, key: bytes = b"", step: Step = RIGHT) -> Check:
        def run() -> Step:
            self._derive()
            return step

        return Check(run, key)

    def wrong(self, key: bytes = b"") -> Check:
        def run() -> Step:
            self._derive()
            raise SaslFailure("wrong password", client_message="no")

        return Check(run, key)

    def _derive(self) -> None:
        self.count += 1
        self.spent_s += COST_S

    async def fails(self, host: str, check: Check) -> str:
        """Return the reason for which a check of an address fails."""
        with pytest.raises((SaslFailure, NotChecked)) as failed:
            await self.checks.run(CheckedClient(host), check)
        return str(failed.value)

    async def guess(self, host: str, rate_per_s: int, seconds: float) -> None:
        """Try a wrong password at an even rate, each try another one, and wait for no result."""
        for number in range(round(rate_per_s * seconds)):
            self.guesses.append(spawn(self.fails(host, self.wrong(b"%d" % number))))
            await asyncio.sleep(1 / rate_per_s)


def run(story: Callable[[Derivations], Coroutine[Any, Any, None]]) -> Derivations:
    """Run a story in virtual time."""
    derivations = Derivations()

    async def whole() -> None:
        await story(derivations)
        await asyncio.gather(*derivations.guesses)

    new_virtual_loop().run_until_complete(whole())
    assert derivations.most <= 1
    return derivations


def now_s() -> float:
    return asyncio.get_running_loop().time()


def test_wrong_logins_take_their_share_and_a_right_one_soon_its_turn() -> None:
    async def story(derived: Derivations) -> None:
        guesses = spawn(derived.guess("mallory", 1000, 10))
        await asyncio.sleep(5)
        began_s = now_s()
        assert await derived.checks.run(CheckedClient("alice"), derived.right()) == RIGHT
        assert now_s() - began_s <= COST_S / FAILED_SHARE + 3 * COST_S
        await guesses
        burst_s = FAILED_SHARE * BURST_S
        assert derived.spent_s <= 10 * FAILED_SHARE + burst_s + 2 * COST_S
        assert derived.spent_s >= 10 * FAILED_SHARE

    run(story)


def test_a_herd_of_right_logins_waits_for_its_own_checks_only() -> None:
    herd = 500

    async def story(derived: Derivations) -> None:
        guesses = spawn(derived.guess("mallory", 1000, 10))
        await asyncio.sleep(2)
        began_s = now_s()
        hosts = [CheckedClient(f"host{number}") for number in range(herd)]
        steps = await asyncio.gather(*(derived.checks.run(one, derived.right()) for one in hosts))
        assert steps == [RIGHT] * herd
        assert now_s() - began_s <= herd * COST_S + 3 * COST_S / FAILED_SHARE
        await guesses

    run(story)


def test_steps_before_the_last_are_given_back_at_the_login() -> None:
    async def story(derived: Derivations) -> None:
        began_s = now_s()
        for number in range(500):
            client = CheckedClient(f"host{number}")
            await derived.checks.run(client, derived.right(step=Step(b"challenge")))
            derived.checks.logged_in(client)
        assert now_s() - began_s <= 501 * COST_S
        for _ in range(200):
            await derived.checks.run(CheckedClient("x"), derived.right(step=Step(b"challenge")))
        assert now_s() - began_s >= 500 * COST_S + 100 * COST_S / FAILED_SHARE

    run(story)


def test_a_remembered_result_is_not_derived_again() -> None:
    async def story(derived: Derivations) -> None:
        reasons = [await derived.fails("10.0.0.7", derived.wrong(b"guess")) for _ in range(100)]
        assert reasons == ["wrong password"] * 100
        assert derived.count == 1
        await derived.fails("10.0.0.8", derived.wrong(b"guess"))
        assert derived.count == 2
        await asyncio.sleep(WRONG_S + 0.01)
        await derived.fails("10.0.0.7", derived.wrong(b"guess"))
        assert derived.count == 3
        for number in range(100):
            client = CheckedClient(f"10.0.1.{number}")
            assert await derived.checks.run(client, derived.right(b"right")) == RIGHT
        assert derived.count == 4
        # A remembered password passes guesses of its own address.
        guesses = spawn(derived.guess("10.0.0.7", 1000, 5))
        await asyncio.sleep(2)
        began_s = now_s()
        assert await derived.checks.run(CheckedClient("10.0.0.7"), derived.right(b"right")) == RIGHT
        assert now_s() == began_s
        await guesses

    run(story)


def test_few_checks_of_an_address_wait_and_others_have_a_place() -> None:
    async def story(derived: Derivations) -> None:
        tries = 2 * OF_ADDRESS_MAX
        many = [spawn(derived.fails("mallory", derived.wrong())) for _ in range(tries)]
        hosts = 2 * ITEMS_MAX
        each = [spawn(derived.fails(f"host{n}", derived.wrong())) for n in range(hosts)]
        reasons = await asyncio.gather(*many)
        not_checked = sum(reason.startswith("too many") for reason in reasons)
        assert not_checked == tries - OF_ADDRESS_MAX - 1
        assert sum(reason.startswith("too many") for reason in await asyncio.gather(*each)) == (
            hosts - ITEMS_MAX + 1
        )

    run(story)


def test_clients_that_leave_give_their_turns_on_and_pay_for_checks() -> None:
    async def story(derived: Derivations) -> None:
        clients = [CheckedClient("a") for _ in range(6)]
        tasks = [spawn(derived.checks.run(one, derived.right())) for one in clients]
        await asyncio.sleep(0)
        tasks[0].cancel()  # its check runs, and ends
        tasks[1].cancel()
        derived.checks.leave(clients[2])
        with pytest.raises(NotChecked, match="left"):
            await tasks[2]
        await asyncio.sleep(COST_S)
        derived.checks.leave(clients[3])  # its turn has come: too late
        assert await tasks[3] == RIGHT
        tasks[4].cancel()
        assert await tasks[5] == RIGHT
        assert derived.count <= 4
        assert await derived.checks.run(CheckedClient("b"), derived.right()) == RIGHT

    run(story)
