"""Failed logins for the audit topic: one event for each source and while, with a count."""

from __future__ import annotations

import asyncio
import json

from sparklog.broker.runtime.audit_buffer import encode_event
from sparklog.broker.runtime.failed_logins import (
    GATHER_S,
    OTHER_HOSTS,
    REASON_CHARS_MAX,
    SOURCES_MAX,
    FailedLoginEvent,
    FailedLogins,
)
from tests.harness.broker_world import World


def test_failures_of_a_source_become_one_event_with_a_count() -> None:
    world, events = World(), list[FailedLoginEvent]()

    async def story() -> None:
        clock = world.environment().clock
        failed = FailedLogins(clock, events.append)
        first_ms = clock.now_ms()
        for number in range(1000):
            failed.add("LOGIN", "PLAIN", f"wrong password. user='{number}'", "10.0.0.7")
        failed.add("LOGIN", "PLAIN", "unknown user. user='x'", "10.0.0.7")
        failed.add("LOGIN", "PLAIN", "wrong password. user='x'", "10.0.0.8")
        await asyncio.sleep(1)
        failed.add("LOGIN", "PLAIN", "wrong password. user='last'", "10.0.0.7")
        assert not events
        await asyncio.sleep(GATHER_S)
        assert [one.failures for one in events] == [1001, 1, 1]
        key, value = encode_event(events[0], 3)
        assert key == b"User:ANONYMOUS"
        assert json.loads(value) == {
            "version": 1,
            "event": "FAILED_LOGIN",
            "time_ms": first_ms,
            "last_time_ms": first_ms + 1000,
            "broker_id": 3,
            "principal": "User:ANONYMOUS",
            "host": "10.0.0.7",
            "listener": "LOGIN",
            "mechanism": "PLAIN",
            "failures": 1001,
            "allowed": False,
            "reason": "wrong password. user='last'",
        }
        await asyncio.sleep(2 * GATHER_S)
        assert len(events) == 3

    world.run(story())


def test_sources_beyond_the_limit_share_an_event() -> None:
    world, events = World(), list[FailedLoginEvent]()

    async def story() -> None:
        failed = FailedLogins(world.environment().clock, events.append)
        for number in range(3 * SOURCES_MAX):
            failed.add("LOGIN", "TLS", "x" * 5000, f"fd00::{number:x}")
        assert len(failed) == SOURCES_MAX + 1
        failed.flush()
        assert events[-1].host == OTHER_HOSTS
        assert events[-1].failures == 2 * SOURCES_MAX
        assert {len(one.reason) for one in events} == {REASON_CHARS_MAX}

    world.run(story())
