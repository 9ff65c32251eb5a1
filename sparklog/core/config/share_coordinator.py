"""Settings of a broker for the share groups' states that it coordinates.

Kafka's settings for snapshots of cold states and for pruning have no effect here: decision 96.
"""

from __future__ import annotations

from typing import Final

from sparklog.core.config.model import Effect, Setting, SettingType

SHARE_COORDINATOR_SETTINGS: Final = (
    Setting(
        "share.coordinator.state.topic.num.partitions",
        SettingType.INT,
        50,
        Effect.BROKER,
        "Partitions of __share_group_state when it is made: the states of share groups are spread "
        "over their leaders. Never change it afterwards: states would be looked for in other "
        "partitions.",
        unit="partitions",
        at_least=1,
    ),
    Setting(
        "share.coordinator.state.topic.replication.factor",
        SettingType.INT,
        3,
        Effect.BROKER,
        "Replicas of __share_group_state, or as many as there are brokers if they are fewer when "
        "it is made; the storage always is one more.",
        unit="brokers",
        at_least=1,
    ),
    Setting(
        "share.coordinator.state.topic.min.isr",
        SettingType.INT,
        1,
        Effect.BROKER,
        "The min.insync.replicas of __share_group_state when it is made. Kafka asks for two copies "
        "of a state; here the storage is the second.",
        unit="brokers",
        at_least=1,
        kafka_default=2,
    ),
    Setting(
        "share.coordinator.write.timeout.ms",
        SettingType.INT,
        5_000,
        Effect.BROKER,
        "How long a request for the state of a share group may take, with all its retries.",
        unit="ms",
        at_least=1,
    ),
    Setting(
        "share.coordinator.snapshot.update.records.per.snapshot",
        SettingType.INT,
        500,
        Effect.BROKER,
        "Updates of a share group's state before its next snapshot. Updates repeat earlier ones, "
        "so a snapshot comes sooner if they have grown.",
        unit="records",
        at_least=0,
        at_most=500,
    ),
)
