"""Brokers on whole clusters: workers and executors killed, queries beside them, drivers lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from sparklog.client.admin import Admin
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.spark.demo.brokers import out_of_order
from sparklog.spark.demo.plain_client import PlainClient, read_everything
from sparklog.spark.serve.broker_task import parent_of
from tests.harness.certificates import CertificateAuthority
from tests.harness.client_gaps import longest_gaps
from tests.harness.waiting import eventually
from tests.peers.sparklog import DEADLINE_S, PROJECT, SERVE, SparklogCluster
from tests.spark.standalone import daemon, family, free_port

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

SUBMIT = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
ROWS = [{"tailnum": f"N{number}", "text": "x" * 100} for number in range(1000)]
WORKERS = 4
QUERY_S = 90.0
"""A broker leaves slots to a query that has waited for ten seconds."""
QUERY = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
log = spark.read.format("sparklog").option("path", sys.argv[2]).option("subscribe", "t")
print(log.load().count())
"""


def test_brokers_survive_lost_executors_and_workers(tmp_path: Path) -> None:
    connect_port = free_port()
    with standalone(tmp_path) as master:
        words = (SUBMIT, "--master", master, "--properties-file")
        preset = str(PROJECT / "conf" / "serve-standalone.conf")
        options = ("--brokers", "3", "--connect-port", str(connect_port))
        program = (*words, preset, str(SERVE))
        with SparklogCluster(tmp_path / "serve", *options, program=program) as cluster:
            assert len({executor_of(cluster, broker) for broker in (1, 2, 3)}) == 3
            client = busy_client(cluster)
            (shown,) = [one["address"] for one in cluster.seen if one["event"] == "connect"]
            token = shown.partition("/;")[2]
            assert token.startswith("token=")
            local = f"sc://localhost:{connect_port}"
            assert query(cluster, f"{local}/;{token}") >= 100
            os.kill(executor_of(cluster, 2), signal.SIGKILL)
            cluster.until("ready", broker=2)
            lost = parent_of(executor_of(cluster, 1))
            assert lost is not None
            os.kill(lost, signal.SIGKILL)
            cluster.until("ready", broker=1)
            assert parent_of(executor_of(cluster, 1)) != lost, "it is back on another worker"
            assert query(cluster, f"{local}/;{token}") >= 100, "beside one of the brokers"
            assert not [one for one in cluster.seen if one["event"] == "failed"]
            with pytest.raises(AssertionError, match="No authentication token provided"):
                query(cluster, local)
            client.stop()
            check(cluster, client)
            cluster.process.send_signal(signal.SIGTERM)
            ended = cluster.rest()
            assert ended[-1]["drained"] == 3
            notes = [one["text"] for one in cluster.seen + ended if one["event"] == "note"]
            assert any("leaves slots to queries" in text for text in notes), notes


