"""A standalone Spark cluster of this machine, each of its workers at an address of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import pyspark

from sparklog.spark.serve.broker_task import parent_of
from tests.peers.guard import die_with_parent
from tests.peers.sparklog import spark_environment

SPARK_HOME = Path(pyspark.__file__).parent
DEPLOY = "org.apache.spark.deploy"
STOP_S = 120


@contextmanager
def standalone_cluster(
    folder: Path, hosts: Sequence[str] = ("127.0.0.1",), cores: int = 2, memory: str = "2g"
) -> Iterator[str]:
    """Run a master and a worker at each of `hosts`; yields the master's URL."""
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    at = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
    with ExitStack() as running:
        running.enter_context(daemon(folder / "master.log", f"{DEPLOY}.master.Master", *at))
        for host in hosts:
            limits = ("-c", str(cores), "-m", memory, "-d", str(folder / "work"))
            words = ("--host", host, "--webui-port", "0", *limits, url)
            log = folder / f"worker-{host}.log"
            running.enter_context(daemon(log, f"{DEPLOY}.worker.Worker", *words))
        yield url


@contextmanager
def daemon(log_file: Path, *argv: str) -> Iterator[None]:
    """Run one of Spark's daemons in the foreground of its own process group."""
    with log_file.open("wb") as output:
        process = subprocess.Popen(
            [str(SPARK_HOME / "bin" / "spark-class"), *argv],
            env=spark_environment(),
            stdout=output,
            stderr=subprocess.STDOUT,
            # It would outlive a test run that is killed.
            preexec_fn=partial(die_with_parent, signal.SIGTERM),  # noqa: PLW1509
            start_new_session=True,
        )
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(STOP_S)


def free_port() -> int:
    """Return a port without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def family(pid: int) -> list[int]:
    """Return a process and all that it started, parents before children."""
    parents = {int(path.name): parent_of(int(path.name)) for path in Path("/proc").glob("[0-9]*")}
    found = [pid]
    for one in found:
        found += sorted(child for child, parent in parents.items() if parent == one)
    return found
