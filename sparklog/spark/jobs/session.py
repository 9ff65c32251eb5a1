"""Sessions as sparklog likes them: the interpreter of the driver everywhere, and Arrow tuned.

Nothing here is needed for `format("sparklog")` to work; a session made by other means does too.

The module also has options for sparklog's own short-lived or waiting JVMs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from sparklog.spark.jobs.addresses import LOOPBACK, is_local
from sparklog.spark.jobs.started_jvm import ADDRESS_VARIABLES

QUICK_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
"""Compiles once and simply. The code cache has Java's usual size, not the 48 MiB that go with
simple compilation: Spark's generated code fills these in some hundred queries.
"""


SETTINGS: Final[Mapping[str, str]] = {
    # Batches that go to the sink: larger ones are routed and encoded with less overhead.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
}
"""Settings of every session of sparklog's own jobs, each with its reason."""

WAITING_JVM: Final[Mapping[str, str]] = {"spark.driver.defaultJavaOptions": QUICK_JVM}
"""For jobs whose work is Python's, and for brokers. A JVM of their own starts tasks and waits, so
it is to start fast and take little. If one runs already this changes nothing;
`spark.driver.extraJavaOptions` goes before.
"""


DRIVER_HOST: Final = "spark.driver.host"  # of a cluster's driver, as Spark finds it
DRIVER_BIND_ADDRESS: Final = "spark.driver.bindAddress"


def stay_on_loopback(master: str, given: SparkConf) -> dict[str, str]:
    """Return settings that keep an application on one machine away from its networks.

    Spark takes the address of the first interface, which a laptop loses when it leaves its Wi-Fi.
    It also resolves the host's own name, which may give nothing. Its JVM must run, and must have
    no context yet. The user's own settings of addresses stay as they are.
    """
    environment = os.environ  # noqa: TID251 - this is the edge
    said = given.contains(DRIVER_HOST) or any(name in environment for name in ADDRESS_VARIABLES)
    if said or not is_local(master):
        return {}
    jvm: Any = SparkContext._jvm  # noqa: SLF001 - Python has no other way
    # The master and the workers of a `local-cluster` ask this alone, and no setting.
    jvm.org.apache.spark.util.Utils.setCustomHostname(LOOPBACK)
    return {DRIVER_HOST: LOOPBACK, DRIVER_BIND_ADDRESS: LOOPBACK}


def use_this_python() -> None:
    """Make Spark's workers run the interpreter that runs the driver.

    Without it they take the first `python3` on PATH, which may know nothing of sparklog. Variables
    that the environment has already stay as they are.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # noqa: TID251 - this is the edge


def session_builder(settings: Mapping[str, str] | None = None) -> SparkSession.Builder:
    """Return a builder with sparklog's settings, and `settings` over them."""
    use_this_python()
    builder = SparkSession.builder
    for name, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(name, value)
    return builder
