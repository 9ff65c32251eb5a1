"""Requests that only the coordinator of a group or transactional id can handle.

Coordinators move as leaders do. One that rejects the request, still loads, or cannot be reached is
looked up again until the time-out. Source: KIP-699.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, TypeVar

from sparklog.client.addresses import BrokerAddress
from sparklog.client.asking import Brokers, Draft
from sparklog.client.errors import of_code
from sparklog.client.metadata import read_metadata
from sparklog.client.values import ServingBroker
from sparklog.core.clock import Clock
from sparklog.core.errors import NotServing, OutcomeUnknown, SparklogError, Unavailable
from sparklog.protocol.api import Api

FIND_VERSIONS: Final = (4, 6)
"""From version 4 on, one request looks up many keys."""
AGAIN_S: Final = 0.1
Answer = TypeVar("Answer")

AskCoordinator = Callable[[ServingBroker, Sequence[str]], Mapping[str, Answer | SparklogError]]


class CoordinatorKind(IntEnum):
    """Types of coordinators, with Kafka's numbers."""

    GROUP = 0
    TRANSACTION = 1


def ask_coordinators(
    brokers: Brokers,
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
        outcomes.update(_asked(brokers, kind, left, ask))
        left = [key for key in left if isinstance(outcomes[key], NotServing | Unavailable)]
        if not left or clock.monotonic_s() >= deadline_s:
            break
        clock.sleep_s(AGAIN_S)
    return {key: outcomes[key] for key in keys}


def ask_every_broker(
    brokers: Brokers, ask: Callable[[BrokerAddress], Answer], clock: Clock
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


def _asked(
    brokers: Brokers, kind: CoordinatorKind, keys: Sequence[str], ask: AskCoordinator[Answer]
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
    brokers: Brokers, kind: CoordinatorKind, keys: Sequence[str]
) -> dict[str, ServingBroker | SparklogError]:
    def draft(of: Draft) -> Any:
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
