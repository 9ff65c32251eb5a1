"""States of share groups, as their group coordinator orders them from another coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from uuid import UUID

import pytest

from sparklog.broker.coordinator.share_groups import Errors, ShareGroupStates
from sparklog.coordinator.share.delivery_state import SharePartitionKey
from sparklog.coordinator.share.messages import InitializeShareState, ShareStatesToDelete
from sparklog.core.errors import CoordinatorNotAvailable, SparklogError

TOPIC = UUID(int=7)
ERRAND = InitializeShareState("g", 3, ((TOPIC, 0), (TOPIC, 1), (TOPIC, 2)))


class ToyStates:
    """States that cannot be changed for some partitions."""

    def __init__(self, *broken: int) -> None:
        self.broken = broken
        self.initialized: dict[SharePartitionKey, tuple[int, int]] = {}
        self.deleted: list[SharePartitionKey] = []

    async def initialize(self, states: Mapping[SharePartitionKey, tuple[int, int]]) -> Errors:
        self.initialized |= states
        return {key: self.error_of(key) for key in states}

    async def delete(self, keys: Collection[SharePartitionKey]) -> Errors:
        self.deleted += keys
        return {key: self.error_of(key) for key in keys}

    def error_of(self, key: SharePartitionKey) -> SparklogError | None:
        return CoordinatorNotAvailable("not now") if key.partition in self.broken else None


def test_states_begin_in_the_groups_epoch_without_an_offset() -> None:
    toy = ToyStates()
    states = ShareGroupStates(toy.initialize, toy.delete)
    assert asyncio.run(states.run(ERRAND)) == ERRAND
    assert toy.initialized == {SharePartitionKey("g", TOPIC, n): (3, -1) for n in range(3)}


def test_states_that_are_not_initialized_are_left_out_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    toy = ToyStates(1)
    done = asyncio.run(ShareGroupStates(toy.initialize, toy.delete).run(ERRAND))
    assert done.parts == ((TOPIC, 0), (TOPIC, 2))
    (line,) = caplog.messages
    assert "group=g partitions=1 of=3" in line


def test_deletion_fails_unless_all_states_are_deleted() -> None:
    keys = ERRAND.state_keys()
    toy = ToyStates()
    asyncio.run(ShareGroupStates(toy.initialize, toy.delete).forget(ShareStatesToDelete(keys)))
    assert toy.deleted == list(keys)
    toy = ToyStates(2)
    with pytest.raises(CoordinatorNotAvailable):
        asyncio.run(ShareGroupStates(toy.initialize, toy.delete).forget(ShareStatesToDelete(keys)))
