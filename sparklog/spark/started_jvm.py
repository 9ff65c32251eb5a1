"""Starts Spark's JVM for jobs that spark-submit did not start, wherever this machine is.

Spark looks up the host's own name before it reads any setting, and ends if that resolves to
nothing. Only its environment can spare it that.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pyspark import SparkConf, SparkContext

from sparklog.spark.addresses import LOOPBACK, is_local, outward_address

LOCAL_ADDRESS: Final = "SPARK_LOCAL_IP"  # Spark's, read by its JVM at the start
ADDRESS_VARIABLES: Final = (LOCAL_ADDRESS, "SPARK_LOCAL_HOSTNAME")
"""By which users tell Spark this machine's address."""


def start_jvm(settings: Mapping[str, str]) -> SparkConf:
    """Start Spark's JVM unless one runs; return its settings: these and those of Spark's files."""
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    with _address_for(settings.get("spark.master")):
        SparkContext._ensure_initialized(conf=conf)  # noqa: SLF001 - Python has no other way
    return SparkConf()


@contextmanager
def _address_for(master: str | None) -> Iterator[None]:
    """Tell a JVM that starts meanwhile which address this machine has, if Spark may not find it."""
    environment = os.environ  # noqa: TID251 - this is the edge
    address = None
    if not any(name in environment for name in ADDRESS_VARIABLES):
        if master is not None and is_local(master):
            address = LOOPBACK
        elif not _own_name_resolves():
            address = outward_address()
    if address is None:
        yield
        return
    environment[LOCAL_ADDRESS] = address
    try:
        yield
    finally:
        del environment[LOCAL_ADDRESS]


def _own_name_resolves() -> bool:
    try:
        socket.getaddrinfo(socket.gethostname(), None)
    except OSError:
        return False
    return True
