"""Kafka's exactly-once programs while a broker that coordinates or leads for them is killed."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from sparklog.client.addresses import bootstrap_addresses
from sparklog.client.admin import Admin
from sparklog.client.connections import BrokerConnections as Connections
from sparklog.client.transactions import TransactionAdmin
from sparklog.client.values import TransactionDescription
from sparklog.core.clock import SYSTEM_CLOCK
from tests.harness.broker_processes import BrokerProcesses
from tests.harness.waiting import eventually
from tests.interop.test_kafka_streams import (
    APPLICATION,
    COUNTS,
    INPUT,
    LINES,
    OUTPUT,
    WORD_COUNT,
    counted,
    running,
    send,
)
from tests.interop.test_transactions import SETTINGS, made, read, write
from tests.peers.jars import KAFKA_STREAMS
from tests.peers.kafka_tools import run_tool

pytestmark = [pytest.mark.soak, pytest.mark.timeout(400)]
RECORDS = 3_000
ROUNDS = 3


def coordinator(bootstrap: str, of: str) -> int | None:
    """Return the broker that coordinates transactions of an id that begins so, once there are."""
    connections = Connections(bootstrap_addresses(bootstrap))
    try:
        transactions = TransactionAdmin(connections, SYSTEM_CLOCK)
        names = [one.transactional_id for one in transactions.list()]
        wanted = [name for name in names if name.startswith(of)]
        found = transactions.describe(wanted[:1]).values()
        return next(
            (one.coordinator_id for one in found if isinstance(one, TransactionDescription)), None
        )
    finally:
        connections.close()


def test_words_count_once_when_the_txn_coordinator_is_killed(
    tmp_path: Path,
) -> None:
    """Kafka Streams' word count, exactly once: lines are sent before, during and after the kill."""
    with BrokerProcesses((tmp_path / "log").as_uri(), tmp_path, SETTINGS) as brokers:
        with Admin(brokers.bootstrap) as admin:
            for topic in (INPUT, OUTPUT):
                admin.create_topic(topic, 2, {"min.insync.replicas": "1"}, 3)
        settings, log = tmp_path / "streams.properties", tmp_path / "streams.log"
        settings.write_text(
            f"bootstrap.servers={brokers.bootstrap}\n"
            "processing.guarantee=exactly_once_v2\n"
            f"state.dir={tmp_path / 'state'}\n"
            "commit.interval.ms=100\n"
            "consumer.session.timeout.ms=10000\n"
            "replication.factor=3\n"
        )
        send(brokers, LINES)
        with running(KAFKA_STREAMS.class_path(), WORD_COUNT, str(settings), log=log):
            counted(brokers, COUNTS, log)
            victim = eventually(
                lambda: coordinator(brokers.bootstrap, APPLICATION), "a coordinator"
            )
            sending = threading.Thread(target=send, args=(brokers, LINES * ROUNDS))
            sending.start()
            brokers.kill(victim)
            sending.join()
            counted(brokers, {word: n * (ROUNDS + 1) for word, n in COUNTS.items()}, log)


def test_message_copier_copies_each_record_once_despite_kills(
    tmp_path: Path,
) -> None:
    with BrokerProcesses((tmp_path / "log").as_uri(), tmp_path, SETTINGS) as brokers:
        source, target = made(brokers.bootstrap), made(brokers.bootstrap)
        write(Producer({"bootstrap.servers": brokers.bootstrap}), source, *map(str, range(RECORDS)),
              partitions=1)  # fmt: skip
        name = f"copier-{uuid4()}"
        done: list[str] = []

        def copy() -> None:
            done.append(
                run_tool(
                    "TransactionalMessageCopier",
                    *("--broker-list", brokers.bootstrap, "--input-topic", source),
                    *("--input-partition", "0", "--output-topic", target),
                    *("--max-messages", str(RECORDS), "--transaction-size", "20"),
                    *("--consumer-group", f"g-{uuid4()}", "--transactional-id", name),
                    "--enable-random-aborts",
                )
            )

        copying = threading.Thread(target=copy)
        copying.start()
        brokers.kill(eventually(lambda: coordinator(brokers.bootstrap, name), "a coordinator"))
        copying.join()
        assert done, "the copier failed"
        assert json.loads(done[0].splitlines()[-1])["remaining"] == 0
        assert sorted(map(int, read(brokers.bootstrap, target))) == list(range(RECORDS))
