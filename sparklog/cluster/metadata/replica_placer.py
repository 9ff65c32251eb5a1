"""Placement of new partitions: replicas spread over brokers, racks and hosts. Pure.

The brokers form a ring in which racks, and hosts within a rack, alternate. Successive partitions
start at successive brokers. The next replica is the next broker of an unused rack, else of an
unused host, else any. After every lap the replicas move one place further from their leader. So the
partitions of a failed broker spread over all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from typing import TypeVar

from sparklog.cluster.metadata.image import Broker, MetadataImage
from sparklog.core.errors import InvalidReplicaAssignment, InvalidReplicationFactor

Item = TypeVar("Item")


def place(
    brokers: Sequence[Broker], partitions: int, replication_factor: int, start: int
) -> list[tuple[int, ...]]:
    """Return the replicas of new partitions, the leader first.

    Args:
        brokers: eligible brokers.
        partitions: number of partitions.
        replication_factor: replicas of each.
        start: the first one's place in the ring: the number of existing partitions.

    Raises:
        InvalidReplicationFactor: less than 1, or more than there are brokers.
    """
    if not 1 <= replication_factor <= len(brokers):
        raise InvalidReplicationFactor(
            "the replication factor is at least 1 and at most the number of live brokers; lower "
            "it or start more brokers (the storage holds every record whatever the factor). "
            f"replication_factor={replication_factor} live_brokers={len(brokers)}"
        )
    ring = ring_of(brokers)
    return [_replicas(ring, start + p, replication_factor) for p in range(partitions)]


def extended(
    brokers: Sequence[Broker], replicas: Sequence[int], wanted: int, start: int
) -> tuple[int, ...]:
    """Return `replicas` plus further ones, up to `wanted` or the number of brokers."""
    ring = ring_of(brokers)
    if not ring:
        return tuple(replicas)
    at = start % len(ring)
    return _grown([*ring[at:], *ring[:at]], replicas, wanted, ring)


def check_assignment(
    image: MetadataImage, assignment: Mapping[int, Sequence[int]]
) -> list[tuple[int, ...]]:
    """Return the requested replicas of each partition, in order.

    Raises:
        InvalidReplicaAssignment: a partition is missing, the numbers of replicas differ, or
            replicas are invalid.
    """
    numbers = range(len(assignment))
    if not assignment or sorted(assignment) != list(numbers):
        raise InvalidReplicaAssignment(
            "the partitions of an assignment are 0, 1, 2 and so on. "
            f"partitions={sorted(assignment)}"
        )
    for number in numbers:
        check_replicas(image, assignment[number])
    if len({len(replicas) for replicas in assignment.values()}) != 1:
        raise InvalidReplicaAssignment("every partition of a topic has as many replicas.")
    return [tuple(assignment[number]) for number in numbers]


def check_replicas(image: MetadataImage, replicas: Sequence[int]) -> None:
    """Reject invalid replicas of one partition.

    Raises:
        InvalidReplicaAssignment: empty, one named twice, one unknown, or none alive.
    """
    unknown = [r for r in replicas if r not in image.brokers]
    if not replicas or len(set(replicas)) != len(replicas) or unknown:
        raise InvalidReplicaAssignment(
            "replicas are registered brokers, at least one, each named once. "
            f"replicas={list(replicas)} unknown={unknown} registered={sorted(image.brokers)}"
        )
    if not any(image.brokers[r].eligible for r in replicas):
        raise InvalidReplicaAssignment(
            f"none of the replicas is alive: name another. replicas={list(replicas)}"
        )


def ring_of(brokers: Iterable[Broker]) -> list[Broker]:
    """Return the brokers in an order with different racks and hosts side by side where possible."""
    racks: dict[str, dict[str, list[Broker]]] = {}
    for broker in sorted(brokers, key=lambda b: b.broker_id):
        racks.setdefault(broker.rack or "", {}).setdefault(broker.host, []).append(broker)
    return _in_turn([_in_turn(hosts.values()) for hosts in racks.values()])


def _in_turn(lists: Iterable[list[Item]]) -> list[Item]:
    nothing = object()
    rows = chain.from_iterable(zip_longest(*lists, fillvalue=nothing))
    return [item for item in rows if item is not nothing]  # type: ignore[misc]


def _replicas(ring: Sequence[Broker], at: int, count: int) -> tuple[int, ...]:
    lap, first = divmod(at, len(ring))
    others = [*ring[first + 1 :], *ring[:first]]
    shift = lap % len(others) if others else 0
    return _grown([*others[shift:], *others[:shift]], (ring[first].broker_id,), count, ring)


def _grown(
    candidates: Sequence[Broker], replicas: Sequence[int], count: int, ring: Sequence[Broker]
) -> tuple[int, ...]:
    chosen = list(replicas)
    known = {b.broker_id: b for b in ring}
    while len(chosen) < count:
        free = [b for b in candidates if b.broker_id not in chosen]
        if not free:
            break
        holders = [known[r] for r in chosen if r in known]
        racks, hosts = {b.rack for b in holders}, {b.host for b in holders}
        best = min(free, key=lambda b: (b.rack in racks, b.host in hosts))
        chosen.append(best.broker_id)
    return tuple(chosen)
