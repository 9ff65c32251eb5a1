"""Settings of a broker for the groups that it coordinates, and their offsets."""

from __future__ import annotations

from typing import Final

from sparklog.core.config.model import INT_MAX, Config, Effect, Setting, SettingType
from sparklog.core.config.share_coordinator import SHARE_COORDINATOR_SETTINGS
from sparklog.core.config.share_groups import SHARE_GROUP_SETTINGS, check_share_group_settings
from sparklog.core.errors import InvalidConfig

GROUP_SETTINGS: Final = (
    Setting(
        "group.min.session.timeout.ms",
        SettingType.INT,
        6_000,
        Effect.BROKER,
        "Shortest session.timeout.ms that a member of a classic group may ask for: shorter ones "
        "cost heartbeats, and take a member that only paused for a dead one.",
        unit="ms",
    ),
    Setting(
        "group.max.session.timeout.ms",
        SettingType.INT,
        1_800_000,
        Effect.BROKER,
        "Longest session.timeout.ms that a member of a classic group may ask for: nobody reads a "
        "dead member's partitions until it is over.",
        unit="ms",
    ),
    Setting(
        "group.initial.rebalance.delay.ms",
        SettingType.INT,
        3_000,
        Effect.BROKER,
        "How long an empty group waits for more members after the first one joined: an "
        "application that starts many at once has one rebalance instead of many.",
        unit="ms",
        at_least=0,
    ),
    Setting(
        "group.max.size",
        SettingType.INT,
        INT_MAX,
        Effect.BROKER,
        "Members of a classic group.",
        unit="members",
        at_least=1,
    ),
    Setting(
        "group.consumer.session.timeout.ms",
        SettingType.INT,
        45_000,
        Effect.BROKER,
        "A member of a group of the newer protocol that was not heard of for so long is removed; "
        "nobody reads its partitions until then.",
        unit="ms",
        at_least=1,
    ),
    Setting(
        "group.consumer.min.session.timeout.ms",
        SettingType.INT,
        45_000,
        Effect.BROKER,
        "Shortest session time-out of such a group.",
        unit="ms",
        at_least=1,
    ),
    Setting(
        "group.consumer.max.session.timeout.ms",
        SettingType.INT,
        60_000,
        Effect.BROKER,
        "Longest session time-out of such a group.",
        unit="ms",
        at_least=1,
    ),
    Setting(
        "group.consumer.heartbeat.interval.ms",
        SettingType.INT,
        5_000,
        Effect.BROKER,
        "How often members of groups of the newer protocol are told to send heartbeats. A member "
        "learns of a change with its next one.",
        unit="ms",
        at_least=1,
    ),
    Setting(
        "group.consumer.min.heartbeat.interval.ms",
        SettingType.INT,
        5_000,
        Effect.BROKER,
        "Shortest interval between heartbeats of such a group, while its partitions do not change "
        "hands.",
        unit="ms",
        at_least=1,
    ),
    Setting(
        "group.consumer.max.heartbeat.interval.ms",
        SettingType.INT,
        15_000,
        Effect.BROKER,
        "Longest interval between heartbeats of such a group.",
        unit="ms",
        at_least=1,
    ),
    Setting(
        "group.consumer.assignors",
        SettingType.LIST,
        ("uniform", "range"),
        Effect.BROKER,
        "What decides who reads what in groups of the newer protocol, as members may wish; the "
        "first is taken where none does. Kafka loads other classes too, there are none here.",
        choices=("uniform", "range"),
    ),
    Setting(
        "group.consumer.migration.policy",
        SettingType.STRING,
        "bidirectional",
        Effect.BROKER,
        "Whether a group with members may change its protocol: to the newer one (upgrade) when a "
        "member of that joins, and back (downgrade) when the last one leaves. One without members "
        "always may.",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
    ),
    Setting(
        "group.consumer.max.size",
        SettingType.INT,
        INT_MAX,
        Effect.BROKER,
        "Members of a group of the newer protocol.",
        unit="members",
        at_least=1,
    ),
    Setting(
        "offset.metadata.max.bytes",
        SettingType.INT,
        4_096,
        Effect.BROKER,
        "Longest text that a client may store with a committed offset. As in Kafka, characters are "
        "counted, whatever the name says.",
        unit="bytes",
        at_least=0,
    ),
    Setting(
        "offsets.topic.num.partitions",
        SettingType.INT,
        50,
        Effect.BROKER,
        "Partitions of __consumer_offsets when it is made: groups are spread over their leaders. "
        "Never change it afterwards: groups would be looked for in other partitions.",
        unit="partitions",
        at_least=1,
    ),
    Setting(
        "offsets.topic.replication.factor",
        SettingType.INT,
        3,
        Effect.BROKER,
        "Replicas of __consumer_offsets, or as many as there are brokers if they are fewer when it "
        "is made; the storage always is one more.",
        unit="brokers",
        at_least=1,
    ),
    Setting(
        "offsets.retention.minutes",
        SettingType.INT,
        10_080,
        Effect.BROKER,
        "A committed offset that was of no use for so long is forgotten: its group has no members, "
        "or none that reads the topic.",
        unit="minutes",
        at_least=1,
    ),
    Setting(
        "offsets.retention.check.interval.ms",
        SettingType.LONG,
        600_000,
        Effect.BROKER,
        "How often such offsets are looked for.",
        unit="ms",
        at_least=1,
    ),
    Setting(
        "offsets.commit.timeout.ms",
        SettingType.INT,
        5_000,
        Effect.BROKER,
        "Longest that a commit of offsets, or whatever else a group's coordinator stores, waits "
        "for its storage; the client then tries again.",
        unit="ms",
        at_least=1,
    ),
    *SHARE_GROUP_SETTINGS,
    *SHARE_COORDINATOR_SETTINGS,
)


def check_group_settings(config: Config) -> None:
    """Reject settings of groups that contradict each other.

    Raises:
        InvalidConfig: a value outside its own limits, no assignor, or a session shorter than the
            heartbeat interval.
    """
    for what in ("session.timeout.ms", "heartbeat.interval.ms"):
        name = f"group.consumer.{what}"
        low, high = f"group.consumer.min.{what}", f"group.consumer.max.{what}"
        if not config.whole(low) <= config.whole(name) <= config.whole(high):
            raise InvalidConfig(
                f"{name} is between {low} and {high}. {name}={config.whole(name)} "
                f"{low}={config.whole(low)} {high}={config.whole(high)}"
            )
    heartbeat_ms = config.whole("group.consumer.heartbeat.interval.ms")
    session_ms = config.whole("group.consumer.session.timeout.ms")
    if heartbeat_ms >= session_ms:
        raise InvalidConfig(
            "a member must be heard of within its session: lower "
            "group.consumer.heartbeat.interval.ms or raise the other. "
            f"group.consumer.heartbeat.interval.ms={heartbeat_ms} "
            f"group.consumer.session.timeout.ms={session_ms}"
        )
    if not config.words("group.consumer.assignors"):
        raise InvalidConfig("group.consumer.assignors names at least one assignor")
    check_share_group_settings(config)
