"""State of a running broker process: `/debug/state`, and stacks on SIGUSR1."""

from __future__ import annotations

import json
import signal
import socket
import urllib.request
from pathlib import Path
from typing import Any

import sparklog
from sparklog.broker.debug_state import is_ready
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import (
    BrokerRegistrationChangeRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    TopicRecord,
)
from tests.harness.broker_processes import BrokerProcesses
from tests.harness.waiting import eventually


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def state_of(port: int) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/debug/state", timeout=30) as answer:
        assert answer.headers["Content-Type"] == "application/json"
        state: dict[str, Any] = json.load(answer)
        return state


def test_debug_state_shows_roles_offsets_and_tasks(tmp_path: Path) -> None:
    root, port = tmp_path / "log", free_port()
    sparklog.open_log(str(root)).create_topic("orders", partitions=2)
    with BrokerProcesses(
        str(root),
        tmp_path,
        {"metrics.port": str(port)},
        {"SPARKLOG_LOG": "broker.node:DEBUG"},
        count=1,
    ) as brokers:
        (broker,) = brokers.brokers

        def leads() -> bool:
            partitions = state_of(port)["partitions"]
            return [p["role"] for p in partitions if p["topic"] == "orders"] == ["leader"] * 2

        eventually(leads, "the broker leads both partitions", within_s=60)
        state = state_of(port)
        assert state["broker"]["id"] == 1
        assert state["metadata"]["controller"] == 1
        orders = next(p for p in state["partitions"] if p["topic"] == "orders")
        assert orders["high_watermark"] == orders["log_end_offset"] == 0
        assert orders["waiting_produce"] == 0
        assert any(task["name"].endswith("heartbeats") for task in state["tasks"])
        broker.signal(signal.SIGUSR1)
        eventually(lambda: "Current thread" in broker.log, "stacks in the log", within_s=30)
        assert broker.process is not None
        assert broker.process.poll() is None


def test_a_broker_is_ready_while_it_is_in_sync_and_stays() -> None:
    def image(*records: Record) -> MetadataImage:
        brokers = [RegisterBrokerRecord(n, "a", "localhost", 9092) for n in (1, 2)]
        topic = TopicRecord("t", "A" * 22)
        lead = PartitionRecord("A" * 22, 0, (1, 2), (1,), 1)
        made = [*brokers, topic, lead, *records]
        return MetadataImage().applied(made, len(made))

    behind = image()
    assert (is_ready(behind, 1), is_ready(behind, 2), is_ready(behind, 3)) == (True, False, False)
    in_sync = image(PartitionRecord("A" * 22, 0, (1, 2), (1, 2), 1))
    assert is_ready(in_sync, 2)
    leaving = image(BrokerRegistrationChangeRecord(1, 0, in_controlled_shutdown=True))
    assert not is_ready(leaving, 1)
    assert not is_ready(image(BrokerRegistrationChangeRecord(1, 0, fenced=True)), 1)
