"""Java clients at brokers with TLS, logins and ACLs: tools, groups, transactions, Streams, Connect.

Each runs for longer than a session, so that each of its connections logs in again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from uuid import uuid4

import pytest

import sparklog
from tests.harness.waiting import eventually
from tests.interop.secure_cluster import (
    CERTIFICATE,
    MECHANISMS,
    SESSION_MS,
    SecureCluster,
    read_all,
    secure_cluster,
    send_paced,
    write_properties,
)
from tests.interop.test_kafka_connect import Appending, line, sink, source, worker
from tests.interop.test_kafka_streams import INPUT, OUTPUT, WORD_COUNT, running
from tests.peers.connect import errors
from tests.peers.jars import KAFKA_BROKER, KAFKA_STREAMS
from tests.peers.kafka_tools import run_tool

pytestmark = [pytest.mark.soak, pytest.mark.timeout(400)]
TOOLS = "org.apache.kafka.tools"
AGAIN_S = 5 * SESSION_MS // 1000
"""The duration of a run: each connection then logs in three times more, and a JVM starts."""
RECORDS = 400
RUN_S = 200.0
OTHERS = ("SCRAM-SHA-512", "OAUTHBEARER", CERTIFICATE)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    with secure_cluster(tmp_path_factory.mktemp("secure-java")) as running:
        yield running


def made(cluster: SecureCluster, name: str = "", partitions: int = 1) -> str:
    name = name or f"t-{uuid4().hex[:8]}"
    with sparklog.open_log(cluster.root) as log:
        log.create_topic(name, partitions, replication_factor=2)
    return name


def events(log: Path, kind: str) -> list[Mapping[str, str]]:
    """Return the events of a verifiable client, of one kind."""
    found = [json.loads(text) for text in log.read_text().splitlines() if text[:1] == "{"]
    return [event for event in found if event["name"] == kind]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_records_arrive_once_while_clients_log_in_again(
    cluster: SecureCluster, tmp_path: Path, mechanism: str, protocol: str
) -> None:
    topic, again = made(cluster), cluster.logins_again(mechanism)
    properties = str(cluster.properties(mechanism))
    java = (KAFKA_BROKER.class_path(), *cluster.jvm)
    at = ("--bootstrap-server", cluster.bootstrap(mechanism), "--topic", topic)
    count = ("--max-messages", str(RECORDS), "--command-config", properties)
    rate = ("--throughput", str(RECORDS // AGAIN_S))
    group = ("--group-id", topic, "--group-protocol", protocol, "--reset-policy", "earliest")
    sent, read = tmp_path / "sent.log", tmp_path / "read.log"
    reader = (f"{TOOLS}.VerifiableConsumer", *at, *group, "--verbose", *count)
    with (
        running(*java, *reader, log=read) as consumer,
        running(*java, f"{TOOLS}.VerifiableProducer", *at, *rate, *count, log=sent) as producer,
    ):
        producer.wait(RUN_S)
        consumer.wait(RUN_S)
    assert len(events(sent, "producer_send_success")) == RECORDS
    assert not events(sent, "producer_send_error")
    values = [event["value"] for event in events(read, "record_data")]
    assert values == [str(number) for number in range(RECORDS)]
    assert all(event["success"] for event in events(read, "offsets_committed"))
    if mechanism != CERTIFICATE:
        # A producer and a consumer, three times each.
        assert cluster.logins_again(mechanism) - again >= 6


@pytest.mark.parametrize("mechanism", OTHERS)
def test_transactions_commit_while_the_producer_logs_in_again(
    cluster: SecureCluster, mechanism: str
) -> None:
    topic, again = made(cluster), cluster.logins_again(mechanism)
    run_tool(
        "ProducerPerformance",
        *("--bootstrap-server", cluster.bootstrap(mechanism), "--topic", topic),
        *("--num-records", "2000", "--record-size", "10", "--throughput", "200"),
        *("--transactional-id", topic, "--transaction-duration-ms", "500"),
        *("--command-config", str(cluster.properties(mechanism))),
        jvm=cluster.jvm,
    )
    assert len(read_all(cluster.librdkafka(), topic, 2000)) == 2000
    assert mechanism == CERTIFICATE or cluster.logins_again(mechanism) - again >= 3


@pytest.mark.parametrize("mechanism", OTHERS)
def test_tools_administer_with_a_properties_file(
    cluster: SecureCluster, mechanism: str, tmp_path: Path
) -> None:
    given = ("--command-config", str(cluster.properties(mechanism)))
    at = ("--bootstrap-server", cluster.bootstrap(mechanism))
    topic = f"by-tool-{uuid4().hex[:6]}"

    def tool(name: str, *words: str) -> str:
        return run_tool(name, *at, *given, *words, jvm=cluster.jvm)

    tool("TopicCommand", "--create", "--topic", topic, "--partitions", "2")
    assert topic in tool("TopicCommand", "--list").split()
    tool("AclCommand", "--add", "--allow-principal", "User:bob", "--operation", "Read",
         "--topic", topic)  # fmt: skip
    assert "principal=User:bob" in tool("AclCommand", "--list", "--topic", topic)
    tool("ConfigCommand", "--alter", "--entity-type", "users", "--entity-name", topic,
         "--add-config", "SCRAM-SHA-512=[iterations=8192,password=x]")  # fmt: skip
    assert "iterations=8192" in tool(
        "ConfigCommand", "--describe", "--entity-type", "users", "--entity-name", topic
    )


def test_streams_count_exactly_once_while_they_log_in_again(
    cluster: SecureCluster, tmp_path: Path
) -> None:
    mechanism, again = "SCRAM-SHA-512", cluster.logins_again("SCRAM-SHA-512")
    for topic in (INPUT, OUTPUT):
        made(cluster, topic, 2)
    settings = {
        "bootstrap.servers": cluster.bootstrap(mechanism),
        **cluster.java(mechanism),
        "processing.guarantee": "exactly_once_v2",
        "state.dir": str(tmp_path / "state"),
        "commit.interval.ms": "200",
        "replication.factor": "2",
    }
    file = write_properties(tmp_path / "streams.properties", settings)
    log = tmp_path / "streams.log"
    words = [f"word{number % 7}" for number in range(RECORDS)]
    expected = {word: words.count(word) for word in words}
    with running(KAFKA_STREAMS.class_path(), WORD_COUNT, str(file), log=log):
        send_paced(cluster.librdkafka(), INPUT, words, AGAIN_S)

        def counts() -> dict[str, int]:
            found = read_all(cluster.librdkafka(), OUTPUT, 0, partitions=2)
            newest = {(key or b"").decode(): value or b"" for key, value in found}
            return {word: int.from_bytes(count, "big") for word, count in newest.items()}

        eventually(lambda: counts() == expected, "the counts", RUN_S, every_s=1)
    assert cluster.logins_again(mechanism) - again >= 12


@pytest.mark.parametrize("mechanism", OTHERS)
def test_connect_moves_lines_while_it_logs_in_again(
    cluster: SecureCluster, tmp_path: Path, mechanism: str
) -> None:
    again = cluster.logins_again(mechanism)
    run = uuid4().hex[:6]
    topic = made(cluster, f"lines-{run}")
    inputs, outputs = tmp_path / "in.txt", tmp_path / "out.txt"
    client = cluster.java(mechanism)
    with (
        Appending(inputs) as lines,
        worker(
            cluster.bootstrap(mechanism), tmp_path, 1, client=client, run=run, replicas=2,
            jvm=cluster.jvm,
        ) as one,
    ):  # fmt: skip
        one.make("reader", {**source(inputs), "topic": topic})
        one.make("writer", {**sink(outputs), "topics": topic})
        began = lines.count
        eventually(lambda: lines.count > began + AGAIN_S * 80, "the time of sessions")
        lines.end()
        expected = [line(number) for number in range(lines.count)]
        eventually(
            lambda: outputs.exists() and expected[-1] in outputs.read_text(), "the lines", RUN_S
        )
        assert errors(one.log) == []
    assert [
        value.decode() for _, value in read_all(cluster.librdkafka(), topic, lines.count) if value
    ] == (expected)
    assert outputs.read_text().split() == expected
    assert mechanism == CERTIFICATE or cluster.logins_again(mechanism) - again >= 9
