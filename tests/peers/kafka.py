"""A real Apache Kafka from jars: one or more KRaft nodes on loopback ports, gone when we are.

    with KafkaCluster() as kafka:
        kafka.bootstrap   # "127.0.0.1:40123"

Every node is broker and controller in one JVM. Data lie in a temporary folder that is removed at
the end. A node can be killed and started again with its data. Not for threads.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.harness.waiting import eventually
from tests.peers.jars import DEFAULT_CACHE, KAFKA_BROKER, KAFKA_VERSION

__all__ = ["KAFKA_VERSION", "KafkaCluster", "KafkaDidNotStart", "KafkaNode"]

HOST = "127.0.0.1"
CLUSTER_ID = "c3BhcmtsaWtlbG9ncGVlcg"
START_TIMEOUT_S = 400
START_TRIES = 3
STARTED = "Kafka Server started"
PROJECT = Path(__file__).resolve().parents[2]

SERVER_OPTIONS = (
    "-server",
    # Tests choose another collector for all Java (`quick_jvm`); a JVM with two does not start.
    "-XX:-UseSerialGC",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
LOGGING = """Configuration:
  Properties: {Property: [{name: p, value: "[%d] %p %m (%c)%n"}]}
  Appenders: {Console: {name: OUT, PatternLayout: {pattern: "${p}"}}}
  Loggers: {Root: {level: INFO, AppenderRef: [{ref: OUT}]}}
