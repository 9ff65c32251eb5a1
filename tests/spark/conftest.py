"""Spark for tests: one session for the whole folder, and logs in temporary folders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparklog.cluster.log import Log, open_log
from sparklog.spark.jobs.jars import delta_conf
from sparklog.spark.jobs.session import session_builder

MakeLog = Callable[..., Log]

LOCAL_SETTINGS: Mapping[str, str] = {
    # Processes of the suite run side by side: no page of each, and memory for small data only.
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    # Tests aggregate a few rows; by default that takes two hundred tasks each time.
    "spark.sql.shuffle.partitions": "2",
    # Tests look into Delta tables of a few files; by default that takes fifty tasks each time.
    "spark.databricks.delta.snapshotPartitions": "2",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two local cores, shared by all tests here: leave its settings as they were."""
    home = tmp_path_factory.mktemp("spark")
    warehouse = {"spark.sql.warehouse.dir": (home / "warehouse").as_uri()}
    settings = {**LOCAL_SETTINGS, **delta_conf(catalog=False), **warehouse}
    session = session_builder(settings).master("local[2]").appName("tests").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def log_root(tmp_path: Path) -> str:
    """The root of a log that does not exist yet."""
    return (tmp_path / "log").as_uri()


@pytest.fixture
def make_log(log_root: str) -> Iterator[MakeLog]:
    """Make a log with topics: `make_log(flights=3)` has one topic of three partitions."""
    opened: list[Log] = []

    def make(**partitions: int) -> Log:
        log = open_log(log_root)
        opened.append(log)
        for topic, count in partitions.items():
            log.create_topic(topic, partitions=count)
        return log

    yield make
    for log in opened:
        log.close()
