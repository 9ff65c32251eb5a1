"""Settings of a broker: Kafka's that no topic has, and sparklog's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sparklog.core.config.group_coordinator import GROUP_SETTINGS, check_group_settings
from sparklog.core.config.model import (
    INT_MAX,
    Config,
    Effect,
    Setting,
    SettingType,
    parse_configs,
    table_of,
)
from sparklog.core.config.security import SECURITY_SETTINGS, settings_of_listeners
from sparklog.core.config.topic_defaults import refuse_topic_defaults
from sparklog.core.config.transaction_coordinator import TRANSACTION_SETTINGS
from sparklog.core.errors import InvalidConfig

BrokerConfig = Config

MIB: Final = 1024 * 1024

_SOCKET = (
    Setting(
        "socket.request.max.bytes",
        SettingType.INT,
        100 * MIB,
        Effect.BROKER,
        "Largest request. Whoever claims to send more is disconnected before a byte is kept.",
        unit="bytes",
        at_least=1,
    ),
    Setting(
        "queued.max.request.bytes",
        SettingType.LONG,
        256 * MIB,
        Effect.BROKER,
        "Requests being worked on, of all connections: beyond this none is read, and clients wait. "
        "Kafka sets no bound and runs out of memory instead; a broker here lives in an executor.",
        unit="bytes",
        at_least=1,
        kafka_default=-1,
    ),
    Setting(
        "max.connections",
        SettingType.INT,
        10_000,
        Effect.BROKER,
        "Connections at once; a further one is closed at once. Kafka sets no bound.",
        unit="connections",
        at_least=1,
        kafka_default=INT_MAX,
    ),
    Setting(
        "connections.max.idle.ms",
        SettingType.LONG,
        600_000,
        Effect.BROKER,
        "A connection that asks nothing for so long is closed; clients close theirs after 9 "
        "minutes, and mind it less when they do it themselves. A negative number closes none.",
        unit="ms",
    ),
)

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_ACCESS = (
    Setting(
        "authorizer.class.name",
        SettingType.STRING,
        "",
        Effect.BROKER,
        "With Kafka's StandardAuthorizer, ACLs decide about each request. Empty: all clients may "
        "do everything. Set it alike on all brokers.",
        choices=("", STANDARD_AUTHORIZER),
    ),
    Setting(
        "super.users",
        SettingType.STRING,
        "",
        Effect.BROKER,
        "Principals that may do everything, without any ACL: User:a;User:b.",
    ),
    Setting(
        "allow.everyone.if.no.acl.found",
        SettingType.BOOLEAN,
        False,
        Effect.BROKER,
        "Whether all clients may use a resource that no ACL names.",
    ),
    Setting(
        "sparklog.audit.level",
        SettingType.STRING,
        "OFF",
        Effect.BROKER,
        "Decisions of the authorizer that become records of __sparklog_audit: with INFO the denied "
        "ones, with DEBUG the allowed ones as well. Kafka has only the logger "
        "kafka.authorizer.logger, whose levels these are. DEBUG costs a record for each operation.",
        choices=("OFF", "INFO", "DEBUG"),
    ),
)

_QUOTAS = (
    Setting(
        "quota.window.num",
        SettingType.INT,
        11,
        Effect.BROKER,
        "With quota.window.size.seconds: a client may use at once what its quota allows it in one "
        "window less than so many.",
        unit="windows",
        at_least=1,
    ),
    Setting(
        "quota.window.size.seconds",
        SettingType.INT,
        1,
        Effect.BROKER,
        "See quota.window.num.",
        unit="s",
        at_least=1,
    ),
    Setting(
        "controller.quota.window.num",
        SettingType.INT,
        11,
        Effect.BROKER,
        "With controller.quota.window.size.seconds: a client may create and delete at once what "
        "controller_mutation_rate allows it in so many windows.",
        unit="windows",
        at_least=1,
    ),
    Setting(
        "controller.quota.window.size.seconds",
        SettingType.INT,
        1,
        Effect.BROKER,
        "See controller.quota.window.num.",
        unit="s",
        at_least=1,
    ),
)

_TOPICS = (
    Setting(
        "auto.create.topics.enable",
        SettingType.BOOLEAN,
        default=True,
        acts=Effect.BROKER,
        reason="A topic that a client names and that does not exist is made, as in Kafka.",
    ),
    Setting(
        "num.partitions",
        SettingType.INT,
        1,
        Effect.BROKER,
        "Partitions of a topic made without a number of them.",
        unit="partitions",
        at_least=1,
    ),
    Setting(
        "delete.topic.enable",
        SettingType.BOOLEAN,
        default=True,
        acts=Effect.BROKER,
        reason="Whether clients may delete topics.",
    ),
)

_REPLICAS = (
    Setting(
        "tail.bytes",
        SettingType.LONG,
        256 * MIB,
        Effect.BROKER,
        "Records that all partitions led here may hold in memory before they are flushed. When the "
        "storage is slower than the producers, these wait; nothing is dropped. Followed partitions "
        "hold what their leaders hold, on top.",
        unit="bytes",
        at_least=MIB,
    ),
    Setting(
        "history.cache.bytes",
        SettingType.LONG,
        64 * MIB,
        Effect.BROKER,
        "Blocks of flushed records kept for consumers that read history, so that several fetches "
        "cost one request. Half of it is for records that are read ahead of them.",
        unit="bytes",
        at_least=0,
    ),
    Setting(
        "fetch.max.bytes",
        SettingType.INT,
        55 * MIB,
        Effect.BROKER,
        "Largest answer to a consumer, however much it asks for.",
        unit="bytes",
        at_least=1024,
    ),
    Setting(
        "max.incremental.fetch.session.cache.slots",
        SettingType.INT,
        1000,
        Effect.BROKER,
        "Clients whose partitions are remembered between fetches; others name all of theirs each "
        "time.",
        at_least=0,
    ),
    Setting(
        "replica.lag.time.max.ms",
        SettingType.LONG,
        30_000,
        Effect.BROKER,
        "A follower that was not caught up for so long leaves the in-sync replicas.",
        unit="ms",
        at_least=1,
    ),
    Setting(
        "replica.fetch.wait.max.ms",
        SettingType.INT,
        500,
        Effect.BROKER,
        "Longest a leader holds a follower's fetch when there is nothing new. An idle pair of "
        "brokers exchanges two small messages this often.",
        unit="ms",
        at_least=0,
    ),
    Setting(
        "replica.fetch.max.bytes",
        SettingType.INT,
        MIB,
        Effect.BROKER,
        "What a follower takes of one partition at a time; a larger batch is taken all the same.",
        unit="bytes",
        at_least=0,
    ),
    Setting(
        "replica.fetch.response.max.bytes",
        SettingType.INT,
        10 * MIB,
        Effect.BROKER,
        "What a follower takes of all partitions of one leader at a time.",
        unit="bytes",
        at_least=0,
    ),
    Setting(
        "replica.fetch.backoff.ms",
        SettingType.INT,
        200,
        Effect.BROKER,
        "How long a follower waits after a fetch that failed. A leader here is replaced within "
        "seconds, so Kafka's second would be a large part of it.",
        unit="ms",
        at_least=0,
        kafka_default=1000,
    ),
    Setting(
        "producer.id.expiration.ms",
        SettingType.INT,
        86_400_000,
        Effect.BROKER,
        "A producer that wrote nothing for so long is forgotten; its next batch starts anew.",
        unit="ms",
        at_least=1,
    ),
)

_NODE = (
    Setting(
        "node.id",
        SettingType.INT,
        -1,
        Effect.BROKER,
        "The broker's number, its own for as long as the cluster lives. It has no default: two "
        "brokers of one number depose each other.",
        at_least=-1,
    ),
    Setting(
        "broker.id",
        SettingType.INT,
        -1,
        Effect.BROKER,
        "Kafka's older name for node.id.",
        at_least=-1,
    ),
    Setting(
        "broker.rack",
        SettingType.STRING,
        "",
        Effect.BROKER,
        "Where the broker stands: replicas of a partition go to different racks. Empty is unknown.",
    ),
    Setting(
        "sparklog.cluster.id",
        SettingType.STRING,
        "",
        Effect.BROKER,
        "The id of the cluster to serve: with it, a broker begins no new log. Empty is any.",
    ),
    Setting(
        "listeners",
        SettingType.STRING,
        "PLAINTEXT://127.0.0.1:9092",
        Effect.BROKER,
        "The broker's listeners, NAME://host:port with commas between; port 0 takes any that is "
        "free. Kafka listens to every network interface; here that has to be asked for.",
        kafka_default="PLAINTEXT://:9092",
    ),
    Setting(
        "advertised.listeners",
        SettingType.STRING,
        "",
        Effect.BROKER,
        "The addresses by which clients and other brokers reach the listeners, for those where it "
        "is another one; port 0 is the one bound.",
    ),
    Setting(
        "metrics.port",
        SettingType.INT,
        -1,
        Effect.BROKER,
        "Port of the page for Prometheus; 0 takes any that is free, -1 shows none. Kafka's metrics "
        "need an agent for that.",
        at_least=-1,
        at_most=65_535,
    ),
    Setting(
        "telemetry.max.bytes",
        SettingType.INT,
        MIB,
        Effect.BROKER,
        "Largest push of a client's own metrics.",
        unit="bytes",
        at_least=1,
    ),
    Setting(
        "sparklog.client.metrics",
        SettingType.LIST,
        (),
        Effect.BROKER,
        "Prefixes of the metrics that clients push to brokers (KIP-714), which the page for "
        "Prometheus shows. Empty asks for none; org.apache.kafka. asks for all.",
    ),
    Setting(
        "sparklog.client.metrics.interval.ms",
        SettingType.INT,
        300_000,
        Effect.BROKER,
        "How often clients push their metrics; Kafka's default of the subscription's interval.ms.",
        unit="ms",
        at_least=100,
        at_most=3_600_000,
    ),
    Setting(
        "sparklog.traces.enable",
        SettingType.BOOLEAN,
        False,
        Effect.BROKER,
        "Makes a span of OpenTelemetry of each Produce and Fetch request. Needs the extra otel.",
    ),
    Setting(
        "metrics.listener.name",
        SettingType.STRING,
        "",
        Effect.BROKER,
        "A listener with TLS, whose certificate and whose demands on clients the page for "
        "Prometheus has as well. Empty: the page is served without TLS.",
    ),
)

_CLUSTER = (
    Setting(
        "broker.session.timeout.ms",
        SettingType.INT,
        3_000,
        Effect.BROKER,
        "A broker this silent is fenced, and a controller this silent replaced. A process that "
        "died is noticed at once by its refused connection; this is for those that hang. Kafka "
        "waits 9 s; deposing a live broker by mistake costs it a restart, and nobody a record.",
        unit="ms",
        at_least=1,
        kafka_default=9_000,
    ),
    Setting(
        "broker.heartbeat.interval.ms",
        SettingType.INT,
        500,
        Effect.BROKER,
        "How often a broker and the controller hear of each other. A heartbeat waits at the "
        "controller for so long, and is answered at once when there is metadata to read.",
        unit="ms",
        at_least=1,
        kafka_default=2_000,
    ),
    Setting(
        "default.replication.factor",
        SettingType.INT,
        3,
        Effect.BROKER,
        "Replicas of a partition for whoever does not say, or as many as there are brokers if "
        "they are fewer. The storage always is one more, so this buys speed: a replica has the "
        "newest records in memory.",
        unit="brokers",
        at_least=1,
        kafka_default=1,
    ),
    Setting(
        "auto.leader.rebalance.enable",
        SettingType.BOOLEAN,
        default=True,
        acts=Effect.BROKER,
        reason="The controller gives partitions back to their first replica once it is in sync.",
    ),
    Setting(
        "leader.imbalance.check.interval.seconds",
        SettingType.LONG,
        30,
        Effect.BROKER,
        "How often that is looked at: a broker that restarted leads again soon, and one that keeps "
        "failing does not pull its partitions along each time.",
        unit="s",
        at_least=1,
        kafka_default=300,
    ),
)

BROKER_SETTINGS: Final = table_of(
    *_NODE,
    *_CLUSTER,
    *_SOCKET,
    *_ACCESS,
    *SECURITY_SETTINGS,
    *_QUOTAS,
    *_TOPICS,
    *_REPLICAS,
    *GROUP_SETTINGS,
    *TRANSACTION_SETTINGS,
    Setting(
        "wal.linger.ms",
        SettingType.INT,
        100,
        Effect.BROKER,
        "Longest that batches gather for a WAL put. On object storage puts start this far apart, "
        "ten a second and busy broker, whatever the number of partitions, so long as windows do "
        "not fill; an idle broker's first put starts at once. A higher value costs latency and "
        "saves requests. Batches that no acknowledgement waits for gather three times as long. "
        "Where a put takes less than 20 ms, as on a disk, up to four are under way and the next "
        "one starts when one has ended.",
        unit="ms",
        at_least=0,
        at_most=60_000,
    ),
    Setting(
        "wal.fsync",
        SettingType.BOOLEAN,
        default=True,
        acts=Effect.BROKER,
        reason="Whether the write-ahead log is on the disk before records count as stored there. "
        "false leaves that to the system, as Kafka does by default: a killed broker loses nothing, "
        "a power cut what was not flushed, `flush.ms` of records. Segments and metadata are forced "
        "either way. Only where the root is a folder: object storage answers when it has the data.",
    ),
    Setting(
        "wal.bytes",
        SettingType.INT,
        8 * 1024 * 1024,
        Effect.BROKER,
        "Gathered batches that start another WAL put at once: large enough to use the bandwidth of "
        "one request, small enough to be read back quickly when a broker is replaced.",
        unit="bytes",
        at_least=1,
    ),
)


def parse_broker_configs(given: Mapping[str, str]) -> BrokerConfig:
    """Return a broker's settings: the checked values of `given`, and the defaults for the rest.

    Raises:
        InvalidConfig: an unknown name (the message offers the closest), a default of topics, a
            value outside its limits, or values that contradict each other.
    """
    refuse_topic_defaults(given)
    config = parse_configs(given, {**BROKER_SETTINGS, **settings_of_listeners(given)})
    check_group_settings(config)
    heartbeat, session = (
        config.whole("broker.heartbeat.interval.ms"),
        config.whole("broker.session.timeout.ms"),
    )
    if heartbeat >= session:
        raise InvalidConfig(
            "a broker must be heard of within its session: lower broker.heartbeat.interval.ms or "
            f"raise the other. broker.heartbeat.interval.ms={heartbeat} "
            f"broker.session.timeout.ms={session}"
        )
    return config
