"""The data source wherever Spark runs: one program, nothing registered, several clusters."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa

from tests.peers.sparklog import spark_environment
from tests.spark.conftest import MakeLog
from tests.spark.standalone import SPARK_HOME, standalone_cluster

DEADLINE_S = 600

PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

where, value, root, table_dir = sys.argv[1:5]
builder = SparkSession.builder.config("spark.sql.warehouse.dir", table_dir)
builder = builder.config("spark.ui.enabled", "false")
builder = builder.remote(value) if where == "remote" else builder.master(value)
spark = builder.getOrCreate()
rows = spark.range(20_000).selectExpr("string(id) AS key", "string(id * 2) AS value")
rows.write.format("sparklog").option("path", root).option("topic", "t").mode("append").save()
back = spark.read.format("sparklog").option("path", root).option("subscribe", "t").load()
found = back.agg(F.count("*"), F.sum(F.expr("CAST(CAST(value AS STRING) AS BIGINT)"))).collect()[0]
stream = (
    spark.readStream.format("sparklog").option("path", root).option("subscribe", "t")
    .option("startingOffsets", "earliest").load().selectExpr("key", "value")
    .writeStream.format("sparklog").option("path", root).option("topic", "copy")
    .option("checkpointLocation", table_dir + "-checkpoint").trigger(availableNow=True).start()
)
assert stream.awaitTermination(400)
spark.sql("CREATE TABLE raw USING sparklog")
count = f"SELECT count(*) FROM raw WITH (path='{root}', subscribe='copy')"
copied = spark.sql(count).collect()[0][0]
print(json.dumps({"rows": found[0], "sum": int(found[1]), "copied": copied}))
spark.stop()
"""


def run_program(make_log: MakeLog, log_root: str, folder: Path, where: str, value: str) -> None:
    """Run the program there; it must find every row it wrote."""
    make_log(t=3, copy=2)
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM, where, value, log_root, str(folder / "warehouse")],
        cwd=folder,
        env=spark_environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr[-3000:]
    assert json.loads(answer.stdout.splitlines()[-1]) == {
        "rows": 20_000,
        "sum": 20_000 * 19_999,
        "copied": 20_000,
    }


def test_three_processes_of_a_local_cluster(
    make_log: MakeLog, log_root: str, tmp_path: Path
) -> None:
    run_program(make_log, log_root, tmp_path, "master", "local-cluster[2,1,1024]")


def test_spark_connect_finds_the_source_by_itself(
    make_log: MakeLog, log_root: str, tmp_path: Path
) -> None:
    run_program(make_log, log_root, tmp_path, "remote", "local[2]")


def test_a_standalone_cluster(make_log: MakeLog, log_root: str, tmp_path: Path) -> None:
    with standalone_cluster(tmp_path) as master:
        run_program(make_log, log_root, tmp_path, "master", master)


def test_the_spark_sql_shell(make_log: MakeLog, log_root: str, tmp_path: Path) -> None:
    hello = pa.record_batch({"value": pa.array([b"hello"])})
    make_log(t=1).partition("t", 0).append([hello])
    script = (
        "CREATE TABLE raw USING sparklog;"
        f"SELECT offset, CAST(value AS STRING) FROM raw WITH (path='{log_root}', subscribe='t');"
    )
    answer = subprocess.run(
        [str(SPARK_HOME / "bin" / "spark-sql"), "--master", "local[1]", "-e", script],
        cwd=tmp_path,
        env=spark_environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr[-3000:]
    assert "0\thello" in answer.stdout
