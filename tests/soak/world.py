"""Clusters of broker processes under load: what tests of real faults act on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.testing.history import Send, check
from tests.harness.broker_processes import BrokerProcesses
from tests.harness.fault_proxy import FaultProxy
from tests.harness.waiting import WITHIN_S, eventually
from tests.soak.load import Load

QUICK = {"broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "500"}


@dataclass
class World:
    """A cluster, its clients, and the way to its store if there is one that can fail."""

    cluster: BrokerProcesses
    load: Load
    store: FaultProxy | None = None

    def after(self, seconds: float) -> None:
        """Let things go on for a while: faults last as long as a story says."""
        SYSTEM_CLOCK.sleep_s(seconds)  # and nothing is waited for

    def flows(self, records: int = 50, within_s: float = WITHIN_S) -> None:
        """Wait until `records` more records were acknowledged."""
        wanted = self.load.acknowledged + records
        try:
            eventually(lambda: self.load.acknowledged >= wanted, "acknowledgements", within_s)
        except TimeoutError as error:
            raise AssertionError(self._why("nothing is acknowledged")) from error

    def judge(self) -> None:
        """Let it all end well, and look at what was seen."""
        self.cluster.heal()
        self.flows()
        self.load.finish()
        assert not self.load.complaints, self._why("\n".join(self.load.complaints[:20]))
        anomalies = check(self.load.history)
        assert not anomalies, self._why("\n".join(map(str, anomalies[:20])))
        assert sum(isinstance(one, Send) for one in self.load.history) > 300

    def _why(self, what: str) -> str:
        logs = "\n\n".join(broker.log[-3000:] for broker in self.cluster.brokers)
        return f"{what}\n\n{logs}"


@contextmanager
def world_on(
    root: str,
    folder: Path,
    settings: Mapping[str, str],
    configs: Mapping[str, str] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    store: FaultProxy | None = None,
    replicas: int = 3,
) -> Iterator[World]:
    """Run three brokers over a root, with two producers and a consumer."""
    with BrokerProcesses(root, folder, settings, environment, proxied=True) as cluster:
        load = Load(cluster.bootstrap, "events", 3)
        load.create_topic(configs or {}, replicas)
        load.start(producers=2, consumers=1)
        try:
            yield World(cluster, load, store)
        finally:
            load.give_up()
