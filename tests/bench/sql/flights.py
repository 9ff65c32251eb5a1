"""The flights of New York in 2013 as JSON records: in a topic, and in Parquet files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sparklog.cluster.log import open_log
from sparklog.spark.demo.flights import original, package_folder, table_of

TOPIC = "flights"
PARTITIONS = 4


@dataclass(frozen=True)
class Flights:
    """The same rows in each form."""

    root: str
    columns: Path
    """Parquet with a column for each field."""
    records: Path
    """Parquet with the JSON as it is in the records."""
    rows: int
    key: str
    """The key of one record in the middle."""
    mean_delays: dict[str, float]
    """By carrier, computed by Arrow."""


def make_flights(folder: Path, rows_max: int, segments: int) -> Flights:
    """Write the rows below `folder`, in every form."""
    table = table_of(original(package_folder(), TOPIC)).slice(0, rows_max).combine_chunks()
    names = table.schema.names
    values = [
        json.dumps(dict(zip(names, row, strict=True))).encode()
        for row in zip(*(table.column(name).to_pylist() for name in names), strict=True)
    ]
    keys = [
        f"{carrier}{flight}@{hour}".encode()
        for carrier, flight, hour in zip(
            *(table.column(name).to_pylist() for name in ("carrier", "flight", "time_hour")),
            strict=True,
        )
    ]
    records = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
    root = (folder / "log").as_uri()
    with open_log(root) as log:
        log.create_topic(TOPIC, PARTITIONS, {"sparklog.key.index": "bloom"})
        share = -(-len(values) // (PARTITIONS * segments))
        for number in range(PARTITIONS * segments):
            some = records.slice(number * share, share).combine_chunks().to_batches()
            if some:
                log.partition(TOPIC, number % PARTITIONS).append(some)
    pq.write_table(table, folder / "columns.parquet", compression="zstd")
    pq.write_table(records, folder / "records.parquet", compression="zstd")
    means = table.group_by("carrier").aggregate([("dep_delay", "mean")])
    return Flights(
        root,
        folder / "columns.parquet",
        folder / "records.parquet",
        len(values),
        keys[len(keys) // 2].decode(),
        dict(
            zip(
                means.column("carrier").to_pylist(),
                means.column("dep_delay_mean").to_pylist(),
                strict=True,
            )
        ),
    )
