"""The brokers of one application die with its driver, and those of another one go on.

With whole Spark applications: tests/spark/test_serve_soak.py. Source: decision 75.
"""

from __future__ import annotations

from pathlib import Path

from sparklog.client.admin import Admin
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.spark.demo.brokers import out_of_order
from sparklog.spark.demo.plain_client import PlainClient, read_everything
from tests.harness.broker_processes import BrokerProcesses
from tests.harness.client_gaps import longest_gaps
from tests.harness.waiting import eventually

PARTITIONS = 3
ROWS = [{"tailnum": f"N{number}", "text": "x" * 100} for number in range(1000)]
TAKEOVER_MAX_S = 2.0
DEADLINE_S = 120.0


def test_clients_go_on_when_half_of_the_brokers_die_at_once(tmp_path: Path) -> None:
    with BrokerProcesses((tmp_path / "log").as_uri(), tmp_path, count=4) as cluster:
        with Admin(cluster.bootstrap) as admin:
            admin.create_topic("t", PARTITIONS, replication_factor=3)
        client = PlainClient(cluster.bootstrap, "t", ROWS)
        client.start()
        eventually(lambda: len(client.acknowledged) >= 100, "it sends", DEADLINE_S)
        lost, left = cluster.brokers[:2], cluster.brokers[2:]
        killed_s = SYSTEM_CLOCK.monotonic_s()
        for broker in lost:
            broker.kill()
        gaps = longest_gaps(client, PARTITIONS, killed_s)
        client.stop()
        assert max(gaps) <= TAKEOVER_MAX_S, gaps
        assert client.failed == []
        found = read_everything(",".join(one.address for one in left), "t", PARTITIONS)
        numbers = [one.number for one in found]
        assert {one.number for one in client.acknowledged} <= set(numbers)
        assert len(set(numbers)) == len(numbers)
        assert out_of_order(found) == 0
