"""Lines about ended connections: the first of a kind at once, then counts, and no more kinds."""

from __future__ import annotations

import asyncio
import logging

import pytest

from sparklog.broker.network.closing_log import KINDS_MAX, ClosingLog
from sparklog.broker.runtime.log_limiter import EVERY_S, kind_of
from tests.harness.broker_world import World

logger = logging.getLogger(__name__)


def test_each_kind_has_a_line_at_once_and_one_with_a_count_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        closings = ClosingLog(logger)
        for number in range(1000):
            closings.add("guess", f"wrong password. user={number}", f"10.0.0.{number % 3}")
        closings.add("tls", "no certificate", "10.0.0.9")
        assert caplog.messages == ["wrong password. user=0", "no certificate"]
        await asyncio.sleep(EVERY_S + 1)
        assert caplog.messages[2:] == ["wrong password. user=999 more=999 clients=3"]
        closings.add("guess", "wrong password. user=x", "10.0.0.1")
        await asyncio.sleep(EVERY_S)
        assert caplog.messages[3:] == ["wrong password. user=x more=1 clients=1"]
        await asyncio.sleep(2 * EVERY_S)
        assert len(closings) == 0

    World().run(story())


def test_kinds_beyond_the_limit_share_their_lines(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        closings = ClosingLog(logger)
        for number in range(10 * KINDS_MAX):
            closings.add(f"kind{number}", f"fault {number}", "10.0.0.1")
        assert len(closings) == KINDS_MAX + 1
        assert len(caplog.messages) == KINDS_MAX + 1
        closings.close()
        assert caplog.messages[KINDS_MAX + 1 :] == [f"fault 999 more={9 * KINDS_MAX - 1} clients=1"]

    World().run(story())


def test_clients_of_a_kind_are_counted_up_to_a_limit(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        closings = ClosingLog(logger)
        for number in range(5000):
            closings.add("guess", "wrong password", f"fd00::{number:x}", logging.ERROR)
        closings.close()
        assert caplog.messages[1:] == ["wrong password more=4999 clients=1000+"]
        assert {record.levelno for record in caplog.records} == {logging.ERROR}

    World().run(story())


def test_kind_of_a_message_ends_before_its_first_value() -> None:
    assert kind_of("wrong password. user='a' mechanism=PLAIN") == "wrong password"
    assert kind_of("a request is malformed: text of 5 bytes api=X") == "a request is malformed"
    assert kind_of("a certificate has expired") == "a certificate has expired"
