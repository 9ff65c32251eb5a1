"""The settings of a broker that Kafka has no name for. Those it has live with the topic's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sparklog.core.config import Acts, Config, Kind, Setting, parse_configs, table_of

BrokerConfig = Config

BROKER_SETTINGS: Final = table_of(
    Setting(
        "wal.linger.ms",
        Kind.INT,
        50,
        Acts.BROKER,
        "Longest that batches gather behind a WAL put in flight before another put starts. An idle "
        "broker never waits: its first put starts at once. 50 ms is about one put to S3, so a busy "
        "broker makes at most some 20 puts a second, whatever the number of partitions.",
        unit="ms",
        at_least=0,
        at_most=60_000,
    ),
    Setting(
        "wal.bytes",
        Kind.INT,
        8 * 1024 * 1024,
        Acts.BROKER,
        "Gathered batches that start another WAL put at once: large enough to use the bandwidth of "
        "one request, small enough to be read back quickly when a broker is replaced.",
        unit="bytes",
        at_least=1,
    ),
)


def parse_broker_configs(given: Mapping[str, str]) -> BrokerConfig:
    """Return a broker's settings: the checked values of `given`, and the defaults for the rest.

    Raises:
        InvalidConfig: an unknown name (the message offers the closest) or a value outside its
            limits.
    """
    return parse_configs(given, BROKER_SETTINGS)
