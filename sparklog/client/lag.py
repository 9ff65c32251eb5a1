"""Lag in time: the age of the oldest record that a group has not read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sparklog.client.consumer import Consumer
from sparklog.client.settings import Settings
from sparklog.core.clock import Clock
from sparklog.core.types import TopicPartition

ONE_RECORD: Final[Settings] = {
    "auto.offset.reset": "earliest",
    "fetch.message.max.bytes": 16 * 1024,
    "queued.max.messages.kbytes": 1024,
    "fetch.wait.max.ms": 100,
}
"""One record of each partition is read; deleted records before it are not lag."""
POLL_S: Final = 0.2


def oldest_unread_ms(
    bootstrap_servers: str,
    positions: Mapping[TopicPartition, int],
    clock: Clock,
    *,
    timeout_s: float,
) -> dict[TopicPartition, int]:
    """Return the timestamp in ms of the first committed record from a position on, per partition.

    It omits a partition without such a record, or whose record did not arrive in time. Cost: one
    fetch per partition, of some KiB.

    Raises:
        Unavailable: no broker responds.
    """
    found: dict[TopicPartition, int] = {}
    if not positions:
        return found
    deadline_s = clock.monotonic_s() + timeout_s
    with Consumer(bootstrap_servers, settings=ONE_RECORD) as consumer:
        consumer.assign(dict(positions))
        while len(found) < len(positions) and clock.monotonic_s() < deadline_s:
            for record in consumer.poll(timeout_s=POLL_S):
                found.setdefault(record.topic_partition, record.timestamp_ms)
            if consumer.ends_reached | found.keys() >= positions.keys():
                break
    return found
