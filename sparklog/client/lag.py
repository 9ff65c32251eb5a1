"""How old the oldest record is that a group has not read: its lag in time."""

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
"""A single record of each partition is looked at; what was deleted before it is nobody's lag."""
POLL_S: Final = 0.2


def oldest_unread_ms(
    bootstrap_servers: str,
    positions: Mapping[TopicPartition, int],
    clock: Clock,
    *,
    timeout_s: float,
) -> dict[TopicPartition, int]:
    """Return the timestamp of the first committed record at or after a position, per partition.

    A partition whose record did not come in time, or has none there, is left out. Cost: one fetch
    per partition, of some KiB.

    Raises:
        Unavailable: no broker answers.
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
