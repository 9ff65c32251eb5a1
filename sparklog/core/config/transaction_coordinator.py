"""Settings of a broker for the transactions that it coordinates."""

from __future__ import annotations

from typing import Final

from sparklog.core.config.model import Effect, Setting, SettingType

TRANSACTION_SETTINGS: Final = (
    Setting(
        "transaction.state.log.num.partitions",
        SettingType.INT,
        50,
        Effect.BROKER,
        "Partitions of __transaction_state when it is made: transactional ids are spread over "
        "their leaders. Never change it afterwards: ids would be looked for in other partitions.",
        unit="partitions",
        at_least=1,
    ),
    Setting(
        "transaction.state.log.replication.factor",
        SettingType.INT,
        3,
        Effect.BROKER,
        "Replicas of __transaction_state, or as many as there are brokers if they are fewer when "
        "it is made; the storage always is one more.",
        unit="brokers",
        at_least=1,
    ),
    Setting(
        "transaction.state.log.min.isr",
        SettingType.INT,
        1,
        Effect.BROKER,
        "The min.insync.replicas of __transaction_state when it is made. Kafka asks for two copies "
        "of what is decided; here the storage is the second.",
        unit="brokers",
        at_least=1,
        kafka_default=2,
    ),
    Setting(
        "transaction.max.timeout.ms",
        SettingType.INT,
        900_000,
        Effect.BROKER,
        "Longest transaction.timeout.ms that a producer may ask for: an open transaction holds up "
        "all who read committed records.",
        unit="ms",
        at_least=1,
    ),
    Setting(
        "transactional.id.expiration.ms",
        SettingType.INT,
        604_800_000,
        Effect.BROKER,
        "A transactional id that nobody used for so long is forgotten, unless its transaction is "
        "open: its producer gets a new producer id when it comes back.",
        unit="ms",
        at_least=1,
    ),
    Setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        SettingType.INT,
        1_000,
        Effect.BROKER,
        "How often transactions that timed out are looked for, and aborted: until then whoever "
        "reads committed records waits. A round costs nothing when there are none.",
        unit="ms",
        at_least=1,
        kafka_default=10_000,
    ),
    Setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        SettingType.INT,
        3_600_000,
        Effect.BROKER,
        "How often transactional ids that expired are looked for, and forgotten.",
        unit="ms",
        at_least=1,
    ),
    Setting(
        "transaction.partition.verification.enable",
        SettingType.BOOLEAN,
        default=True,
        acts=Effect.BROKER,
        reason="A partition asks the coordinator whether a transaction has it, before it takes "
        "the first records: a late message of an ended transaction opens no new one (KIP-890).",
    ),
    Setting(
        "add.partitions.to.txn.retry.backoff.ms",
        SettingType.INT,
        20,
        Effect.BROKER,
        "First pause before a partition asks the coordinator again whose earlier transaction is "
        "still ending; it doubles.",
        unit="ms",
        at_least=0,
    ),
    Setting(
        "add.partitions.to.txn.retry.backoff.max.ms",
        SettingType.INT,
        100,
        Effect.BROKER,
        "How long it asks in all before the producer is told to.",
        unit="ms",
        at_least=0,
    ),
)
