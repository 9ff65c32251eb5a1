"""Executors are killed, and it is told how long clients were without a leader.

A killed executor's broker lives on for the blink of an eye and may still acknowledge, so the first
acknowledgement after a kill proves nothing. What does is the longest silence between the kill and
the moment when somebody else is known to lead: it ends with the new leader's first word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from sparklog.client.admin import Admin
from sparklog.cluster.records import NO_LEADER
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.errors import Unavailable
from sparklog.spark.demo.plain_client import PlainClient
from sparklog.spark.demo.scene import Scene
from sparklog.spark.demo.serving import PATIENCE_S, TOPIC, Brokers

LOOK_S = 0.05


def kill_a_leader(
    scene: Scene, brokers: Brokers, client: PlainClient, admin: Admin, dead: Sequence[int]
) -> int:
    """Kill the executor of a broker that leads something, and tell who takes over and how fast.

    Returns the broker's id. Raises Unavailable: nobody took over.
    """
    before = _leaders(admin)
    victim = next(leader for leader in before if leader not in dead)
    acknowledged = len(client.acknowledged)
    moment_s = brokers.kill_executor_of(victim)
    for number in [number for number, leader in enumerate(before) if leader == victim]:
        at_s = _taken_over_at_s(client, admin, number, victim, moment_s)
        scene.narrator.tell(
            f"partition {number}: leader {victim} -> {_leaders(admin)[number]}, which acknowledged "
            f"its first record {at_s - moment_s:.2f} s after the kill"
        )
    more = len(client.acknowledged) - acknowledged
    scene.narrator.tell(f"meanwhile the client had {more:,} more records acknowledged")
    return victim


def await_return(brokers: Brokers, admin: Admin, broker: int) -> None:
    """Wait until a killed broker is in sync everywhere.

    Raises:
        Unavailable: not in time.
    """

    def returned() -> bool:
        brokers.look()
        return all(broker in one.isr for one in admin.topic(TOPIC).partition_states)

    _wait(returned, f"a killed broker is not back in sync. broker={broker}")


def taken_over_at_s(moment_s: float, known_s: float, acknowledged_s: Sequence[float]) -> float:
    """Return when the new leader acknowledged first.

    Args:
        moment_s: of the kill.
        known_s: when another leader was seen in the cluster's metadata.
        acknowledged_s: of all acknowledgements of the partition, in order. One at least must be
            later than `known_s`.
    """
    until_s = next(at_s for at_s in acknowledged_s if at_s > known_s)
    told_s = [at_s for at_s in acknowledged_s if moment_s < at_s <= until_s]
    silences = [(after - before, after) for before, after in pairwise([moment_s, *told_s])]
    return max(silences)[1]


def _taken_over_at_s(
    client: PlainClient, admin: Admin, number: int, victim: int, moment_s: float
) -> float:
    """Wait until somebody else leads a partition and takes records; returns since when.

    Raises:
        Unavailable: not in time.
    """

    def led() -> bool:
        return _leaders(admin)[number] not in (victim, NO_LEADER)

    _wait(led, f"nobody took over. partition={number} victim={victim}")
    known_s = SYSTEM_CLOCK.monotonic_s()

    def acknowledged() -> bool:
        return max(client.told_s(number), default=0.0) > known_s

    _wait(acknowledged, f"the new leader takes no records. partition={number}")
    return taken_over_at_s(moment_s, known_s, client.told_s(number))


def _leaders(admin: Admin) -> list[int]:
    return [one.leader for one in admin.topic(TOPIC).partition_states]


def _wait(holds: Callable[[], bool], otherwise: str) -> None:
    deadline_s = SYSTEM_CLOCK.monotonic_s() + PATIENCE_S
    while not holds():
        if SYSTEM_CLOCK.monotonic_s() > deadline_s:
            raise Unavailable(otherwise)
        SYSTEM_CLOCK.sleep_s(LOOK_S)
