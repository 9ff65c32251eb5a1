"""Brokers as tasks of real Spark applications: killed in every way, refused, drained.

The brokers here only echo. The tests check everything around them.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest

from sparklog.spark.serve.broker_task import parent_of
from sparklog.spark.serve.spark_secrets import CONNECT_VARIABLE
from tests.harness.waiting import eventually
from tests.peers.sparklog import DEADLINE_S, SparklogCluster
from tests.spark.echo_broker import COMPLAIN
from tests.spark.standalone import family, free_port

PROGRAM = Path(__file__).with_name("serve_echo.py")
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"


@contextmanager
def launched(words: Sequence[str], folder: Path) -> Iterator[SparklogCluster]:
    """Start a launcher of brokers that echo, and end it in any case."""
    with SparklogCluster(folder, program=words, waits=False) as one:
        yield one


def echo(broker: Mapping[str, Any], text: bytes) -> bytes:
    """Ask a broker, and return its answer."""
    with socket.create_connection((broker["host"], broker["port"]), DEADLINE_S) as client:
        client.sendall(text)
        return client.recv(100)


def await_end(pid: int) -> None:
    eventually(lambda: parent_of(pid) is None, f"the end of process {pid}", DEADLINE_S)


def executor_of(broker: Mapping[str, Any]) -> int:
    """Return the process id of the JVM behind a broker: worker, daemon, JVM."""
    daemon = parent_of(broker["pid"])
    assert daemon is not None
    jvm = parent_of(daemon)
    assert jvm is not None
    return jvm


def test_killed_brokers_come_back_and_a_signal_drains_them_all(tmp_path: Path) -> None:
    ready_file = tmp_path / "ready.json"
    words = [sys.executable, str(PROGRAM), "--brokers", "3", "--ready-file", str(ready_file)]
    with launched(words, tmp_path) as launcher:
        brokers = {one["broker"]: one for one in launcher.until("serving")["brokers"]}
        assert sorted(brokers) == [1, 2, 3]
        assert len({executor_of(one) for one in brokers.values()}) == 3, "one per executor"
        for one in brokers.values():
            assert echo(one, b"hello") == f"{one['pid']} hello".encode()

        worker, daemon = brokers[1]["pid"], parent_of(brokers[2]["pid"])
        assert daemon is not None
        executor = executor_of(brokers[3])
        os.kill(worker, signal.SIGKILL)
        launcher.until("lost", broker=1)
        again = launcher.until("ready", broker=1)
        assert again["pid"] != worker
        launcher.until("serving")

        os.kill(again["pid"], signal.SIGTERM)  # one broker is restarted in good order
        launcher.until("drained", broker=1)
        launcher.until("ready", broker=1)
        launcher.until("serving")

        os.kill(daemon, signal.SIGKILL)  # as the kernel does when memory runs out
        launcher.until("lost", broker=2)
        await_end(brokers[2]["pid"])
        launcher.until("ready", broker=2)
        launcher.until("serving")

        os.kill(executor, signal.SIGKILL)
        launcher.until("lost", broker=3)
        await_end(brokers[3]["pid"])
        back = launcher.until("ready", broker=3)
        assert echo(back, b"there?") == f"{back['pid']} there?".encode()
        launcher.until("serving")
        written = json.loads(ready_file.read_text())
        ports = [one["port"] for one in written["brokers"]]
        assert written["bootstrap_servers"] == ",".join(f"127.0.0.1:{port}" for port in ports)
        assert back["port"] in ports

        echo(back, COMPLAIN)
        os.killpg(launcher.process.pid, signal.SIGINT)  # as a terminal does: to executors, too
        ended = launcher.rest()
        assert not Path(back["folder"]).exists(), "the logs of executors are gone with it"
        complaints = launcher.logs.close()  # the block would fail
    (stderr, (line,)) = complaints.popitem()
    assert Path(stderr).parent == Path(back["folder"])
    assert line.endswith("ERROR asyncio Task exception was never retrieved")
    assert not complaints
    assert [one["drained"] for one in ended if one["event"] == "stopped"] == [True] * 3
    assert ended[-1]["drained"] == 3
    assert launcher.process.returncode == 130
    told = (tmp_path / "launcher.log").read_text()
    assert "ShutdownHook" not in told, told  # an end in good order has nothing to complain of


@pytest.mark.parametrize(
    "end",
    [
        lambda jvm: os.kill(jvm, signal.SIGTERM),
        pytest.param(lambda jvm: os.killpg(jvm, signal.SIGINT), marks=pytest.mark.soak),
    ],
    ids=["SIGTERM", "Ctrl-C in a terminal"],
)
def test_a_submitted_launcher_drains_when_spark_is_ended(
    tmp_path: Path, end: Callable[[int], None]
) -> None:
    """YARN, Kubernetes and operators end the JVM, in which Spark would stop executors at once."""
    words = [str(SUBMIT), "--master", "local-cluster[1,1,1024]", str(PROGRAM), "--brokers", "1"]
    with launched(words, tmp_path) as launcher:
        launcher.until("serving")
        # The master of spark-submit's command line, not the launcher's own choice with two slots.
        assert "brokers take every slot" in launcher.until("note")["text"]
        end(launcher.process.pid)  # spark-submit has become the JVM
        ended = launcher.rest()
    assert {"event": "stopped", "broker": 1, "drained": True} in ended, ended
    assert (ended[-1]["event"], ended[-1].get("drained")) == ("ended", 1), "the report is the last"


def test_settings_that_a_broker_refuses_end_the_launcher(tmp_path: Path) -> None:
    words = [sys.executable, str(PROGRAM), "--brokers", "1", "--master", "local[2]"]
    with launched([*words, "--rack", "wrong"], tmp_path) as launcher:
        failed = launcher.until("failed")
        launcher.rest()
    assert failed["message"] == "there is no such rack. broker.rack=wrong"
    assert launcher.process.returncode == 1
    assert "refuses its settings" in (tmp_path / "launcher.log").read_text()


COUNT = """\
import sys
from pyspark.sql import SparkSession

print(SparkSession.builder.remote(sys.argv[1]).getOrCreate().range(5).count())
"""


def counted(address: str) -> subprocess.CompletedProcess[str]:
    """Count five rows by Spark Connect."""
    environment = {k: v for k, v in os.environ.items() if k != CONNECT_VARIABLE}
    return subprocess.run(
        [sys.executable, "-c", COUNT, address],
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def test_spark_connect_rejects_a_query_without_the_printed_token(tmp_path: Path) -> None:
    port = str(free_port())
    words = [sys.executable, str(PROGRAM), "--brokers", "1", "--connect-port", port]
    with launched(words, tmp_path) as launcher:
        address = launcher.until("connect")["address"]
        launcher.until("serving")
        token = address.partition("token=")[2]
        for process in family(launcher.process.pid):
            words_of = Path(f"/proc/{process}/cmdline").read_bytes()
            assert token.encode() not in words_of
            assert b"authenticate.secret" not in words_of
        refused = counted(address.partition("/;")[0])
        assert refused.returncode != 0
        assert "No authentication token provided" in refused.stderr
        accepted = counted(address)
        assert accepted.stdout.strip() == "5", accepted.stderr[-2000:]
