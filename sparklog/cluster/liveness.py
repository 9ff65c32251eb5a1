"""Which brokers are dead, judged from broken connections: pure decisions.

A broken connection between two brokers proves nothing about either of them. A broker that loses
another one asks the rest, and goes by what most of them find.
  M1  a broker that another one reaches is alive
  M2  a broker is dead when more than half of all live brokers cannot reach it, the asking one
      included; of two brokers there is nobody to ask, so the one that lost the other goes alone
  M3  without such a majority nobody can tell: the broker may have died together with those that
      were asked, or the asking one is cut off. HeartbeatRecords in the metadata log decide then
Source: decision 37.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from sparklog.cluster.image import MetadataImage
from sparklog.cluster.records import HeartbeatRecord, Record

NEVER = -1


class Vote(Enum):
    """Whether a broker that was asked reaches another one."""

    REACHED = "reached"
    LOST = "lost"
    UNKNOWN = "unknown"
    """It did not answer, or does not know of that incarnation yet."""


class Verdict(Enum):
    """What the votes about a broker come to."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"


def verdict(votes: Iterable[Vote], live: int) -> Verdict:
    """Judge a broker that the asking one cannot reach.

    `votes` are those of the other live brokers; `live` counts all live brokers: the asking one and
    the suspect too.
    """
    votes = list(votes)
    if Vote.REACHED in votes:
        return Verdict.ALIVE
    lost = 1 + votes.count(Vote.LOST)
    if live <= 2 or 2 * lost > live:
        return Verdict.DEAD
    return Verdict.UNKNOWN


def show(broker_id: int, broker_epoch: int) -> list[Record]:
    """Return the record by which a broker shows that it runs."""
    return [HeartbeatRecord(broker_id, broker_epoch)]


def shown(image: MetadataImage, broker_id: int) -> int:
    """Return the offset at which a broker last showed that it runs; -1: it never did."""
    return image.heartbeats.get(broker_id, NEVER)


def answer(image: MetadataImage, incarnation: str) -> list[Record]:
    """Return the controller's heartbeat, if a broker has appended one since its last.

    Nothing for any other incarnation than the controller's.
    """
    controller = image.controller
    if controller is None or controller.incarnation != incarnation or not image.heartbeats:
        return []
    own = shown(image, controller.broker_id)
    broker = image.brokers.get(controller.broker_id)
    if broker is None or max(image.heartbeats.values()) <= own:
        return []
    return show(broker.broker_id, broker.epoch)
