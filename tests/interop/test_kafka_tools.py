"""Kafka's own command-line tools against brokers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.cli.conftest import Cli
from tests.harness.waiting import eventually
from tests.interop.brokers import Brokers
from tests.peers.kafka_tools import KafkaTools


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with Brokers(f"memory://{uuid4()}", count=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def tool(brokers: Brokers) -> KafkaTools:
    return KafkaTools(brokers.bootstrap)


@pytest.fixture
def topic(tool: KafkaTools) -> str:
    name = f"t-{uuid4().hex[:8]}"
    created = tool("TopicCommand", "--create", "--topic", name, "--replica-assignment", "1:2,2:1")
    assert created == [f"Created topic {name}."]
    return name


def end_offsets(tool: KafkaTools, topic: str, time: str = "-1") -> list[int]:
    lines = tool("GetOffsetShell", "--topic", topic, "--time", time)
    return [int(line.rsplit(":", 1)[1]) for line in lines]


def test_topics_and_settings(tool: KafkaTools, topic: str) -> None:
    tool(
        "ConfigCommand", "--alter", "--entity-type", "topics", "--entity-name", topic,
        "--add-config", "retention.ms=5000",
    )  # fmt: skip
    described = tool("TopicCommand", "--describe", "--topic", topic)
    assert re.search(r"PartitionCount: 2\tReplicationFactor: 2\tConfigs: retention", described[0])
    assert re.search(r"Partition: 0\tLeader: 1\tReplicas: 1,2\tIsr: ", described[1])
    configs = tool(
        "ConfigCommand", "--describe", "--entity-type", "topics",
        "--entity-name", topic,
    )  # fmt: skip
    assert "retention.ms=5000" in configs[1]
    tool("TopicCommand", "--alter", "--topic", topic, "--partitions", "4")
    assert len(tool("TopicCommand", "--describe", "--topic", topic)) == 5
    tool("TopicCommand", "--delete", "--topic", topic)
    versions = tool("BrokerApiVersionsCommand")
    assert sum("(id: " in line for line in versions) == 2


def test_levels_of_features_are_described_and_finalized(tool: KafkaTools) -> None:
    described = [line.split() for line in tool("FeatureCommand", "describe")]
    (own,) = (words for words in described if "sparklog.version" in words)
    assert own[2:8] == [
        *("SupportedMinVersion:", "1", "SupportedMaxVersion:", "2"),
        *("FinalizedVersionLevel:", "2"),
    ]
    again = tool("FeatureCommand", "upgrade", "--feature", "sparklog.version=2")
    assert again == ["sparklog.version was upgraded to 2."]


def test_settings_of_one_broker(tool: KafkaTools, cli_at: Callable[[str], Cli]) -> None:
    entity = ("--entity-type", "brokers", "--entity-name", "2")
    tool("ConfigCommand", "--alter", *entity, "--add-config", "max.connections=500")
    assert any(
        "max.connections=500" in line for line in tool("ConfigCommand", "--describe", *entity)
    )
    every = tool("ConfigCommand", "--describe", "--all", *entity)
    assert any("num.network.threads=3" in line for line in every), "of Kafka's brokers alone"
    where = ("--bootstrap-server", tool.bootstrap)
    assert (
        "max.connections=500"
        in cli_at(tool.bootstrap)("configs", *where, "--describe", *entity).text
    )
    tool("ConfigCommand", "--alter", *entity, "--delete-config", "max.connections")
    assert not any("=500" in line for line in tool("ConfigCommand", "--describe", *entity))


def test_records_of_the_producer_benchmark_are_all_there(tool: KafkaTools, topic: str) -> None:
    before = end_offsets(tool, topic)
    done = tool(
        "ProducerPerformance", "--topic", topic, "--num-records", "5000",
        "--record-size", "100", "--throughput", "-1",
        "--command-property", "compression.type=zstd",
    )  # fmt: skip
    assert done[-1].startswith("5000 records sent")
    after = end_offsets(tool, topic)
    assert sum(after) - sum(before) == 5000
    read = tool(
        "consumer.ConsoleConsumer", "--topic", topic, "--partition", "0",
        "--offset", "earliest", "--max-messages", str(after[0] - before[0]),
        "--timeout-ms", "10000",
    )  # fmt: skip
    assert len(read) == after[0] - before[0]


def test_records_are_deleted(tool: KafkaTools, topic: str, tmp_path: Path) -> None:
    tool("VerifiableProducer", "--topic", topic, "--max-messages", "40")
    ends = end_offsets(tool, topic)
    end = max(ends)  # without keys, the producer chooses which partition gets how much
    partition = ends.index(end)
    file = tmp_path / "delete.json"
    partitions = [{"topic": topic, "partition": partition, "offset": end - 2}]
    file.write_text(json.dumps({"version": 1, "partitions": partitions}))
    answer = tool("DeleteRecordsCommand", "--offset-json-file", str(file))
    assert answer[-1] == f"partition: {topic}-{partition}\tlow_watermark: {end - 2}"
    assert end_offsets(tool, topic, "-2")[partition] == end - 2


def test_replicas_move_and_leaders_are_elected(
    tool: KafkaTools, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "move.json"
    partitions = [{"topic": topic, "partition": p, "replicas": [2]} for p in range(2)]
    file.write_text(json.dumps({"version": 1, "partitions": partitions}))
    reassign = "reassign.ReassignPartitionsCommand"
    started = tool(reassign, "--reassignment-json-file", str(file), "--execute")
    assert started[-1].startswith("Successfully started partition reassignments")

    def moved() -> bool:
        verified = tool(reassign, "--reassignment-json-file", str(file), "--verify")
        return sum("is completed" in line for line in verified) == 2

    eventually(moved, "both replicas are moved")
    described = tool("TopicCommand", "--describe", "--topic", topic)
    assert all("Leader: 2\tReplicas: 2\tIsr: 2\t" in line for line in described[1:])
    tool("LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")
    (directories,) = [line for line in tool("LogDirsCommand", "--describe") if line.startswith("{")]
    assert {b["broker"] for b in json.loads(directories)["brokers"]} == {1, 2}