def test_spark_brings_the_certificate_of_the_driver_to_brokers(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    (tmp_path / "ca.pem").write_text(authority.pem)
    (tmp_path / "driver").mkdir()
    store = authority.issue("broker", "127.0.0.1").write(tmp_path / "driver" / "broker.pem")
    with standalone(tmp_path) as master:
        preset = str(PROJECT / "conf" / "serve-standalone.conf")
        words = (SUBMIT, "--master", master, "--properties-file", preset, "--files", str(store))
        options = ("--brokers", "2", "--config", "ssl.keystore.location=broker.pem")
        program = (*words, str(SERVE))
        with SparklogCluster(tmp_path / "serve", *options, program=program) as cluster:
            tls = {"security.protocol": "SSL", "ssl.truststore.location": str(tmp_path / "ca.pem")}
            with Admin(cluster.bootstrap, settings=tls) as admin:
                admin.create_topic("t", partitions=1)
                assert admin.topic_names() == ["t"]


@pytest.mark.parametrize("victim", ["launcher", "JVM"])
def test_lost_driver_leaves_no_process_and_loses_no_record(tmp_path: Path, victim: str) -> None:
    with SparklogCluster(tmp_path / "one", "--brokers", "3") as first:
        client = busy_client(first)
        processes = family(first.process.pid)
        os.kill(processes[0 if victim == "launcher" else 1], signal.SIGKILL)
        first.process.wait(DEADLINE_S)
        eventually(
            lambda: not any(map(parent_of, processes)), "the end of all processes", DEADLINE_S
        )
        client.abandon()
        with SparklogCluster(tmp_path / "two", "--brokers", "3", root=first.root) as second:
            check(second, client)


def busy_client(cluster: SparklogCluster, *more: str) -> PlainClient:
    """Create a topic, and return a client that has begun to send to it."""
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic("t", 3, replication_factor=3)
    client = PlainClient(",".join((cluster.bootstrap, *more)), "t", ROWS)
    client.start()
    eventually(lambda: len(client.acknowledged) >= 100, "100 acknowledged records", DEADLINE_S)
    return client


def check(cluster: SparklogCluster, client: PlainClient) -> None:
    """Every acknowledged record must be there once, and in order."""
    found = read_everything(cluster.bootstrap, "t", 3)
    numbers = [one.number for one in found]
    assert {one.number for one in client.acknowledged} <= set(numbers)
    assert len(set(numbers)) == len(numbers)
    assert out_of_order(found) == 0


def query(cluster: SparklogCluster, address: str) -> int:
    """Count the topic in the brokers' own application; returns how many records there are."""
    words = [sys.executable, "-c", QUERY, address, cluster.root]
    try:
        answer = subprocess.run(words, capture_output=True, text=True, timeout=QUERY_S, check=False)
    except subprocess.TimeoutExpired as error:
        log = cluster.log_file.read_text(errors="replace")[-3000:]
        raise AssertionError(
            f"a query has no answer: seconds={QUERY_S} stderr={error.stderr!r} "
            f"events={cluster.seen[-10:]} log={log}"
        ) from None
    assert answer.returncode == 0, answer.stderr[-3000:]
    return int(answer.stdout)


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """Run a master and workers with one slot for a broker each; yield the master's URL."""
    port = free_port()
    deploy = "org.apache.spark.deploy"
    with ExitStack() as stack:
        words = ("--host", "127.0.0.1", "--webui-port", "0")
        master = (f"{deploy}.master.Master", *words, "--port", str(port))
        stack.enter_context(daemon(folder / "master.log", *master))
        url = f"spark://127.0.0.1:{port}"
        for number in range(WORKERS):
            room = ("-c", "3", "-m", "2g", "-d", str(folder / f"worker-{number}"))
            worker = (f"{deploy}.worker.Worker", *words, *room, url)
            stack.enter_context(daemon(folder / f"worker-{number}.log", *worker))
        yield url


def executor_of(cluster: SparklogCluster, broker: int) -> int:
    """Return the JVM behind a broker: worker, daemon, JVM."""
    jvm = parent_of(parent_of(cluster.brokers[broker]["pid"]) or 0)
    assert jvm is not None
    return jvm


APPLICATIONS = ("blue", "green")
TAKEOVER_MAX_S = 2.0
BROKERS_EACH = 2


def test_clients_go_on_when_one_of_two_drivers_is_killed(tmp_path: Path) -> None:
    root = (tmp_path / "log").as_uri()
    with ExitStack() as stack:
        blue, green = (application(stack, tmp_path, name, root) for name in APPLICATIONS)
        assert sorted(blue.brokers) == [1, 2]
        assert sorted(green.brokers) == [101, 102], "ids are the log's"
        client = busy_client(blue, green.bootstrap)
        killed_s = SYSTEM_CLOCK.monotonic_s()
        kill_driver(blue)
        gaps = longest_gaps(client, 3, killed_s)
        print(f"longest gaps of acknowledgements after the driver's death: {gaps}", flush=True)
        assert max(gaps) <= TAKEOVER_MAX_S
        again = application(stack, tmp_path, "blue", root, "again")
        assert sorted(again.brokers) == [1, 2], "an application keeps its ids"
        client.stop()
        check(green, client)
        kill_driver(again)
        kill_driver(green)
    with SparklogCluster(tmp_path / "later", "--application", "later", root=root) as later:
        check(later, client)


def application(
    stack: ExitStack, folder: Path, name: str, root: str, place: str = ""
) -> SparklogCluster:
    """Start an application with a name, and wait until its brokers serve."""
    options = ("--brokers", str(BROKERS_EACH), "--application", name)
    return stack.enter_context(SparklogCluster(folder / (place or name), *options, root=root))


def kill_driver(cluster: SparklogCluster) -> None:
    """Kill the driver's processes, the launcher and its JVM, and wait for all others."""
    processes = family(cluster.process.pid)
    for one in processes[:2]:
        os.kill(one, signal.SIGKILL)
    cluster.process.wait(DEADLINE_S)
    eventually(lambda: not any(map(parent_of, processes)), "the end of all processes", DEADLINE_S)
