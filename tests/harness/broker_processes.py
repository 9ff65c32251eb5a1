"""Brokers as processes of this machine, and what may be done to them.

with BrokerProcesses(root, folder) as brokers:
    brokers.bootstrap   # "127.0.0.1:40123,…"
    brokers.kill(2)
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from sparklog.testing.wire_proxy import WireProxy
from tests import asyncio_errors
from tests.harness.waiting import eventually

LISTENS = re.compile(r"listening on (\S+)")
BROKER = "sparklog.broker.main"
START_S = 300.0
STOP_S = 300.0
"""A broker that leaves may flush for a minute."""


class BrokerProcess:
    """One broker id, through all of its processes."""

    def __init__(
        self,
        broker_id: int,
        root: str,
        logs: Path,
        settings: Mapping[str, str],
        environment: Mapping[str, str],
        *,
        proxied: bool,
        program: str,
    ) -> None:
        """Prepare its first process, of module `program`; what all of them say goes to `logs`."""
        self.broker_id = broker_id
        self.proxy = WireProxy() if proxied else None
        self._log = logs / f"broker-{broker_id}.log"
        self._environment = {**os.environ, **environment}
        configs = dict(settings)
        if proxied:
            configs["advertised.listeners"] = f"PLAINTEXT://{self.address}"
        self._command = [sys.executable, "-m", program, "--root", root]
        self._command += ["--broker-id", str(broker_id)]
        for name, value in configs.items():
            self._command += ["--config", f"{name}={value}"]
        self.process: subprocess.Popen[bytes] | None = None
        self.installation: Path | None = None
        """The folder with the package that its next process imports; None for this checkout's."""

    @property
    def address(self) -> str:
        """Address for clients and other brokers, once it serves."""
        if self.proxy is not None:
            return f"127.0.0.1:{self.proxy.port}"
        return str(LISTENS.findall(self.log)[-1])

    @property
    def log(self) -> str:
        """Output of all of its processes."""
        return self._log.read_text() if self._log.exists() else ""

    def start(self) -> None:
        """Start a process, and do not wait for it to serve."""
        port = 0
        if self.proxy is not None:  # a port that is free since the last process had one
            port = _free_port()
            self.proxy.lead_to(port)
        command = [*self._command, "--listener", f"127.0.0.1:{port}"]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                cwd=self.installation,  # python -m looks there first
            )

    def serves(self) -> bool:
        """Return True if it listens; it must live until then."""
        assert self.process is not None
        assert self.process.poll() is None, self.log
        return LISTENS.search(self.log) is not None

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal, if it is there."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def kill(self) -> None:
        """End the process at once."""
        self.signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait(STOP_S)
        self._gone()

    def stop(self) -> None:
        """Have the process leave in good order, and wait for that."""
        self.signal(signal.SIGTERM)
        assert self.process is not None
        self.process.wait(STOP_S)
        self._gone()

    def _gone(self) -> None:
        if self.proxy is not None:
            self.proxy.lead_to(None)  # another process may listen there soon


class BrokerProcesses:
    """A cluster; a context manager."""

    def __init__(
        self,
        root: str,
        logs: Path,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        *,
        count: int = 3,
        proxied: bool = False,
        installation: Path | None = None,
        program: str = BROKER,
    ) -> None:
        """Prepare brokers 1 to `count`; each behind a proxy of its own, if they are `proxied`."""
        given = settings or {}, environment or {}
        self.brokers = [
            BrokerProcess(n, root, logs, *given, proxied=proxied, program=program)
            for n in range(1, count + 1)
        ]
        for broker in self.brokers:
            broker.installation = installation

    @property
    def bootstrap(self) -> str:
        """Return the addresses of all brokers, as clients take them."""
        return ",".join(broker.address for broker in self.brokers)

    def __enter__(self) -> BrokerProcesses:
        try:
            for broker in self.brokers:
                broker.start()
            eventually(
                lambda: all(broker.serves() for broker in self.brokers),
                "all brokers listen",
                START_S,
            )
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        if error is None:
            complaints = [asyncio_errors.lines_of(broker.log) for broker in self.brokers]
            assert not any(complaints), complaints

    def close(self) -> None:
        """End every process."""
        for broker in self.brokers:
            broker.signal(signal.SIGCONT)
            broker.kill()
            if broker.proxy is not None:
                broker.proxy.close()

    def kill(self, number: int) -> None:
        """Kill a broker with SIGKILL."""
        self.brokers[number - 1].kill()

    def isolate(self, one: BrokerProcess) -> None:
        """Cut a broker off from the others; clients and store reach everybody. For proxied ones."""
        self._check_names()
        for broker in self.brokers:
            assert broker.proxy is not None
            cut_off = [one] if broker is not one else [b for b in self.brokers if b is not one]
            broker.proxy.cut(*(_name(other) for other in cut_off))

    def refuse_all_links(self) -> None:
        """Have every broker refuse the others; clients and store reach everybody. Proxied ones."""
        self._check_names()
        for broker in self.brokers:
            assert broker.proxy is not None
            broker.proxy.refuse(*(_name(other) for other in self.brokers if other is not broker))

    def _check_names(self) -> None:
        """Check that the proxies know brokers by name: else a fault of a link would do nothing."""
        names = {_name(broker) for broker in self.brokers}
        seen = {name for b in self.brokers if b.proxy is not None for name in b.proxy.seen}
        assert names & seen, f"no proxy knows a broker as its caller. callers={sorted(seen)}"

    def heal(self) -> None:
        """Undo everything: each broker is there, runs, and reaches the others."""
        for broker in self.brokers:
            if broker.proxy is not None:
                broker.proxy.heal()
            broker.signal(signal.SIGCONT)
            if broker.process is None or broker.process.poll() is not None:
                broker.start()


def _name(broker: BrokerProcess) -> str:
    return f"broker-{broker.broker_id}"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port: int = held.getsockname()[1]
        return port