"""


class KafkaDidNotStart(RuntimeError):
    """A node ended or stayed silent; the message holds the end of its log."""


class KafkaNode:
    """One broker and controller."""

    def __init__(
        self,
        node_id: int,
        ports: tuple[int, int],
        folder: Path,
        java: Sequence[str],
        jvm_options: Sequence[str] = (),
        more_addresses: Mapping[str, str] | None = None,
    ) -> None:
        self._jvm_options = tuple(jvm_options)
        self.more_addresses = dict(more_addresses or {})
        """Host and port of further listeners, by name."""
        self.node_id = node_id
        self.port, self.controller_port = ports
        self.folder = folder
        self._java = tuple(java)
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Return host and port for clients."""
        return f"{HOST}:{self.port}"

    @property
    def guard_pid(self) -> int | None:
        """Return the process whose only child is the node's JVM; None while it is stopped."""
        return None if self._guard is None else self._guard.pid

    @property
    def voter(self) -> str:
        """Return the node's entry in `controller.quorum.voters`."""
        return f"{self.node_id}@{HOST}:{self.controller_port}"

    @property
    def data_folder(self) -> Path:
        """Return Kafka's `log.dirs`."""
        return self.folder / "data"

    @property
    def log_file(self) -> Path:
        """Return what the node prints."""
        return self.folder / "server.log"

    def format(self, settings: Mapping[str, str]) -> None:
        """Write the configuration and prepare the data folder."""
        self.folder.mkdir(parents=True)
        (self.folder / "log4j2.yaml").write_text(LOGGING)
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        self._properties.write_text(text)
        done = subprocess.run(
            [
                *(*self._java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                *("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID),
                *("-c", str(self._properties)),
            ],
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise KafkaDidNotStart(f"storage was not formatted. output={done.stdout}{done.stderr}")

    def launch(self, heap: str = "1g") -> None:
        """Start the JVM; returns before it serves."""
        assert self._guard is None, "the node runs"
        with self.log_file.open("wb") as log:
            self._guard = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.peers.guard", str(self.folder.parent)),
                    *(*self._java, f"-Xms{heap}", f"-Xmx{heap}", *SERVER_OPTIONS),
                    *self._jvm_options,
                    f"-Dlog4j2.configurationFile={self.folder / 'log4j2.yaml'}",
                    *("kafka.Kafka", str(self._properties)),
                ],
                cwd=PROJECT,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def await_start(self) -> None:
        """Wait until the node serves.

        Raises:
            KafkaDidNotStart: it ended, or did not serve in time.
        """
        guard = self._guard
        assert guard is not None, "launch it first"

        def settled() -> bool:
            return STARTED in self._log or guard.poll() is not None

        with contextlib.suppress(TimeoutError):
            eventually(settled, f"node {self.node_id} serves", START_TIMEOUT_S, every_s=0.1)
        if STARTED not in self._log:
            end_of_log = self._log[-3000:]
            raise KafkaDidNotStart(f"no broker. node={self.node_id} end_of_log={end_of_log}")

    def stop(self, *, kill: bool = False) -> None:
        """End the node, politely or as a crash does; its data stay. Stopping twice is fine."""
        guard, self._guard = self._guard, None
        if guard is None or guard.stdin is None:
            return
        with contextlib.suppress(BrokenPipeError):
            guard.stdin.write(b"K" if kill else b"T")
            guard.stdin.flush()
        guard.wait(START_TIMEOUT_S)
        with contextlib.suppress(BrokenPipeError):
            guard.stdin.close()

    @property
    def _log(self) -> str:
        return self.log_file.read_text(errors="replace")

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"


class KafkaCluster:
    """Several nodes that know each other; a context manager."""

    def __init__(
        self,
        nodes: int = 1,
        settings: Mapping[str, str] | None = None,
        *,
        heap: str = "1g",
        jvm_options: Sequence[str] = (),
        parent_folder: Path | None = None,
        jar_cache: Path = DEFAULT_CACHE,
        more_listeners: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare `nodes` nodes; `settings` go before ours in server.properties.

        `more_listeners` has the protocols of listeners beside the plain one, by name.
        """
        self._more_listeners = dict(more_listeners or {})
        self._jvm_options = tuple(jvm_options)
        self._count = nodes
        self._settings = dict(settings or {})
        self._heap = heap
        self._parent_folder = parent_folder
        self._jar_cache = jar_cache
        self._root: Path | None = None
        self.nodes: list[KafkaNode] = []

    @property
    def bootstrap(self) -> str:
        """Return `bootstrap.servers`."""
        return ",".join(node.address for node in self.nodes)

    def bootstrap_of(self, listener: str) -> str:
        """Return `bootstrap.servers` of a further listener."""
        return ",".join(node.more_addresses[listener] for node in self.nodes)

    def start(self) -> KafkaCluster:
        """Start every node and wait until all serve."""
        command = (java(), "-cp", KAFKA_BROKER.class_path(self._jar_cache))
        atexit.register(self.stop)
        for attempt in range(1, START_TRIES + 1):
            try:
                self._start(command)
                return self
            except KafkaDidNotStart as error:
                self.stop()
                # Free ports are found before they are used, so another process may take them.
                if attempt == START_TRIES or "Address already in use" not in str(error):
                    raise
            except BaseException:
                self.stop()
                raise
        raise AssertionError("the last attempt returns or raises")

    def stop(self) -> None:
        """End every node and remove all data. Stopping twice is fine."""
        for node in self.nodes:
            node.stop(kill=True)  # the data are not needed
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
        self.nodes, self._root = [], None
        atexit.unregister(self.stop)

    def restart_node(self, node_id: int) -> None:
        """Start a stopped node again, with its data."""
        node = next(node for node in self.nodes if node.node_id == node_id)
        node.launch(self._heap)
        node.await_start()

    def __enter__(self) -> KafkaCluster:
        """Start the cluster."""
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the cluster."""
        self.stop()

    def _start(self, java: Sequence[str]) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="kafka-peer-", dir=self._parent_folder))
        ports = iter(free_ports((2 + len(self._more_listeners)) * self._count))
        self.nodes = [
            KafkaNode(
                n + 1,
                (next(ports), next(ports)),
                self._root / f"node{n + 1}",
                java,
                self._jvm_options,
                {name: f"{HOST}:{next(ports)}" for name in self._more_listeners},
            )
            for n in range(self._count)
        ]
        for node in self.nodes:
            node.format({**self._node_settings(node), **self._settings})
            node.launch(self._heap)
        for node in self.nodes:
            node.await_start()

    def _node_settings(self, node: KafkaNode) -> dict[str, str]:
        replicas = str(min(3, self._count))
        in_sync = "1" if self._count == 1 else "2"
        own = {"PLAINTEXT": node.address, **node.more_addresses}
        advertised = ",".join(f"{name}://{address}" for name, address in own.items())
        more = "".join(f",{name}:{text}" for name, text in self._more_listeners.items())
        return {
            "process.roles": "broker,controller",
            "node.id": str(node.node_id),
            "controller.quorum.voters": ",".join(other.voter for other in self.nodes),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{advertised},CONTROLLER://{HOST}:{node.controller_port}",
            "advertised.listeners": advertised,
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{more}",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(node.data_folder),
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": in_sync,
            "group.initial.rebalance.delay.ms": "0",
        }


def java() -> str:
    """Return the Java that runs nodes and tools."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def free_ports(count: int) -> list[int]:
    """Return ports that were free a moment ago, all different."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in sockets]
