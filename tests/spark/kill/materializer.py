"""A materialisation to be killed: a driver whose steps pass points (`points`).

Run as a process of its own, with the job's words as JSON. Its points are `before append <batch>`,
`after append <batch>`, `before park <batch>` and `after park <batch>`. When it comes to its end, it
leaves `tables.json` beside the plan: the places of the rows in both tables.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from sparklog.spark.jobs.jars import delta_conf
from sparklog.spark.jobs.progress import JobProgress
from sparklog.spark.jobs.session import session_builder
from sparklog.spark.materialize.arguments import parse_materialize
from sparklog.spark.materialize.commit import TableCommit
from sparklog.spark.materialize.job import materialize
from sparklog.spark.materialize.tables import DeltaTables
from tests.spark.kill.driver import SETTINGS
from tests.spark.kill.points import DRIVER_FILE, PLAN_VARIABLE, pass_point

TABLES_FILE = "tables.json"


class PointsTables(DeltaTables):
    """The product's tables, which pass points before and after each commit."""

    def append(self, rows: DataFrame, commit: TableCommit, properties: Mapping[str, str]) -> None:
        pass_point(f"before append {commit.batch}")
        super().append(rows, commit, properties)
        pass_point(f"after append {commit.batch}")

    def park(self, rows: DataFrame, commit: TableCommit) -> None:
        pass_point(f"before park {commit.batch}")
        super().park(rows, commit)
        pass_point(f"after park {commit.batch}")


def places(spark: SparkSession, path: str, prefix: str) -> list[list[int]]:
    """Return partition and offset of every row of a table."""
    found = spark.read.format("delta").load(path).select(f"{prefix}partition", f"{prefix}offset")
    return sorted([row[0], row[1]] for row in found.collect())


def main() -> None:
    """Materialise, and say what is in the tables then."""
    folder = Path(os.environ[PLAN_VARIABLE])
    (folder / DRIVER_FILE).write_text(str(os.getpid()))
    job = parse_materialize(json.loads(sys.argv[1]))
    builder = session_builder({**SETTINGS, **delta_conf()}).master("local[2]")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    report = materialize(job, lambda conf: spark, JobProgress(io.StringIO()), PointsTables)
    print(report.to_json(), flush=True)
    tables = {"kept": places(spark, job.table, "_"), "parked": places(spark, job.rejected, "")}
    (folder / TABLES_FILE).write_text(json.dumps(tables))
    spark.stop()


if __name__ == "__main__":
    main()
