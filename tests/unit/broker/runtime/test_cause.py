"""Causes of log lines: requests and metadata, kept by tasks."""

from __future__ import annotations

import asyncio
import logging

from sparklog.broker.runtime.cause import (
    CauseFilter,
    MetadataCause,
    RequestCause,
    caused_by,
    current_cause,
    set_cause,
)
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.frames import RequestHeader

HOSTILE = "a\n2026-01-01 ERROR forged\x1b[2J"


def cause_field() -> str:
    """Return the field that a line of this task would have."""
    line = logging.makeLogRecord({})
    assert CauseFilter().filter(line)
    return str(line.__dict__["cause"])


def test_tasks_keep_the_cause_that_they_started_with() -> None:
    async def request(header: RequestHeader) -> list[str]:
        set_cause(RequestCause(header, "10.0.0.1"))
        own = cause_field()
        with caused_by(MetadataCause(7)):
            later = asyncio.get_running_loop().create_task(field())
        return [own, await later, cause_field()]

    async def field() -> str:
        return cause_field()

    async def both() -> tuple[list[str], str]:
        header = RequestHeader(Api.CREATE_TOPICS, 7, 3, "admin")
        return await asyncio.create_task(request(header)), cause_field()

    lines, outside = asyncio.run(both())
    own = " cause=[CREATE_TOPICS id=3 client='admin'@10.0.0.1]"
    assert lines == [own, " cause=[metadata end_offset=7]", own]
    assert outside == ""
    assert current_cause() is None


def test_a_client_id_cannot_forge_a_line() -> None:
    text = str(RequestCause(RequestHeader(Api.METADATA, 12, 1, HOSTILE), "::1"))
    assert text.isprintable()
    assert "forged" in text
