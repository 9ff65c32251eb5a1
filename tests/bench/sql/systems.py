"""The systems that answer: `sparklog.sql`, DuckDB on Parquet, and Spark on our source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import duckdb
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from sparklog.cluster.log import open_log
from sparklog.sql.engine import query_table
from sparklog.sql.topics import RootTopics
from tests.bench.sql.flights import TOPIC, Flights

Answer = list[tuple[Any, ...]]


class SqlSystem(Protocol):
    """Answers the three queries."""

    name: str

    def count(self) -> Answer:
        """Count all rows."""

    def mean_delays(self) -> Answer:
        """Return the mean delay at departure of each carrier."""

    def one_key(self) -> Answer:
        """Return the values of one key."""


class OurSql:
    """SQL of ours on the topic, each time as a new query."""

    name = "sparklog"

    def __init__(self, flights: Flights, topics: RootTopics) -> None:
        """Ask for `flights` through `topics`."""
        self._flights = flights
        self._topics = topics

    def count(self) -> Answer:
        return self._rows(f"SELECT count(*) FROM {TOPIC}")

    def mean_delays(self) -> Answer:
        return self._rows(f"SELECT carrier, avg(dep_delay) FROM json.{TOPIC} GROUP BY carrier")

    def one_key(self) -> Answer:
        return self._rows(f"SELECT value FROM {TOPIC} WHERE key = '{self._flights.key}'")

    def _rows(self, statement: str) -> Answer:
        found = query_table(self._topics, statement)
        return [tuple(row.values()) for row in found.to_pylist()]


class ParquetSql:
    """DuckDB on Parquet: the fields as columns, or the JSON of the records."""

    def __init__(self, flights: Flights, *, as_json: bool) -> None:
        """Read `flights`."""
        self.name = "duckdb on json in parquet" if as_json else "duckdb on parquet"
        self._as_json = as_json
        self._flights = flights
        self._connection = duckdb.connect(":memory:")

    def count(self) -> Answer:
        return self._rows(f"SELECT count(*) FROM '{self._file}'")

    def mean_delays(self) -> Answer:
        if not self._as_json:
            return self._rows(
                f"SELECT carrier, avg(dep_delay) FROM '{self._file}' GROUP BY carrier"
            )
        fields = "json_extract_string(v, '$.carrier') AS carrier, json_extract(v, '$.dep_delay') d"
        return self._rows(
            f"SELECT carrier, avg(d::DOUBLE) FROM (SELECT {fields} FROM "
            f"(SELECT decode(value) AS v FROM '{self._file}')) GROUP BY carrier"
        )

    def one_key(self) -> Answer:
        return self._rows(
            f"SELECT value FROM '{self._flights.records}' WHERE key = '{self._flights.key}'"
        )

    @property
    def _file(self) -> str:
        return str(self._flights.records if self._as_json else self._flights.columns)

    def _rows(self, statement: str) -> Answer:
        return self._connection.execute(statement).fetchall()


class SparkSourceSql:
    """Spark SQL on our source."""

    name = "spark"

    def __init__(self, flights: Flights, spark: SparkSession) -> None:
        """Make the views."""
        self._flights = flights
        self._spark = spark
        reader = spark.read.format("sparklog").option("path", flights.root)
        records = reader.option("subscribe", TOPIC).load()
        fields = sf.from_json(sf.col("value").cast("string"), "carrier STRING, dep_delay DOUBLE")
        records.createOrReplaceTempView("flights")
        records.select(fields.alias("v")).select("v.*").createOrReplaceTempView("json_flights")

    def count(self) -> Answer:
        return self._rows("SELECT count(*) FROM flights")

    def mean_delays(self) -> Answer:
        return self._rows("SELECT carrier, avg(dep_delay) FROM json_flights GROUP BY carrier")

    def one_key(self) -> Answer:
        key = self._flights.key
        return self._rows(f"SELECT value FROM flights WHERE key = CAST('{key}' AS BINARY)")

    def _rows(self, statement: str) -> Answer:
        return [tuple(row) for row in self._spark.sql(statement).collect()]


@contextmanager
def our_sql(flights: Flights) -> Iterator[OurSql]:
    """Open the log for queries."""
    with open_log(flights.root) as log, RootTopics(log) as topics:
        yield OurSql(flights, topics)
