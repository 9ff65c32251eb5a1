"""The lines that a broker logs about groups."""

from __future__ import annotations

import logging

import pytest

from tests.unit.broker.handlers.test_classic_groups import NEWEST, GroupClient, tell


def test_member_names_cannot_forge_log_lines_of_groups(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "sparklog.broker.coordinator.runtime")

    async def story(client: GroupClient) -> None:
        client.group = "a\nb"
        member_id, _ = await client.member(NEWEST)
        await client.leave(member_id, NEWEST)
        told = "Preparing to rebalance group a\\nb in state"
        joined = f"(reason: adding new member {member_id})"
        left = f"(reason: removing {member_id} on LeaveGroup)"
        assert f"{told} Empty with old generation 0 {joined}" in caplog.messages
        assert f"{told} Stable with old generation 1 {left}" in caplog.messages

    tell(story)
