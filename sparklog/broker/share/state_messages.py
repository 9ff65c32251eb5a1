"""Operations on share groups' stored states, as a coordinator runs them and as messages have them.

A request is about one group. Its partitions are by topic, and the response has a result for each.
Source: Kafka's `InitializeShareGroupStateRequest.json` and the four messages beside it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.coordinator.share_states import ShareStateCoordinator
from sparklog.coordinator.share.delivery_state import (
    NO_COUNT,
    DeliveryState,
    SharePartitionKey,
    ShareState,
    ShareStateUpdate,
    StateBatch,
)
from sparklog.coordinator.share.errors import FencedStateEpoch
from sparklog.coordinator.share.state_shard import UNINITIALIZED
from sparklog.core.errors import (
    ClusterAuthorizationFailed,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    Fenced,
    InvalidRequest,
    NotCoordinator,
    RecordTooLarge,
    SparklogError,
)
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request, build_request_part

LEADER_UNKNOWN: Final = -1
_ERRORS: Final = {
    error.kafka_code: error
    for error in (
        ClusterAuthorizationFailed,
        CoordinatorLoading,
        Fenced,
        FencedStateEpoch,
        InvalidRequest,
        NotCoordinator,
        RecordTooLarge,
    )
}
"""Errors of a coordinator by code. Every other code counts as one after which brokers retry."""

Outcome = ShareState | SparklogError | None
"""The result of an operation on one state."""


class StateOperation(ABC):
    """One of the five operations. It is for one state; messages take several of one group."""

    api: ClassVar[Api]
    version: ClassVar[int]
    topic_structure: ClassVar[str]
    absent: ClassVar[ShareState | None] = None
    """The result if `__share_group_state` does not exist."""

    def __init__(self, key: SharePartitionKey) -> None:
        """Work on the state of `key`."""
        self.key = key

    @abstractmethod
    async def run(self, coordinator: ShareStateCoordinator) -> ShareState | None:
        """Run it at the coordinator of this broker.

        Raises:
            SparklogError: see `ShareStateCoordinator`.
        """

    def fields(self) -> dict[str, Any]:
        """Return the fields of the partition in a request beside its number."""
        return {}

    def result(self, part: Any) -> ShareState | None:
        """Return the result of a partition in a response without an error."""
        return None


class InitializeState(StateOperation):
    """Begins a state epoch."""

    api = Api.INITIALIZE_SHARE_GROUP_STATE
    version = 0
    topic_structure = "InitializeStateData"

    def __init__(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        """Begin `state_epoch` at `start_offset`."""
        super().__init__(key)
        self._state_epoch = state_epoch
        self._start_offset = start_offset

    async def run(self, coordinator: ShareStateCoordinator) -> None:
        """See `ShareStateShard.initialize`."""
        await coordinator.initialize(self.key, self._state_epoch, self._start_offset)

    def fields(self) -> dict[str, Any]:
        """Return the epoch and the offset."""
        return {"state_epoch": self._state_epoch, "start_offset": self._start_offset}


class ReadState(StateOperation):
    """Reads a state for the partition's new leader."""

    api = Api.READ_SHARE_GROUP_STATE
    version = 0
    topic_structure = "ReadStateData"
    absent = UNINITIALIZED

    def __init__(self, key: SharePartitionKey, leader_epoch: int) -> None:
        """Read for the leader of an epoch."""
        super().__init__(key)
        self._leader_epoch = leader_epoch

    async def run(self, coordinator: ShareStateCoordinator) -> ShareState:
        """See `ShareStateShard.read`."""
        return await coordinator.read(self.key, self._leader_epoch)

    def fields(self) -> dict[str, Any]:
        """Return the leader epoch."""
        return {"leader_epoch": self._leader_epoch}

    def result(self, part: Any) -> ShareState:
        """Return the state; the message lacks the number of finished records."""
        if int(part.state_epoch) == 0 and not part.state_batches and int(part.start_offset) < 0:
            return UNINITIALIZED
        batches = tuple(
            StateBatch(
                int(one.first_offset),
                int(one.last_offset),
                DeliveryState(int(one.delivery_state)),
                int(one.delivery_count),
            )
            for one in part.state_batches
        )
        return ShareState(
            int(part.state_epoch), int(part.start_offset), batches, self._leader_epoch
        )


