"""Checks of logins: one at a time, in turns between addresses, also when clients go away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from sparklog.broker.network.login_checks import LoginChecks
from sparklog.security.sasl.mechanism import SaslFailure


class SlowCompute:
    """Runs work after a pause, and records how much runs at a time."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0

    async def __call__(self, function: Callable[..., object], *arguments: object) -> object:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        return function(*arguments)


def test_addresses_take_turns_and_one_check_runs_at_a_time() -> None:
    async def story() -> None:
        compute, order = SlowCompute(), list[str]()
        checks = LoginChecks(compute)  # type: ignore[arg-type]
        many = [checks.run("mallory", lambda: order.append("m")) for _ in range(20)]
        await asyncio.gather(*many, checks.run("alice", lambda: order.append("a")))
        assert compute.most == 1
        assert order.index("a") == 2
        assert order.count("m") == 20

    asyncio.run(story())


def test_a_check_that_is_cancelled_or_fails_gives_its_turn_on() -> None:
    def fail() -> None:
        raise SaslFailure("wrong password")

    async def story() -> None:
        checks = LoginChecks(SlowCompute())  # type: ignore[arg-type]
        first = asyncio.create_task(checks.run("a", fail))
        others = [asyncio.create_task(checks.run("a", lambda: 1)) for _ in range(3)]
        await asyncio.sleep(0)
        others[1].cancel()
        with pytest.raises(SaslFailure, match="wrong password"):
            await first
        others[0].cancel()  # its turn has come
        assert await others[2] == 1
        assert await checks.run("b", lambda: 2) == 2

    asyncio.run(story())
