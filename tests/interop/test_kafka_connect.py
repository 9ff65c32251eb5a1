"""Kafka Connect moves lines between files through brokers, though it and a broker are killed."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from sparklog.client.admin import Admin
from sparklog.client.values import GroupDescription
from tests.harness.broker_processes import BrokerProcesses
from tests.harness.waiting import eventually
from tests.interop.test_kafka_streams import running
from tests.interop.test_transactions import SETTINGS, read
from tests.peers.connect import ANY_PORT, DISTRIBUTED, Worker, errors, program
from tests.peers.jars import KAFKA_CONNECT

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]
GROUP, TOPIC, SOURCE, SINK = "connect-cluster", "lines", "reader", "writer"
PAUSE_S = 0.01
ROUND = 300
"""Lines that flow before something is killed and after."""
WITHIN_S = 200.0


class Appending:
    """Appends numbered lines to a file until the test stops it."""

    def __init__(self, path: Path) -> None:
        self.count = 0
        self._path = path
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._append)

    def __enter__(self) -> Appending:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Append no more."""
        self._end.set()
        self._thread.join()

    def _append(self) -> None:
        with self._path.open("a", buffering=1) as file:
            while not self._end.wait(PAUSE_S):
                file.write(f"{line(self.count)}\n")
                self.count += 1


def line(number: int) -> str:
    """Return a line that is found again even where a killed writer has broken another."""
    return f"<{number}>"


@contextlib.contextmanager
def worker(
    bootstrap: str,
    folder: Path,
    number: int,
    *,
    client: Mapping[str, str] | None = None,
    run: str = "",
    replicas: int = 3,
    jvm: tuple[str, ...] = (),
) -> Iterator[Worker]:
    """Run a worker until the block ends, which kills it.

    `client` has settings of its clients. Another `run` shares no topic and no group.
    """
    internal = ("offset", "config", "status")
    roles = ("", "producer.", "consumer.", "admin.")
    settings = {
        "bootstrap.servers": bootstrap,
        **{f"{role}{name}": text for role in roles for name, text in (client or {}).items()},
        "group.id": f"{GROUP}{run}",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        **{f"{name}.storage.topic": f"connect{run}-{name}" for name in internal},
        **{f"{name}.storage.replication.factor": str(replicas) for name in internal},
        "exactly.once.source.support": "enabled",
        "consumer.isolation.level": "read_committed",
        # A worker that starts waits until transactions of one that was killed have timed out.
        "producer.transaction.timeout.ms": "30000",
        "offset.flush.interval.ms": "500",
        "scheduled.rebalance.max.delay.ms": "0",
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "2000",
        "listeners": ANY_PORT,
    }
    log = folder / f"worker-{number}.log"
    words = program(DISTRIBUTED, settings, folder)
    with running(KAFKA_CONNECT.class_path(), *jvm, *words, log=log):
        yield Worker(log)


def source(file: Path) -> Mapping[str, str]:
    return {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(file),
        "topic": TOPIC,
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "3",
        "exactly.once.support": "required",
    }


def sink(file: Path) -> Mapping[str, str]:
    return {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "tasks.max": "1",
        "file": str(file),
        "topics": TOPIC,
    }


def leader(bootstrap: str) -> int | None:
    """Return the broker that leads the topic, once one does."""
    with Admin(bootstrap) as admin:
        return max(0, admin.topic(TOPIC).partition_states[0].leader)


def sinks_coordinator(bootstrap: str) -> int | None:
    """Return the broker that coordinates the group in which the sink's task reads."""
    group = f"connect-{SINK}"
    with Admin(bootstrap) as admin:
        found = admin.groups.describe([group])[group]
    return found.coordinator.broker_id if isinstance(found, GroupDescription) else None


@pytest.mark.parametrize("victim", [leader, sinks_coordinator])
def test_lines_are_moved_though_the_worker_and_a_broker_are_killed(
    tmp_path: Path, victim: Callable[[str], int | None]
) -> None:
    """Each line is in the topic once and in order, and in the other file at least once."""
    inputs, outputs = tmp_path / "in.txt", tmp_path / "out.txt"

    def written() -> list[str]:
        return re.findall(r"<\d+>", outputs.read_text()) if outputs.exists() else []

    def flows(worker: Worker, lines: Appending) -> None:
        """Wait for a line that was appended after now."""
        last = line(lines.count + ROUND)
        eventually(lambda: worker.works() and last in written(), last, WITHIN_S, every_s=0.2)

    with (
        BrokerProcesses((tmp_path / "log").as_uri(), tmp_path, SETTINGS) as brokers,
        Admin(brokers.bootstrap) as admin,
    ):
        with Appending(inputs) as lines:
            with worker(brokers.bootstrap, tmp_path, 1) as first:
                first.make(SOURCE, source(inputs))
                eventually(lambda: TOPIC in admin.topic_names(), "the topic")
                first.make(SINK, sink(outputs))
                flows(first, lines)
                assert errors(first.log) == []
            with worker(brokers.bootstrap, tmp_path, 2) as second:
                flows(second, lines)
                found = eventually(lambda: victim(brokers.bootstrap), "the broker to kill")
                brokers.kill(found)
                flows(second, lines)
                lines.end()
                expected = [line(number) for number in range(lines.count)]
                eventually(lambda: expected[-1] in written(), "the last line", WITHIN_S)
                for connector in (SOURCE, SINK):
                    eventually(partial(second.runs, connector), f"{connector} runs", WITHIN_S)
        assert read(brokers.bootstrap, TOPIC, partitions=1) == expected
        assert list(dict.fromkeys(written())) == expected