class WriteState(StateOperation):
    """Changes a state."""

    api = Api.WRITE_SHARE_GROUP_STATE
    version = 1
    topic_structure = "WriteStateData"

    def __init__(self, update: ShareStateUpdate) -> None:
        """Write `update`."""
        super().__init__(update.key)
        self._update = update

    async def run(self, coordinator: ShareStateCoordinator) -> None:
        """See `ShareStateShard.write`."""
        await coordinator.write(self._update)

    def fields(self) -> dict[str, Any]:
        """Return the update."""
        update = self._update
        return {
            "state_epoch": update.state_epoch,
            "leader_epoch": update.leader_epoch,
            "start_offset": update.start_offset,
            "delivery_complete_count": update.delivery_complete_count,
            "state_batches": tuple(
                build_request_part(
                    self.api,
                    self.version,
                    "StateBatch",
                    first_offset=batch.first_offset,
                    last_offset=batch.last_offset,
                    delivery_state=int(batch.state),
                    delivery_count=batch.delivery_count,
                )
                for batch in update.batches
            ),
        }


class DeleteState(StateOperation):
    """Deletes a state."""

    api = Api.DELETE_SHARE_GROUP_STATE
    version = 0
    topic_structure = "DeleteStateData"

    async def run(self, coordinator: ShareStateCoordinator) -> None:
        """See `ShareStateShard.delete`."""
        await coordinator.delete(self.key)


class SummarizeState(StateOperation):
    """Reads the start offset of a state, and the number of finished records."""

    api = Api.READ_SHARE_GROUP_STATE_SUMMARY
    version = 1
    topic_structure = "ReadStateSummaryData"
    absent = UNINITIALIZED

    async def run(self, coordinator: ShareStateCoordinator) -> ShareState:
        """See `ShareStateShard.summary`; without batches, as messages have none."""
        state = await coordinator.summary(self.key)
        return ShareState(
            state.state_epoch,
            state.start_offset,
            (),
            state.leader_epoch,
            state.delivery_complete_count,
        )

    def fields(self) -> dict[str, Any]:
        """Return the leader epoch, which coordinators ignore."""
        return {"leader_epoch": LEADER_UNKNOWN}

    def result(self, part: Any) -> ShareState:
        """Return the state without batches."""
        return ShareState(
            int(part.state_epoch),
            int(part.start_offset),
            (),
            int(part.leader_epoch),
            int(getattr(part, "delivery_complete_count", NO_COUNT)),
        )


def request_of(operations: Mapping[SharePartitionKey, StateOperation]) -> Any:
    """Return the request for operations of one kind on states of one group."""
    first = next(iter(operations.values()))
    by_topic: dict[Any, list[Any]] = defaultdict(list)
    for key, operation in operations.items():
        part = build_request_part(
            first.api,
            first.version,
            "PartitionData",
            partition=key.partition,
            **operation.fields(),
        )
        by_topic[key.topic_id].append(part)
    return build_request(
        first.api,
        first.version,
        group_id=first.key.group_id,
        topics=tuple(
            build_request_part(
                first.api,
                first.version,
                first.topic_structure,
                topic_id=topic_id,
                partitions=tuple(parts),
            )
            for topic_id, parts in by_topic.items()
        ),
    )


def outcomes_of(
    operations: Mapping[SharePartitionKey, StateOperation], response: Any
) -> dict[SharePartitionKey, Outcome]:
    """Return the outcome of each operation from the response to their request."""
    group_id = next(iter(operations)).group_id
    parts = {
        SharePartitionKey(group_id, topic.topic_id, int(part.partition)): part
        for topic in response.results
        for part in topic.partitions
    }
    return {key: _outcome(operation, parts.get(key)) for key, operation in operations.items()}


def _outcome(operation: StateOperation, part: Any) -> Outcome:
    if part is None:
        return CoordinatorNotAvailable(f"the response lacks the state. key={operation.key}")
    if part.error_code is not ErrorCode.none:
        kind = _ERRORS.get(int(part.error_code), CoordinatorNotAvailable)
        name = part.error_code.name
        return kind(f"{part.error_message or name} code={name} key={operation.key}")
    try:
        return operation.result(part)
    except ValueError as error:
        return CoordinatorNotAvailable(f"the response is no state: {error} key={operation.key}")
