"""ShareStateClient: reads and writes share groups' states, on whichever broker has them.

The leader of the key's partition of `__share_group_state` is the coordinator. If that is this
broker, it is called directly. Requests are repeated until `share.coordinator.write.timeout.ms`.
  STATE-CLIENT-1: a write that returns is committed: the next coordinator has it, too
  STATE-CLIENT-2: writes of one key reach the coordinator in the order of the calls. Those that wait
      meanwhile become one write, so a slow storage does not limit how many return at a time
  STATE-CLIENT-3: a write that fails may have happened. The caller drops what it knows, and reads

Source: Kafka's PersisterStateManager and DefaultStatePersister.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar, cast

from sparklog.broker.coordinator.internal_topics import InternalTopic
from sparklog.broker.coordinator.share_states import ShareStateCoordinator
from sparklog.broker.runtime.environment import Address, Environment, TaskScope, Unreachable
from sparklog.broker.runtime.metadata_access import MetadataAccess
from sparklog.broker.share.state_messages import (
    DeleteState,
    InitializeState,
    Outcome,
    ReadState,
    StateOperation,
    SummarizeState,
    WriteState,
    outcomes_of,
    request_of,
)
from sparklog.cluster.metadata.image import Topic
from sparklog.coordinator.internal_topics import SHARE_STATE_TOPIC, partition_for
from sparklog.coordinator.share.delivery_state import (
    NO_COUNT,
    SharePartitionKey,
    ShareState,
    ShareStateUpdate,
)
from sparklog.core.backoff import Backoff
from sparklog.core.config.broker import BrokerConfig
from sparklog.core.errors import CoordinatorNotAvailable, InvalidRequest, SparklogError
from sparklog.protocol.api_keys import Api

RETRY_FIRST_S: Final = 0.02
RETRY_LONGEST_S: Final = 0.3
REQUESTS_AT_ONCE: Final = 4
"""Requests of one kind for one group that a coordinator gets before its first response."""
REQUEST_KEYS_MAX: Final = 1_000
"""States in one request."""
MERGED_BATCHES_MAX: Final = 10_000
"""Batches of the writes that become one, beyond those of the first."""
PURPOSE: Final = "share states"

Result = TypeVar("Result")


@dataclass(slots=True, eq=False)
class _WriteQueue:
    """Writes of one key that wait for the one under way."""

    waiting: list[tuple[ShareStateUpdate, asyncio.Future[None]]] = field(default_factory=list)

    def take(self) -> tuple[ShareStateUpdate, list[asyncio.Future[None]]]:
        """Remove the first writes, and return them as one."""
        first = self.waiting[0][0]
        batches, start_offset, count = first.batches, first.start_offset, 0
        newest = first
        for update, _ in self.waiting:
            if count and (
                update.state_epoch != first.state_epoch
                or update.leader_epoch != first.leader_epoch
                or len(batches) + len(update.batches) > MERGED_BATCHES_MAX
            ):
                break
            if count:
                batches += update.batches
            start_offset = max(start_offset, update.start_offset)
            newest, count = update, count + 1
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        merged = replace(newest, batches=batches, start_offset=start_offset)
        return merged, [answer for _, answer in taken]


@dataclass(slots=True, eq=False)
class _StateQueue:
    """Operations of one kind on one group's states, for one broker."""

    gathered: list[tuple[StateOperation, asyncio.Future[Outcome]]] = field(default_factory=list)
    requests: int = 0

    def take(self) -> list[tuple[StateOperation, asyncio.Future[Outcome]]]:
        """Remove and return the operations of the next request: one for each key."""
        taken: dict[SharePartitionKey, tuple[StateOperation, asyncio.Future[Outcome]]] = {}
        left = []
        for one in self.gathered:
            if one[0].key in taken or len(taken) >= REQUEST_KEYS_MAX:
                left.append(one)
            else:
                taken[one[0].key] = one
        self.gathered = left
        return list(taken.values())


