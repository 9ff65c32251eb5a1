"""Settings of a topic: Kafka's, with Kafka's defaults unless a reason says otherwise.

Names, kinds and limits are those of Kafka 4.3's topic configs, so an existing topic's settings can
be copied unchanged. `acts` says which of them have an effect here. `flush.bytes` and the names that
begin with `sparklog.` are sparklog's own; Kafka documents all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from sparklog.core.config.model import (
    LONG_MAX,
    Config,
    Effect,
    Setting,
    SettingType,
    check_names,
    parse_configs,
    table_of,
)
from sparklog.core.errors import InvalidConfig

MIB: Final = 1024 * 1024
DAY_MS: Final = 86_400_000
FOLLOWS_RETENTION: Final = -2
NO_LIMIT: Final = -1

TopicConfig = Config
"""A topic's settings: read them with `whole`, `text`, `flag`, `number` and `words`."""

_APPEND = (
    Setting(
        "compression.type",
        SettingType.STRING,
        "producer",
        Effect.APPEND,
        "`producer` keeps what a producer chose; an append without a wire then takes lz4. Segments "
        "know lz4 and zstd, so gzip is stored as zstd and snappy as lz4.",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    Setting(
        "compression.zstd.level",
        SettingType.INT,
        3,
        Effect.APPEND,
        "Zstandard's own default: higher is smaller and slower.",
        at_least=-131072,
        at_most=22,
    ),
    Setting(
        "max.message.bytes",
        SettingType.INT,
        1_048_588,
        Effect.APPEND,
        "1 MiB and a batch header. Bounds what a reader must hold for one record.",
        unit="bytes",
        at_least=0,
    ),
    Setting(
        "message.timestamp.type",
        SettingType.STRING,
        "CreateTime",
        Effect.APPEND,
        "Who sets a record's timestamp: its producer, or the append.",
        choices=("CreateTime", "LogAppendTime"),
    ),
    Setting(
        "sparklog.key.index",
        SettingType.STRING,
        "none",
        Effect.APPEND,
        "`bloom` gives each segment the bounds of its keys and a filter of 12 bits a record, so "
        "that `sparklog find` skips segments which do not have a key. Who never looks for single "
        "keys need not pay for it.",
        choices=("none", "bloom"),
    ),
)

_BROKER = (
    Setting(
        "flush.ms",
        SettingType.LONG,
        10_000,
        Effect.BROKER,
        "The leader writes what is committed into a segment this often, after a rest sooner, so "
        "that not all partitions are flushed in one moment. Kafka forces no flush; "
        "here it is not for safety, which the WAL gives, but lets Spark read without a broker. "
        "At 10 s a busy partition makes 8,640 puts a day, and one that is idle none.",
        unit="ms",
        at_least=0,
        kafka_default=LONG_MAX,
    ),
    Setting(
        "flush.bytes",
        SettingType.INT,
        64 * MIB,
        Effect.BROKER,
        "The leader flushes earlier once it holds this much: it bounds the broker's memory and "
        "what a new leader must take over. Kafka has no such setting.",
        unit="bytes",
        at_least=1,
    ),
    Setting(
        "message.timestamp.before.max.ms",
        SettingType.LONG,
        LONG_MAX,
        Effect.BROKER,
        "How far in the past a producer's timestamp may lie.",
        unit="ms",
        at_least=0,
    ),
    Setting(
        "message.timestamp.after.max.ms",
        SettingType.LONG,
        3_600_000,
        Effect.BROKER,
        "How far in the future a producer's timestamp may lie: one wrong clock would otherwise "
        "keep retention from ever deleting.",
        unit="ms",
        at_least=0,
    ),
    Setting(
        "max.decompressed.message.bytes",
        SettingType.INT,
        128 * MIB,
        Effect.BROKER,
        "What a compressed batch may unfold to, all its records together, where Kafka bounds each "
        "record. A few kilobytes may become gigabytes, and brokers and readers hold them in memory "
        "as often as they look at the batch.",
        unit="bytes",
        at_least=1,
        at_most=2_147_483_639,
        kafka_default=2_147_483_639,
    ),
    Setting(
        "min.insync.replicas",
        SettingType.INT,
        1,
        Effect.BROKER,
        "Brokers that must hold a record before acks=all succeeds, besides the storage, which "
        "always must.",
        unit="brokers",
        at_least=1,
    ),
    Setting(
        "sparklog.commit",
        SettingType.STRING,
        "storage",
        Effect.BROKER,
        "`storage` acknowledges when the WAL has the records too. `memory` acknowledges when two "
        "or more in-sync brokers have them: faster on remote storage, but what was acknowledged "
        "since the last WAL object is lost if all those brokers die at once.",
        choices=("storage", "memory"),
    ),
    Setting(
        "sparklog.schema.validation",
        SettingType.BOOLEAN,
        default=False,
        acts=Effect.BROKER,
        reason="Leaders refuse records whose value names no schema of the registry, in front or in "
        "a header; a null value needs none. Appends without a broker are not checked.",
    ),
    Setting(
        "sparklog.key.schema.validation",
        SettingType.BOOLEAN,
        default=False,
        acts=Effect.BROKER,
        reason="As sparklog.schema.validation, for keys.",
    ),
    Setting(
        "errors.deadletterqueue.group.enable",
        SettingType.BOOLEAN,
        default=False,
        acts=Effect.BROKER,
        reason="Whether share groups may send dead letters to the topic. Without it, settings of a "
        "group would let records into any topic.",
    ),
)

_JOBS = (
    Setting(
        "cleanup.policy",
        SettingType.LIST,
        ("delete",),
        Effect.JOBS,
        "`delete` drops old segments, `compact` keeps the last record of each key; both may be "
        "given, and nothing keeps everything.",
        choices=("compact", "delete"),
    ),
    Setting(
        "retention.ms",
        SettingType.LONG,
        7 * DAY_MS,
        Effect.JOBS,
        "Segments whose newest record is older may be deleted; -1 keeps them.",
        unit="ms",
        at_least=NO_LIMIT,
    ),
    Setting(
        "retention.bytes",
        SettingType.LONG,
        NO_LIMIT,
        Effect.JOBS,
        "Oldest segments are deleted while the partition is larger; -1 sets no limit.",
        unit="bytes",
        at_least=NO_LIMIT,
    ),
    Setting(
        "segment.bytes",
        SettingType.INT,
        128 * MIB,
        Effect.JOBS,
        "Small segments are merged up to this size. Kafka's 1 GiB file grows in place; an object "
        "is written whole, from memory, and a task must stay under 512 MiB.",
        unit="bytes",
        at_least=MIB,
        kafka_default=1024 * MIB,
    ),
    Setting(
        "segment.ms",
        SettingType.LONG,
        7 * DAY_MS,
        Effect.JOBS,
        "A segment is not merged with records this much younger, so that retention by time stays "
        "exact to within it.",
        unit="ms",
        at_least=1,
    ),
    Setting(
        "file.delete.delay.ms",
        SettingType.LONG,
        60_000,
        Effect.JOBS,
        "Time between advancing the boundary and deleting the objects behind it, so that a reader "
        "which holds the older view can finish.",
        unit="ms",
        at_least=0,
    ),
    Setting(
        "delete.retention.ms",
        SettingType.LONG,
        DAY_MS,
        Effect.JOBS,
        "How long compaction keeps a tombstone, so that a consumer reading from the start sees it.",
        unit="ms",
        at_least=0,
    ),
    Setting(
        "min.cleanable.dirty.ratio",
        SettingType.DOUBLE,
        0.5,
        Effect.JOBS,
        "Share of records not yet compacted at which compacting is worth its reads and writes.",
        at_least=0,
        at_most=1,
    ),
    Setting(
        "min.compaction.lag.ms",
        SettingType.LONG,
        0,
        Effect.JOBS,
        "Records younger than this are left as they are.",
        unit="ms",
        at_least=0,
    ),
    Setting(
        "max.compaction.lag.ms",
        SettingType.LONG,
        LONG_MAX,
        Effect.JOBS,
        "Records older than this are compacted whatever the dirty ratio.",
        unit="ms",
        at_least=1,
    ),
)


def _inert(
    name: str,
    kind: SettingType,
    default: int | bool | tuple[str, ...],
    reason: str,
    *,
    unit: str = "",
    at_least: int | None = None,
    at_most: int | None = None,
) -> Setting:
    return Setting(
        name, kind, default, Effect.NEVER, reason, unit=unit, at_least=at_least, at_most=at_most
    )


_TIERED = "Every segment is on object storage already: there is no second tier to copy to."
_ONE_LEVEL = "Segments are stored with lz4 or zstd, and lz4 has no level there."
_INDEXED = "Every record batch of a segment is indexed, in the segment's own footer."
_UNTHROTTLED = "History is read from the storage, so a returning replica copies only the tail."

_NEVER = (
    _inert("compression.gzip.level", SettingType.INT, -1, _ONE_LEVEL, at_least=-1, at_most=9),
    _inert("compression.lz4.level", SettingType.INT, 9, _ONE_LEVEL, at_least=1, at_most=17),
    _inert(
        "flush.messages",
        SettingType.LONG,
        LONG_MAX,
        "An acknowledged record is on the storage whatever their number; see flush.bytes.",
        unit="records",
        at_least=1,
    ),
    _inert("follower.replication.throttled.replicas", SettingType.LIST, (), _UNTHROTTLED),
    _inert("leader.replication.throttled.replicas", SettingType.LIST, (), _UNTHROTTLED),
    _inert("index.interval.bytes", SettingType.INT, 4096, _INDEXED, unit="bytes", at_least=0),
    _inert("segment.index.bytes", SettingType.INT, 10 * MIB, _INDEXED, unit="bytes", at_least=4),
    _inert(
        "segment.jitter.ms",
        SettingType.LONG,
        0,
        "Spreads out the moment at which Kafka's partitions roll; here nothing rolls by itself.",
        unit="ms",
        at_least=0,
    ),
    _inert(
        "preallocate",
        SettingType.BOOLEAN,
        default=False,
        reason="An object is written whole, once.",
    ),
    _inert(
        "unclean.leader.election.enable",
        SettingType.BOOLEAN,
        default=False,
        reason="The storage holds everything acknowledged, so any broker is a clean leader.",
    ),
    _inert("remote.storage.enable", SettingType.BOOLEAN, default=False, reason=_TIERED),
    _inert("remote.log.copy.disable", SettingType.BOOLEAN, default=False, reason=_TIERED),
    _inert("remote.log.delete.on.disable", SettingType.BOOLEAN, default=False, reason=_TIERED),
    _inert("remote.copy.lag.ms", SettingType.LONG, 0, _TIERED, unit="ms", at_least=-1),
    _inert("remote.copy.lag.bytes", SettingType.LONG, -1, _TIERED, unit="bytes", at_least=-1),
    _inert(
        "local.retention.ms", SettingType.LONG, FOLLOWS_RETENTION, _TIERED, unit="ms", at_least=-2
    ),
    _inert(
        "local.retention.bytes",
        SettingType.LONG,
        FOLLOWS_RETENTION,
        _TIERED,
        unit="bytes",
        at_least=-2,
    ),
)

SCHEMA_VALIDATIONS: Final = ("sparklog.schema.validation", "sparklog.key.schema.validation")
"""Settings for which brokers need the topic of a schema registry."""
TOPIC_SETTINGS: Final = table_of(*_APPEND, *_BROKER, *_JOBS, *_NEVER)


def parse_topic_configs(given: Mapping[str, str]) -> TopicConfig:
    """Return a topic's settings: the checked values of `given`, and the defaults for the rest.

    Raises:
        InvalidConfig: an unknown name (the message offers the closest), a value outside its
            limits, or two settings that contradict each other.
    """
    return _together(parse_configs(given, TOPIC_SETTINGS))


def parse_stored_topic_configs(stored: Mapping[str, str]) -> TopicConfig:
    """Return the settings of a topic as stored, without names that only a newer version knows.

    For jobs: they delete no records if they do not understand the retention. Other callers continue
    with the `understood` settings.

    Raises:
        InvalidConfig: a value that this version does not accept, or two that contradict each other.
    """
    return parse_topic_configs({n: text for n, text in stored.items() if n in TOPIC_SETTINGS})


def _together(config: TopicConfig) -> TopicConfig:
    """Return settings that do not contradict each other. Raises InvalidConfig."""
    shortest, longest = config.whole("min.compaction.lag.ms"), config.whole("max.compaction.lag.ms")
    if shortest > longest:
        raise InvalidConfig(
            "min.compaction.lag.ms cannot exceed max.compaction.lag.ms: lower one or raise the "
            f"other. min.compaction.lag.ms={shortest} max.compaction.lag.ms={longest}"
        )
    return config


def check_topic_config_names(names: Iterable[str]) -> None:
    """Reject a name that is not a topic setting: for removals, which have no value.

    Raises:
        InvalidConfig: the message offers the closest known name.
    """
    check_names(names, TOPIC_SETTINGS)
