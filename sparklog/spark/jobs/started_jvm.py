"""Starts Spark's JVM for jobs that spark-submit did not start, wherever this machine is.

Spark looks up the host's own name before it reads any setting, and ends if that resolves to
nothing. Only its environment can spare it that.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

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


def start_jvm(settings: Mapping[str, str]) -> SparkConf:
    """Start Spark's JVM unless one runs; return its settings: these and those of Spark's files."""
    conf = with_archive(settings, ("spark.driver.defaultJavaOptions",))
    with _variables(_address_for(settings.get("spark.master"))):
        SparkContext._ensure_initialized(  # noqa: SLF001 - Python has no other way
            conf=SparkConf(loadDefaults=False).setAll(list(conf.items()))
        )
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
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    address = _address_for(settings.get("spark.master"))
    variables = {**address, **(secrets or {}), "SPARK_HOME": str(folder.spark_home)}
    with _variables(variables), folder.log.open("ab") as log:
        try:
            words = {"stdout": log, "stderr": subprocess.STDOUT}
            gateway = launch_gateway(conf, words)  # type: ignore[no-untyped-call]
        except PySparkException as error:
            raise Unavailable(f"Spark did not start: {folder.log} says why") from error
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
