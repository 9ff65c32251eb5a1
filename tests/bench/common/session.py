"""The Spark session of a run: local, with Kafka's connector, leaving nothing outside its folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from tests.peers.jars import SPARK_KAFKA_CONNECTOR


@contextmanager
def spark_session(
    folder: Path, name: str = "benchmark", more: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Yield a session; what is neither set here nor in `more` has Spark's default."""
    # `make` calls this interpreter by its path: the first `python3` of PATH may be another.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    jars = ",".join(str(jar) for jar in SPARK_KAFKA_CONNECTOR.jars())
    settings = {
        "spark.jars": jars,
        "spark.driver.memory": "3g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.local.dir": str(folder / "spark-local"),
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
        # As conf/spark-defaults.conf has it. It touches Python data sources only.
        "spark.python.unix.domain.socket.enabled": "true",
    }
    for key, value in (more or {}).items():
        settings[key] = f"{jars},{value}" if key == "spark.jars" else value
    builder = SparkSession.builder.master("local[*]").appName(name)
    session = builder.config(map=dict(settings)).getOrCreate()
    try:
        yield session
    finally:
        session.stop()
