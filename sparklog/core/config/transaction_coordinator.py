"""Settings of a broker for the transactions that it coordinates."""

from __future__ import annotations

from typing import Final

from sparklog.core.config.model import Acts, Kind, Setting

TRANSACTION_SETTINGS: Final = (
    Setting(
        "transaction.state.log.num.partitions",
        Kind.INT,
        50,
        Acts.BROKER,
        "Partitions of __transaction_state when it is made: transactional ids are spread over "
        "their leaders. Never change it afterwards: ids would be looked for in other partitions.",
        unit="partitions",
        at_least=1,
    ),
    Setting(
        "transaction.state.log.replication.factor",
        Kind.INT,
        3,
        Acts.BROKER,
        "Replicas of __transaction_state, or as many as there are brokers if they are fewer when "
        "it is made; the storage always is one more.",
        unit="brokers",
        at_least=1,
    ),
    Setting(
        "transaction.state.log.min.isr",
        Kind.INT,
        1,
        Acts.BROKER,
        "The min.insync.replicas of __transaction_state when it is made. Kafka asks for two copies "
        "of what is decided; here the storage is the second.",
        unit="brokers",
        at_least=1,
        kafka_default=2,
    ),
    Setting(
        "transaction.max.timeout.ms",
        Kind.INT,
        900_000,
        Acts.BROKER,
        "Longest transaction.timeout.ms that a producer may ask for: an open transaction holds up "
        "all who read committed records.",
        unit="ms",
        at_least=1,
    ),
    Setting(
        "transactional.id.expiration.ms",
        Kind.INT,
        604_800_000,
        Acts.BROKER,
        "A transactional id that nobody used for so long is forgotten, unless its transaction is "
        "open: its producer gets a new producer id when it comes back.",
        unit="ms",
        at_least=1,
    ),
    Setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        Kind.INT,
        1_000,
        Acts.BROKER,
        "How often transactions that timed out are looked for, and aborted: until then whoever "
        "reads committed records waits. A round costs nothing when there are none.",
        unit="ms",
        at_least=1,
        kafka_default=10_000,
    ),
    Setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        Kind.INT,
        3_600_000,
        Acts.BROKER,
        "How often transactional ids that expired are looked for, and forgotten.",
        unit="ms",
        at_least=1,
    ),
    Setting(
        "transaction.partition.verification.enable",
        Kind.BOOLEAN,
        default=True,
        acts=Acts.BROKER,
        reason="A partition asks the coordinator whether a transaction has it, before it takes "
        "the first records: a late message of an ended transaction opens no new one (KIP-890).",
    ),
    Setting(
        "add.partitions.to.txn.retry.backoff.ms",
        Kind.INT,
        20,
        Acts.BROKER,
        "First pause before a partition asks the coordinator again whose earlier transaction is "
        "still ending; it doubles.",
        unit="ms",
        at_least=0,
    ),
    Setting(
        "add.partitions.to.txn.retry.backoff.max.ms",
        Kind.INT,
        100,
        Acts.BROKER,
        "How long it asks in all before the producer is told to.",
        unit="ms",
        at_least=0,
    ),
)
