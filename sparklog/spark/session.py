"""Sessions as sparklog likes them: the interpreter of the driver everywhere, and Arrow tuned.

Nothing here is needed for `format("sparklog")` to work; a session made by other means does too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

from sparklog.spark.jvm import QUICK_JVM

SETTINGS: Final[Mapping[str, str]] = {
    # Batches that go to the sink: larger ones are routed and encoded with less overhead.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
}
"""What every session of sparklog's own jobs sets, each with its reason."""

WAITING_JVM: Final[Mapping[str, str]] = {"spark.driver.defaultJavaOptions": QUICK_JVM}
"""For jobs whose work is Python's, and for brokers: a JVM of their own starts tasks and waits, so
it is to start fast and take little. Where one runs already this changes nothing;
`spark.driver.extraJavaOptions` goes before."""


def use_this_python() -> None:
    """Make Spark's workers run the interpreter that runs the driver.

    Without it they take the first `python3` on PATH, which may know nothing of sparklog. What
    the environment says already is left as it is.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # noqa: TID251 - this is the edge


def session_builder(settings: Mapping[str, str] | None = None) -> SparkSession.Builder:
    """Return a builder with sparklog's settings, and `settings` over them."""
    use_this_python()
    builder = SparkSession.builder
    for name, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(name, value)
    return builder
