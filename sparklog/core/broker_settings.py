"""The settings of a broker that Kafka has no name for. Those it has live with the topic's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sparklog.core.config import INT_MAX, Acts, Config, Kind, Setting, parse_configs, table_of

BrokerConfig = Config

MIB: Final = 1024 * 1024

_SOCKET = (
    Setting(
        "socket.request.max.bytes",
        Kind.INT,
        100 * MIB,
        Acts.BROKER,
        "Largest request. Whoever claims to send more is disconnected before a byte is kept.",
        unit="bytes",
        at_least=1,
    ),
    Setting(
        "queued.max.request.bytes",
        Kind.LONG,
        256 * MIB,
        Acts.BROKER,
        "Requests being worked on, of all connections: beyond this none is read, and clients wait. "
        "Kafka sets no bound and runs out of memory instead; a broker here lives in an executor.",
        unit="bytes",
        at_least=1,
        kafka_default=-1,
    ),
    Setting(
        "max.connections",
        Kind.INT,
        10_000,
        Acts.BROKER,
        "Connections at once; a further one is closed at once. Kafka sets no bound.",
        unit="connections",
        at_least=1,
        kafka_default=INT_MAX,
    ),
    Setting(
        "connections.max.idle.ms",
        Kind.LONG,
        600_000,
        Acts.BROKER,
        "A connection that asks nothing for so long is closed; clients close theirs after 9 "
        "minutes, and mind it less when they do it themselves.",
        unit="ms",
        at_least=1,
    ),
)

_TOPICS = (
    Setting(
        "auto.create.topics.enable",
        Kind.BOOLEAN,
        default=True,
        acts=Acts.BROKER,
        reason="A topic that a client names and that does not exist is made, as in Kafka.",
    ),
    Setting(
        "num.partitions",
        Kind.INT,
        1,
        Acts.BROKER,
        "Partitions of a topic made without a number of them.",
        unit="partitions",
        at_least=1,
    ),
    Setting(
        "delete.topic.enable",
        Kind.BOOLEAN,
        default=True,
        acts=Acts.BROKER,
        reason="Whether clients may delete topics.",
    ),
)

_REPLICAS = (
    Setting(
        "tail.bytes",
        Kind.LONG,
        256 * MIB,
        Acts.BROKER,
        "Records that all partitions led here may hold in memory before they are flushed. When the "
        "storage is slower than the producers, these wait; nothing is dropped. Followed partitions "
        "hold what their leaders hold, on top.",
        unit="bytes",
        at_least=MIB,
    ),
    Setting(
        "history.cache.bytes",
        Kind.LONG,
        64 * MIB,
        Acts.BROKER,
        "Blocks of flushed records kept for consumers that read history: one object is read once "
        "for several fetches, and a little ahead.",
        unit="bytes",
        at_least=0,
    ),
    Setting(
        "replica.lag.time.max.ms",
        Kind.LONG,
        30_000,
        Acts.BROKER,
        "A follower that was not caught up for so long leaves the in-sync replicas.",
        unit="ms",
        at_least=1,
    ),
    Setting(
        "replica.fetch.wait.max.ms",
        Kind.INT,
        500,
        Acts.BROKER,
        "Longest a leader holds a follower's fetch when there is nothing new. An idle pair of "
        "brokers exchanges two small messages this often.",
        unit="ms",
        at_least=0,
    ),
    Setting(
        "replica.fetch.max.bytes",
        Kind.INT,
        MIB,
        Acts.BROKER,
        "What a follower takes of one partition at a time; a larger batch is taken all the same.",
        unit="bytes",
        at_least=0,
    ),
    Setting(
        "replica.fetch.response.max.bytes",
        Kind.INT,
        10 * MIB,
        Acts.BROKER,
        "What a follower takes of all partitions of one leader at a time.",
        unit="bytes",
        at_least=0,
    ),
    Setting(
        "replica.fetch.backoff.ms",
        Kind.INT,
        200,
        Acts.BROKER,
        "How long a follower waits after a fetch that failed. A leader here is replaced within "
        "seconds, so Kafka's second would be a large part of it.",
        unit="ms",
        at_least=0,
        kafka_default=1000,
    ),
    Setting(
        "producer.id.expiration.ms",
        Kind.INT,
        86_400_000,
        Acts.BROKER,
        "A producer that wrote nothing for so long is forgotten; its next batch starts anew.",
        unit="ms",
        at_least=1,
    ),
)

BROKER_SETTINGS: Final = table_of(
    *_SOCKET,
    *_TOPICS,
    *_REPLICAS,
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