class ShareStateClient:
    """See the module."""

    def __init__(
        self,
        environment: Environment,
        config: BrokerConfig,
        broker_id: int,
        metadata: MetadataAccess,
        tasks: TaskScope,
        coordinator: ShareStateCoordinator,
    ) -> None:
        """Call `coordinator` where it serves the key, else other brokers by the network."""
        self._environment = environment
        self._topic = InternalTopic.of(SHARE_STATE_TOPIC, config)
        self._timeout_s = config.whole("share.coordinator.write.timeout.ms") / 1000
        self._broker_id = broker_id
        self._metadata = metadata
        self._tasks = tasks
        self._coordinator = coordinator
        self._writes: dict[SharePartitionKey, _WriteQueue] = {}
        self._lanes: dict[tuple[int, Api, str], _StateQueue] = {}

    async def initialize(
        self, states: Mapping[SharePartitionKey, tuple[int, int]]
    ) -> dict[SharePartitionKey, SparklogError | None]:
        """Begin a state epoch at a start offset for each key; return each one's error or None.

        A state that has this epoch already stays as it is. A higher one gives FencedStateEpoch.
        """
        found = await self._outcomes(InitializeState(key, *state) for key, state in states.items())
        return {key: _error(outcome) for key, outcome in found.items()}

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        """Return a state, and fence off leaders of earlier epochs.

        A state that was never initialized has epoch 0 and no start offset. The number of finished
        records is unknown.

        Raises:
            Fenced: a later leader of the partition has the state.
            SparklogError: no coordinator answered in time; try again.
        """
        found = _state(await self._run(ReadState(key, leader_epoch)))
        return replace(found, delivery_complete_count=NO_COUNT)

    async def write(self, update: ShareStateUpdate) -> None:
        """Change a state, and return when that is committed.

        Raises:
            InvalidRequest: the state is not initialized, or the update is impossible.
            FencedStateEpoch: the state was initialized anew; read it again.
            Fenced: a later leader of the partition has the state.
            RecordTooLarge: the state would have too many batches.
            SparklogError: no coordinator answered in time; the write may have happened.
        """
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._check_open()
        queue = self._writes.get(update.key)
        if queue is None:
            queue = self._writes[update.key] = _WriteQueue()
            queue.waiting.append((update, answer))
            self._tasks.start(self._write_all(update.key, queue), "write a share state")
        else:
            queue.waiting.append((update, answer))
        # Behind the write under way, and in one of its own.
        await _answered(answer, 3 * self._timeout_s)

    async def delete(
        self, keys: Collection[SharePartitionKey]
    ) -> dict[SharePartitionKey, SparklogError | None]:
        """Delete states; return each one's error or None. An absent one is no error."""
        found = await self._outcomes(map(DeleteState, keys))
        return {key: _error(outcome) for key, outcome in found.items()}

    async def summaries(
        self, keys: Collection[SharePartitionKey]
    ) -> dict[SharePartitionKey, ShareState | SparklogError]:
        """Return states without their batches, as they are stored, or errors."""
        found = await self._outcomes(map(SummarizeState, keys))
        return {
            key: outcome if isinstance(outcome, SparklogError) else _state(outcome)
            for key, outcome in found.items()
        }

    # Writes of one key.

    async def _write_all(self, key: SharePartitionKey, queue: _WriteQueue) -> None:
        """Send the waiting writes of a key, until none is left."""
        answers: list[asyncio.Future[None]] = []
        try:
            while queue.waiting:
                update, answers = queue.take()
                outcome = await self._outcome(WriteState(update))
                for answer in answers:
                    _settle(answer, _error(outcome))
        finally:
            del self._writes[key]
            for answer in (*answers, *(answer for _, answer in queue.waiting)):
                _settle(answer, _stopped())

    # One operation, until it succeeds or the time is over.

    async def _outcomes(
        self, operations: Iterable[StateOperation]
    ) -> dict[SharePartitionKey, Outcome]:
        found = list(operations)
        outcomes = await asyncio.gather(*map(self._outcome, found))
        return {one.key: outcome for one, outcome in zip(found, outcomes, strict=True)}

    async def _outcome(self, operation: StateOperation) -> Outcome:
        try:
            return await self._run(operation)
        except SparklogError as error:
            return error

    async def _run(self, operation: StateOperation) -> Outcome:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s
        backoff = Backoff(RETRY_FIRST_S, RETRY_LONGEST_S)
        while True:
            try:
                return await self._try(operation)
            except SparklogError as error:
                pause_s = backoff.next_s()
                if not error.retriable or loop.time() + pause_s >= deadline:
                    raise
            await asyncio.sleep(pause_s)

    async def _try(self, operation: StateOperation) -> Outcome:
        """Run an operation once, where its coordinator is now."""
        topic = await self._find_topic(operation)
        if topic is None:
            if isinstance(operation, WriteState):
                raise InvalidRequest(f"no share group has a state yet. key={operation.key}")
            return operation.absent
        partition = partition_for(operation.key.coordinator_key, topic.partitions)
        leader = topic.partition_states[partition].leader
        if leader == self._broker_id:
            return await operation.run(self._coordinator)
        outcome = await self._ask(leader, operation)
        if isinstance(outcome, SparklogError):
            raise outcome
        return outcome

    async def _find_topic(self, operation: StateOperation) -> Topic | None:
        """Return the topic of the states. Only states to initialize need that it is created."""
        topic = self._metadata.image.topics.get(SHARE_STATE_TOPIC)
        if topic is not None:
            return topic
        if isinstance(operation, InitializeState):
            return await self._topic.ensure(self._metadata, self._environment)
        # Another broker may have created it a moment ago.
        return (await self._metadata.catch_up()).topics.get(SHARE_STATE_TOPIC)

    # Requests to other brokers.

    def _check_open(self) -> None:
        if self._tasks.closed:
            raise _stopped()

    async def _ask(self, broker_id: int, operation: StateOperation) -> Outcome:
        """Return the outcome at another broker; operations that gather meanwhile go together."""
        self._check_open()
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        where = broker_id, operation.api, operation.key.group_id
        lane = self._lanes.get(where)
        if lane is None:
            lane = self._lanes[where] = _StateQueue()
        lane.gathered.append((operation, answer))
        if lane.requests < REQUESTS_AT_ONCE:
            lane.requests += 1
            self._tasks.start(self._send_all(where, lane), f"share states to {broker_id}")
        return await _answered(answer, self._timeout_s)

    async def _send_all(self, where: tuple[int, Api, str], lane: _StateQueue) -> None:
        """Send the gathered operations of a lane, until none is left."""
        try:
            while taken := lane.take():
                try:
                    await self._send(where[0], taken)
                finally:
                    for _, answer in taken:
                        _settle(answer, _stopped())
        finally:
            lane.requests -= 1
            if not lane.requests:
                self._lanes.pop(where, None)
                for _, answer in lane.gathered:
                    _settle(answer, _stopped())

    async def _send(
        self, broker_id: int, taken: list[tuple[StateOperation, asyncio.Future[Outcome]]]
    ) -> None:
        operations = {operation.key: operation for operation, _ in taken}
        broker = self._metadata.image.brokers.get(broker_id)
        outcomes: Mapping[SharePartitionKey, Outcome]
        try:
            if broker is None:
                raise Unreachable("no broker leads the partition")
            response = await self._environment.network.call(
                Address(broker.host, broker.port),
                request_of(operations),
                # Half of the time: the next leader can still answer if this one is gone.
                timeout_s=self._timeout_s / 2,
                purpose=PURPOSE,
            )
            outcomes = outcomes_of(operations, response)
        except (Unreachable, TimeoutError) as error:
            failure = CoordinatorNotAvailable(
                "the coordinator of a share group's state does not answer. "
                f"broker_id={broker_id} because=({error or 'no answer in time'})"
            )
            outcomes = dict.fromkeys(operations, failure)
        for operation, answer in taken:
            if not answer.done():
                answer.set_result(outcomes[operation.key])


async def _answered(answer: asyncio.Future[Result], timeout_s: float) -> Result:
    """Return an answer; its task may end without one when the broker stops."""
    try:
        async with asyncio.timeout(timeout_s):
            return await answer
    except TimeoutError:
        raise CoordinatorNotAvailable(
            "the coordinator of a share group's state did not answer in time"
        ) from None


def _settle(answer: asyncio.Future[Outcome] | asyncio.Future[None], error: object) -> None:
    """Answer one that still waits, with an error or with None."""
    if answer.done():
        return
    if isinstance(error, SparklogError):
        answer.set_exception(error)
    else:
        cast("asyncio.Future[None]", answer).set_result(None)


def _stopped() -> CoordinatorNotAvailable:
    return CoordinatorNotAvailable("this broker stops; its share groups go on at other brokers")


def _error(outcome: Outcome) -> SparklogError | None:
    return outcome if isinstance(outcome, SparklogError) else None


def _state(outcome: Outcome) -> ShareState:
    assert isinstance(outcome, ShareState), outcome
    return outcome
