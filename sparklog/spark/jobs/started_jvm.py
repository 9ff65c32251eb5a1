"""Starts Spark's JVM for jobs that spark-submit did not start, wherever this machine is.

Spark looks up the host's own name before it reads any setting, and ends if that resolves to
nothing. Only its environment can spare it that.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway

from sparklog.core.errors import Unavailable
from sparklog.spark.jobs.addresses import LOOPBACK, is_local, outward_address
from sparklog.spark.jobs.class_archive import with_archive
from sparklog.spark.jobs.work_folder import ServeFolder

LOCAL_ADDRESS: Final = "SPARK_LOCAL_IP"  # Spark's, read by its JVM at the start
ADDRESS_VARIABLES: Final = (LOCAL_ADDRESS, "SPARK_LOCAL_HOSTNAME")
"""By which users give Spark this machine's address."""


def jvm_runs() -> bool:
    """Return whether this process has a JVM of Spark."""
    return SparkContext._gateway is not None  # noqa: SLF001 - Python has no other way


def start_jvm(settings: Mapping[str, str], log: Path | None = None) -> SparkConf:
    """Start Spark's JVM unless one runs; return its settings: these and those of Spark's files.

    Args:
        settings: arguments of the JVM.
        log: the file for its output; None leaves that to the terminal.

    Raises:
        Unavailable: it did not start; the file says why.
    """
    conf = with_archive(settings, ("spark.driver.defaultJavaOptions",))
    if not jvm_runs():
        _launch(conf, _address_for(settings.get("spark.master")), log)
    return SparkConf()


def start_quiet_jvm(
    settings: Mapping[str, str], folder: ServeFolder, secrets: Mapping[str, str] | None = None
) -> None:
    """Start Spark's JVM with its home in a folder of ours, and its output in a file.

    Args:
        settings: arguments of the JVM, which all users of the machine see.
        folder: of the home and the file.
        secrets: variables of the JVM alone.

    Raises:
        Unavailable: it did not start; the file says why.
    """
    address = _address_for(settings.get("spark.master"))
    variables = {**address, **(secrets or {}), "SPARK_HOME": str(folder.spark_home)}
    _launch(settings, variables, folder.log)


def _launch(settings: Mapping[str, str], variables: Mapping[str, str], log: Path | None) -> None:
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    with _variables(variables), ExitStack() as stack:
        words: dict[str, Any] = {}
        if log is not None:
            words = {"stdout": stack.enter_context(log.open("ab")), "stderr": subprocess.STDOUT}
        try:
            gateway = launch_gateway(conf, words)  # type: ignore[no-untyped-call]
        except PySparkException as error:
            place = "its output" if log is None else str(log)
            raise Unavailable(f"Spark did not start: {place} says why") from error
    SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001 - Python has no other way


def _address_for(master: str | None) -> dict[str, str]:
    """Return the options that give a JVM this machine's address, if Spark may not find it."""
    environment = os.environ  # noqa: TID251 - this is the edge
    if any(name in environment for name in ADDRESS_VARIABLES):
        return {}
    if master is not None and is_local(master):
        return {LOCAL_ADDRESS: LOOPBACK}
    return {} if _own_name_resolves() else {LOCAL_ADDRESS: outward_address()}


@contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for processes that start meanwhile."""
    environment = os.environ  # noqa: TID251 - this is the edge
    before = {name: environment.get(name) for name in values}
    environment.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del environment[name]
            else:
                environment[name] = value


def _own_name_resolves() -> bool:
    try:
        socket.getaddrinfo(socket.gethostname(), None)
    except OSError:
        return False
    return True
