"""sparklog: three brokers as tasks on three executors here, as `jobs/serve.py` starts them."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Mapping
from math import inf

from prometheus_client.parser import text_string_to_metric_families

from tests.bench.common.side import ANSWER_TIMEOUT_S, Side
from tests.harness.waiting import eventually
from tests.peers.sparklog import SparklogCluster

PAGE_TIMEOUT_S = 10
SETTLE_TIMEOUT_S = 120
QUIET_S = 1.0

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
"""(name, labels) to the value, added up over brokers."""


class SparklogSide(Side):
    """Ours."""

    name = "sparklog"

    def __init__(self, cluster: SparklogCluster) -> None:
        """Use a started cluster."""
        super().__init__()
        self.cluster = cluster

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    def kill(self, broker: int) -> float:
        moment = time.monotonic()
        self.cluster.kill_broker(broker)
        return moment

    def restore(self, broker: int) -> None:
        self.cluster.until("ready", broker=broker)

    def pids(self) -> list[int]:
        return [broker["pid"] for broker in self.cluster.brokers.values()]

    def await_history(self, topic: str) -> None:
        """Wait until no broker holds anything in memory that storage does not have."""
        eventually(
            lambda: total(self.samples(), "sparklog_tail_bytes") == 0,
            f"{topic} flushed",
            SETTLE_TIMEOUT_S,
        )

    def await_quiet(self) -> None:
        """Wait until the last of what creating partitions asked the store for is over."""
        last = -inf

        def quiet() -> bool:
            nonlocal last
            before, last = last, total(self.samples(), "sparklog_store_requests_total")
            return last - before <= 2

        # Quiet means few requests in a while.
        eventually(quiet, "the brokers are quiet", ANSWER_TIMEOUT_S, every_s=QUIET_S)

    def samples(self) -> Samples:
        """Return what all brokers count, added up."""
        found: Samples = {}
        for broker in self.cluster.brokers.values():
            url = f"http://{broker['host']}:{broker['metrics_port']}/metrics"
            with urllib.request.urlopen(url, timeout=PAGE_TIMEOUT_S) as page:
                text = page.read().decode()
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    key = sample.name, frozenset(sample.labels.items())
                    found[key] = found.get(key, 0.0) + sample.value
        return found


def total(samples: Samples, name: str, labels: Mapping[str, str] | None = None) -> float:
    """Return the sum of a metric over all label sets that hold `labels`."""
    wanted = frozenset((labels or {}).items())
    return sum(value for (n, given), value in samples.items() if n == name and wanted <= given)
