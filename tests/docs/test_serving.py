"""The commands that serve a log, as README and SERVING print them, in a user's environment.

No variable of Spark's is set, and the machine has a network besides loopback.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.find_spark_home import _find_spark_home as find_spark_home

from tests.docs.test_readme import blocks
from tests.peers.bare import ADDRESS, BareShell, bare_shell

PROJECT = Path(__file__).resolve().parents[2]
DAEMON = "spark-class org.apache.spark.deploy"


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[BareShell]:
    """A user's shell."""
    with bare_shell(tmp_path / "home") as one:
        yield one


def test_readmes_command_serves_clients_beside_another_network(
    shell: BareShell, tmp_path: Path
) -> None:
    (serve,) = re.findall(r"^sparklog serve .*--port 9092$", "\n".join(blocks("sh")), re.MULTILINE)
    texts = [b for b in blocks("sh") if "localhost:9092" in b]
    ours = re.findall(r"^sparklog (?:.*\\\n)*.*", "\n".join(texts), re.MULTILINE)
    work_before = sorted(Path(find_spark_home()).glob("work/*"))
    with shell.running(serve, tmp_path) as served:
        log = Path(served.until("starting Spark").rpartition(" ")[2])
        told = served.until("serving: ")
        assert log.is_file()
        assert told.endswith("serving: 127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"), told
        said = "".join(shell.run(command, tmp_path) for command in ours)
        assert served.end(signal.SIGINT) == 130
    assert len(ours) == 11
    assert "billing         orders          2 " in said, "where a group would go on"
    assert said.count("Topic: orders") >= 3, "described, partition by partition"
    assert not [line for line in served.lines if "note:" in line]
    assert served.lines[-1].endswith("3 of 3 brokers drained")
    assert not [line for line in served.lines if "WARN" in line], "that is for Spark's log"
    assert not log.parent.exists()
    assert sorted(Path(find_spark_home()).glob("work/*")) == work_before


def test_servings_command_for_a_cluster_serves_at_the_machines_address(
    shell: BareShell, tmp_path: Path
) -> None:
    serving = (PROJECT / "sparklog/spark/SERVING.md").read_text(encoding="utf-8")
    (submit,) = re.findall(r"^spark-submit (?:.*\\\n)+.*?(?=\s+#)", serving, re.MULTILINE)
    with ExitStack() as stack:
        words = f"{DAEMON}.master.Master --webui-port 0"
        master = stack.enter_context(shell.running(words, tmp_path)).until("Starting Spark master")
        url = master.split()[-1]
        # Room for three executors as the preset has them, whatever processors there are.
        words = f"{DAEMON}.worker.Worker --webui-port 0 -c 9 -m 3g -d {tmp_path}/work {url}"
        stack.enter_context(shell.running(words, tmp_path)).until("registered with master")
        command = submit.replace("spark://host:7077", url)
        command = command.replace("s3://bucket/log", (tmp_path / "log").as_uri())
        served = stack.enter_context(shell.running(command, PROJECT))
        bootstrap = served.until("serving: ").rpartition(" ")[2]
        shell.run(
            f"sparklog topics --bootstrap-server {bootstrap} --create --topic orders"
            " --partitions 3 --replication-factor 3",
            tmp_path,
        )
        assert not [line for line in served.lines if "note:" in line]
        served.end(signal.SIGTERM)
    if shell.has_own_network:
        assert {one.split(":")[0] for one in bootstrap.split(",")} == {ADDRESS}
    assert served.lines[-1].endswith("3 of 3 brokers drained")
