"""Verdicts about brokers that others cannot reach: pure decisions.

A broken connection between two brokers proves nothing about either. A broker that cannot reach
another one asks the rest, and follows at least half of them.

LIVENESS-1: A broker that another one reaches is alive.
LIVENESS-2: A broker is dead if at least half of all live brokers, and two of them, cannot reach
    it. The asking one counts. With two brokers there is no third, so one of them decides alone.
    Half is enough because applications with as many brokers each die as a whole. If connections
    between two halves break, both decide. The metadata log takes one's decision, and the brokers
    of the other half stay deposed until they are reached.
LIVENESS-3: Otherwise the verdict is unknown. The broker may have died together with those that
    were asked, or the asking one is cut off. HeartbeatRecords in the metadata log decide then.

Source: decisions 37 and 75.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import HeartbeatRecord, Record

NEVER = -1


class Vote(Enum):
    """A broker's reply about another one."""

    REACHED = "reached"
    LOST = "lost"
    UNKNOWN = "unknown"
    """It did not reply, or does not know that incarnation yet."""


class Verdict(Enum):
    """The result of the votes about a broker."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"


def verdict(votes: Iterable[Vote], live: int) -> Verdict:
    """Return the verdict about a broker that the asking one cannot reach.

    `votes` are those of the other live brokers. `live` counts all live brokers, with the asking one
    and the suspect.
    """
    votes = list(votes)
    if Vote.REACHED in votes:
        return Verdict.ALIVE
    lost = 1 + votes.count(Vote.LOST)
    if live <= 2 or (lost >= 2 and 2 * lost >= live):
        return Verdict.DEAD
    return Verdict.UNKNOWN


def show(broker_id: int, broker_epoch: int) -> list[Record]:
    """Return the record by which a broker proves that it runs."""
    return [HeartbeatRecord(broker_id, broker_epoch)]


def shown(image: MetadataImage, broker_id: int) -> int:
    """Return the offset of a broker's newest heartbeat record; -1 if it has none."""
    return image.heartbeats.get(broker_id, NEVER)


def answer(image: MetadataImage, incarnation: str) -> list[Record]:
    """Return the controller's heartbeat, if a broker has appended one since its last.

    Return none for any incarnation other than the controller's.
    """
    controller = image.controller
    if controller is None or controller.incarnation != incarnation or not image.heartbeats:
        return []
    own = shown(image, controller.broker_id)
    broker = image.brokers.get(controller.broker_id)
    if broker is None or max(image.heartbeats.values()) <= own:
        return []
    return show(broker.broker_id, broker.epoch)
