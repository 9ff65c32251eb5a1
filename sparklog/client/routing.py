"""Requests that only a partition's leader can handle, for many partitions.

Leaders move. If a leader rejects the request or cannot be reached, it is looked up again until the
time-out. The same holds if it does not know its partition: it learns of a new topic soon. For a
deleted topic, the metadata response has the error.

Other requests go to the coordinator of a group or transactional id, which alone can handle them.

Coordinators move as leaders do. One that rejects the request, still loads, or cannot be reached is
looked up again until the time-out. Source: KIP-699.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import groupby
from typing import Any, Final, TypeVar

from sparklog.client.addresses import BrokerAddress
from sparklog.client.connections import BrokerConnections, RequestDraft
from sparklog.client.errors import of_code
from sparklog.client.metadata import ClusterMetadata, read_metadata
from sparklog.client.values import ServingBroker
from sparklog.core.clock import Clock
from sparklog.core.errors import (
    NotServing,
    OutcomeUnknown,
    SparklogError,
    Unavailable,
    UnknownTopicOrPartition,
)
from sparklog.core.types import TopicPartition
from sparklog.protocol.api_keys import Api

AGAIN_S: Final = 0.1
Answer = TypeVar("Answer")

AskLeader = Callable[
    [BrokerAddress, Sequence[TopicPartition]], Mapping[TopicPartition, Answer | SparklogError]
]


class _NotKnownYet(UnknownTopicOrPartition):
    """A leader does not know a partition that the metadata assigns to it."""


def ask_leaders(
    brokers: BrokerConnections,
    partitions: Sequence[TopicPartition],
    ask: AskLeader[Answer],
    clock: Clock,
    *,
    patience_s: float | None = None,
    topic_ids: Mapping[str, str] | None = None,
) -> dict[TopicPartition, Answer | SparklogError]:
    """Return the leaders' responses for each partition to a request that is safe to repeat.

    Args:
        brokers: the cluster.
        partitions: any number, of any topics.
        ask: sends the request to one leader for some partitions.

        clock: for waits.
        patience_s: time to find leaders that moved; None uses the response time-out.

        topic_ids: expected topic ids by name; another topic of that name is an error.

    Raises:
        Unavailable: no broker responds at all.
    """
    deadline_s = clock.monotonic_s() + (brokers.timeout_s if patience_s is None else patience_s)
    outcomes: dict[TopicPartition, Answer | SparklogError] = {}
    left = list(partitions)
    while left:
        metadata = read_metadata(brokers, sorted({tp.topic for tp in left}))
        outcomes.update(_asked(metadata, left, ask, topic_ids or {}))
        left = [
            tp for tp in left if isinstance(outcomes[tp], NotServing | Unavailable | _NotKnownYet)
        ]
        if clock.monotonic_s() >= deadline_s:
            break
        if left:
            clock.sleep_s(AGAIN_S)
    return {tp: outcomes[tp] for tp in partitions}


def _asked(
    metadata: ClusterMetadata,
    partitions: Sequence[TopicPartition],
    ask: AskLeader[Answer],
    topic_ids: Mapping[str, str],
) -> list[tuple[TopicPartition, Answer | SparklogError]]:
    outcomes: list[tuple[TopicPartition, Answer | SparklogError]] = []
    led: dict[BrokerAddress, list[TopicPartition]] = {}
    for tp in partitions:
        topic = metadata.topics.get(tp.topic)
        leader = metadata.leader(tp)
        if topic is None or tp.partition >= topic.partitions:
            outcomes.append((tp, UnknownTopicOrPartition(f"no such partition. partition={tp}")))
        elif topic_ids.get(tp.topic, topic.topic_id) != topic.topic_id:
            outcomes.append((tp, _another_topic(tp, topic_ids[tp.topic], topic.topic_id)))
        elif leader is None:
            outcomes.append((tp, NotServing(f"nobody leads the partition now. partition={tp}")))
        else:
            led.setdefault(leader, []).append(tp)
    for leader, chosen in led.items():
        try:
            answers = ask(leader, chosen)
        except OutcomeUnknown as error:
            outcomes += [(tp, Unavailable(str(error))) for tp in chosen]
        except SparklogError as error:
            outcomes += [(tp, error) for tp in chosen]
        else:
            missing = UnknownTopicOrPartition("the leader's answer leaves the partition out")
            outcomes += [(tp, _as_outcome(answers.get(tp, missing))) for tp in chosen]
    return outcomes


def _as_outcome(answer: Answer | SparklogError) -> Answer | SparklogError:
    if isinstance(answer, UnknownTopicOrPartition):
        return _NotKnownYet(str(answer))
    return answer


def _another_topic(tp: TopicPartition, wanted: str, found: str) -> UnknownTopicOrPartition:
    return UnknownTopicOrPartition(
        "the brokers serve another topic of this name; do they serve this log? "
        f"partition={tp} topic_id={wanted} topic_id_of_brokers={found}"
    )


def by_topic(partitions: Sequence[TopicPartition]) -> list[tuple[str, list[TopicPartition]]]:
    """Return partitions grouped by topic, both in order."""
    return [(t, list(chosen)) for t, chosen in groupby(sorted(partitions), lambda tp: tp.topic)]


def parts_by_topic(
    of: RequestDraft,
    kinds: tuple[str, str],
    partitions: Sequence[TopicPartition],
    fields: Callable[[TopicPartition], Mapping[str, Any]],
) -> tuple[Any, ...]:
    """Return the topics of a request, with a part for each partition.

    Args:
        of: the draft with the request's version.
        kinds: Kafka's schema names of the topic and partition structures.

        partitions: the partitions.
        fields: returns a part's fields besides its index.
    """
    topic_kind, part_kind = kinds
    return tuple(
        of.part(
            topic_kind,
            name=topic,
            partitions=tuple(
                of.part(part_kind, partition_index=tp.partition, **fields(tp)) for tp in chosen
            ),
        )
        for topic, chosen in by_topic(partitions)
    )


def partition_results(topics: Any) -> dict[TopicPartition, Any]:
    """Return the results of a response that has topics with partitions."""
    return {
        TopicPartition(topic.name, int(result.partition_index)): result
        for topic in topics
        for result in topic.partitions
    }


FIND_VERSIONS: Final = (4, 6)
"""From version 4 on, one request looks up many keys."""


AskCoordinator = Callable[[ServingBroker, Sequence[str]], Mapping[str, Answer | SparklogError]]


class CoordinatorKind(IntEnum):
    """Types of coordinators, with Kafka's numbers."""

    GROUP = 0
    TRANSACTION = 1


