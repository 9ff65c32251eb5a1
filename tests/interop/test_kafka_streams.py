"""Kafka Streams' own word count on brokers, and Kafka's verifiable clients in groups."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import confluent_kafka as ck
import pytest

from sparklog.client.admin import Admin
from tests.harness.broker_processes import BrokerProcesses
from tests.harness.waiting import eventually
from tests.interop.brokers import Brokers
from tests.peers.jars import KAFKA_BROKER, KAFKA_STREAMS
from tests.peers.kafka import java

WORD_COUNT = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
APPLICATION = "streams-wordcount"
INPUT, OUTPUT = "streams-plaintext-input", "streams-wordcount-output"
LINES = ("all streams lead to kafka", "hello kafka streams", "join kafka summit") * 20
COUNTS = {
    "all": 20, "streams": 40, "lead": 20, "to": 20, "kafka": 60, "hello": 20, "join": 20,
    "summit": 20,
}  # fmt: skip
RUN_S = 400.0
JVM = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    with Brokers(f"memory://{uuid4()}", 2, QUICK) as cluster:
        with Admin(cluster.bootstrap) as admin:
            admin.create_topic(INPUT, partitions=2)
            admin.create_topic(OUTPUT, partitions=2)
        yield cluster


@contextlib.contextmanager
def running(class_path: str, *command: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a Java program until the block ends."""
    with (
        log.open("wb") as out,
        subprocess.Popen(
            [java(), *JVM, "-cp", class_path, *command], stdout=out, stderr=subprocess.STDOUT
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def send(brokers: Brokers | BrokerProcesses, lines: tuple[str, ...]) -> None:
    producer = ck.Producer({"bootstrap.servers": brokers.bootstrap})
    for number, line in enumerate(lines):
        producer.produce(INPUT, line.encode(), key=str(number).encode())
    assert producer.flush(RUN_S) == 0


def counted(
    brokers: Brokers | BrokerProcesses, expected: dict[str, int], log: Path
) -> dict[str, int]:
    """Return the newest counts, once they are as expected or time is up."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": brokers.bootstrap,
            "group.id": f"reader-{uuid4()}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([OUTPUT])
    found: dict[str, int] = {}
    deadline_s = time.monotonic() + RUN_S
    while found != expected and time.monotonic() < deadline_s:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            count = int.from_bytes(message.value() or b"", "big")
            word = (message.key() or b"").decode()
            assert count > found.get(word, 0), "a count went back"
            found[word] = count
    consumer.close()
    assert found == expected, log.read_text(errors="replace")[-3000:]
    return found


def caught_up(brokers: Brokers) -> bool:
    """Return whether Streams has committed that all it reads is processed."""
    consumer = ck.Consumer({"bootstrap.servers": brokers.bootstrap, "group.id": APPLICATION})
    try:
        partitions = [
            ck.TopicPartition(name, number)
            for name, topic in consumer.list_topics(timeout=RUN_S).topics.items()
            if name == INPUT or name.endswith("-repartition")
            for number in topic.partitions
        ]
        return all(
            max(0, place.offset) >= consumer.get_watermark_offsets(place, RUN_S)[1]
            for place in consumer.committed(partitions, RUN_S)
        )
    finally:
        consumer.close()


@pytest.mark.soak
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_words_are_counted_and_go_on_being_counted_after_a_kill(
    brokers: Brokers, tmp_path: Path, guarantee: str
) -> None:
    settings = tmp_path / "streams.properties"
    settings.write_text(
        f"bootstrap.servers={brokers.bootstrap}\n"
        f"processing.guarantee={guarantee}\n"
        f"state.dir={tmp_path / 'state'}\n"
        "commit.interval.ms=200\n"
        "consumer.session.timeout.ms=6000\n"
        "replication.factor=2\n"
    )
    send(brokers, LINES)
    log = tmp_path / "streams.log"
    with running(KAFKA_STREAMS.class_path(), WORD_COUNT, str(settings), log=log):
        counted(brokers, COUNTS, log)
        if guarantee == "at_least_once":  # what was not committed is rightly counted again
            eventually(lambda: caught_up(brokers), "all is committed", RUN_S)
    send(brokers, ("hello again",))
    with running(KAFKA_STREAMS.class_path(), WORD_COUNT, str(settings), log=log):
        counted(brokers, {**COUNTS, "hello": 21, "again": 1}, log)


@pytest.mark.soak
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_verifiable_consumer_reads_all_of_the_verifiable_producer(
    brokers: Brokers, tmp_path: Path, protocol: str
) -> None:
    tools = KAFKA_BROKER.class_path()
    at = ("--bootstrap-server", brokers.bootstrap, "--topic", INPUT, "--max-messages", "500")
    sent, read = tmp_path / "sent.log", tmp_path / "read.log"
    with running(tools, "org.apache.kafka.tools.VerifiableProducer", *at, log=sent) as process:
        process.wait(RUN_S)
    group = ("--group-id", "verified", "--group-protocol", protocol, "--reset-policy", "earliest")
    verifiable = "org.apache.kafka.tools.VerifiableConsumer"
    with running(tools, verifiable, *at, *group, "--verbose", log=read) as process:
        process.wait(RUN_S)
    events = [json.loads(line) for line in read.read_text().splitlines() if line[:1] == "{"]
    values = [event["value"] for event in events if event["name"] == "record_data"]
    assert sorted(values, key=int) == [str(number) for number in range(500)]
    commits = [event for event in events if event["name"] == "offsets_committed"]
    assert commits
    assert all(event["success"] for event in commits)
