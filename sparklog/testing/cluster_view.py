"""The metadata that each broker of a test cluster shows, and waits for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Final, TypeVar

from sparklog.client.addresses import bootstrap_addresses
from sparklog.client.connections import BrokerConnections
from sparklog.client.metadata import ClusterMetadata, read_metadata
from sparklog.client.security import SecuritySettings
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.errors import SparklogError

ANSWERS_WITHIN_S: Final = 5.0
LOOK_EVERY_S: Final = 0.02

Seen = TypeVar("Seen")


def metadata_of(address: str, security: Mapping[str, str]) -> ClusterMetadata | None:
    """Return the metadata of the broker at `address`; None: it does not answer."""
    connections = BrokerConnections(
        bootstrap_addresses(address), ANSWERS_WITHIN_S, SecuritySettings(security)
    )
    try:
        return read_metadata(connections)
    except SparklogError:
        return None
    finally:
        connections.close()


def is_settled(view: ClusterMetadata, serving: Set[int]) -> bool:
    """Return True if these brokers serve, all partitions are led, and replicas in sync."""
    states = [state for topic in view.topics.values() for state in topic.partition_states]
    return serving <= set(view.brokers) and all(
        state.leader in serving and set(state.isr) == serving & set(state.replicas)
        for state in states
    )


def has_leaders(view: ClusterMetadata, topic: str, serving: Set[int]) -> bool:
    """Return True if the topic is there, and a live broker leads each of its partitions."""
    found = view.topics.get(topic)
    return found is not None and all(one.leader in serving for one in found.partition_states)


def wait_for(look: Callable[[], Seen | None], what: str, within_s: float) -> Seen:
    """Look until something true is seen, and return it.

    Raises:
        TimeoutError: it was not seen in time.
    """
    deadline_s = SYSTEM_CLOCK.monotonic_s() + within_s
    while True:
        is_last = SYSTEM_CLOCK.monotonic_s() >= deadline_s
        if seen := look():
            return seen
        if is_last:
            raise TimeoutError(f"not in time: {what} within_s={within_s:g}")
        SYSTEM_CLOCK.sleep_s(LOOK_EVERY_S)