def ask_coordinators(
    brokers: BrokerConnections,
    kind: CoordinatorKind,
    keys: Sequence[str],
    ask: AskCoordinator[Answer],
    clock: Clock,
) -> dict[str, Answer | SparklogError]:
    """Return the coordinators' responses by key, for a read or for a change.

    Args:
        brokers: the cluster.
        kind: type of coordinator.
        keys: group ids or transactional ids.

        ask: sends the request for some keys to their coordinator. Without a response the outcome is
            unknown, and `ask` is not repeated.

        clock: for waits.

    Raises:
        Unavailable: no broker responds at all.
    """
    deadline_s = clock.monotonic_s() + brokers.timeout_s
    outcomes: dict[str, Answer | SparklogError] = {}
    left = list(dict.fromkeys(keys))
    while left:
        outcomes.update(_coordinators_asked(brokers, kind, left, ask))
        left = [key for key in left if isinstance(outcomes[key], NotServing | Unavailable)]
        if not left or clock.monotonic_s() >= deadline_s:
            break
        clock.sleep_s(AGAIN_S)
    return {key: outcomes[key] for key in keys}


def ask_every_broker(
    brokers: BrokerConnections, ask: Callable[[BrokerAddress], Answer], clock: Clock
) -> Iterator[tuple[ServingBroker, Answer]]:
    """Yield each broker's response to a request that is safe to repeat.

    Raises:
        Unavailable: one did not respond in time, or still loads.
    """
    deadline_s = clock.monotonic_s() + brokers.timeout_s
    left = sorted(read_metadata(brokers, ()).brokers.values())
    while left:
        try:
            answer = ask(left[0].address)
        except (Unavailable, OutcomeUnknown) as error:
            if clock.monotonic_s() >= deadline_s:
                raise Unavailable(str(error)) from error
            clock.sleep_s(AGAIN_S)
        else:
            yield left.pop(0), answer


def _coordinators_asked(
    brokers: BrokerConnections,
    kind: CoordinatorKind,
    keys: Sequence[str],
    ask: AskCoordinator[Answer],
) -> dict[str, Answer | SparklogError]:
    outcomes: dict[str, Answer | SparklogError] = {}
    coordinated: dict[ServingBroker, list[str]] = {}
    for key, found in _coordinators(brokers, kind, keys).items():
        if isinstance(found, SparklogError):
            outcomes[key] = found
        else:
            coordinated.setdefault(found, []).append(key)
    for coordinator, chosen in coordinated.items():
        try:
            answers = ask(coordinator, chosen)
        except SparklogError as error:
            outcomes.update(dict.fromkeys(chosen, error))
        else:
            missing = SparklogError("the coordinator's answer leaves out what was asked")
            outcomes.update((key, answers.get(key, missing)) for key in chosen)
    return outcomes


def _coordinators(
    brokers: BrokerConnections, kind: CoordinatorKind, keys: Sequence[str]
) -> dict[str, ServingBroker | SparklogError]:
    def draft(of: RequestDraft) -> Any:
        return of.request(key_type=int(kind), coordinator_keys=tuple(keys))

    answer = brokers.ask(Api.FIND_COORDINATOR, *FIND_VERSIONS, draft)
    missing = Unavailable("a broker's answer leaves out a coordinator")
    found: dict[str, ServingBroker | SparklogError] = dict.fromkeys(keys, missing)
    for c in answer.coordinators:
        found[c.key] = (
            ServingBroker(int(c.node_id), c.host, int(c.port), None, False)
            if c.error_code == 0
            else of_code(c.error_code, c.error_message, "no coordinator", key=c.key)
        )
    return found
