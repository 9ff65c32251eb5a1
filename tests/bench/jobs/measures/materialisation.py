"""The same records made a Delta table: by jobs/materialize, and by Spark's Kafka connector.

The connector's query is what its users write: a stream with a checkpoint that takes what is there,
into the same columns. Both run in one session, in turns, each time into a new table.
"""

from __future__ import annotations

import io
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from sparklog.cluster.log import open_log
from sparklog.spark.jobs.jars import delta_conf
from sparklog.spark.jobs.progress import JobProgress
from sparklog.spark.materialize.arguments import parse_materialize
from sparklog.spark.materialize.job import materialize
from tests.bench.common.command import Run
from tests.bench.common.results import Measure
from tests.bench.common.rounds import timed, turns
from tests.bench.common.session import spark_session
from tests.bench.common.targets import RateTimesPeer
from tests.bench.jobs.plan import JobsPlan
from tests.peers.kafka import KafkaCluster

GROUP = "materialisation, records per second"
TOPIC = "flights"
SCHEMA = "number BIGINT, carrier STRING, delay DOUBLE, note STRING"
PARTITIONS = 4


def measure_materialisation(run: Run[JobsPlan]) -> None:
    """Fill both systems with the same records, and make tables of them."""
    folder = run.work / "materialisation"
    root = (folder / "log").as_uri()
    kafka_settings = {"log.retention.ms": "-1", "num.partitions": str(PARTITIONS)}
    with (
        KafkaCluster(1, kafka_settings, parent_folder=run.work) as kafka,
        spark_session(folder, "materialise", delta_conf()) as spark,
    ):
        rows = _records(spark, run.plan.materialised_records)
        with open_log(root) as log:
            log.create_topic(TOPIC, PARTITIONS)
        rows.write.format("sparklog").option("path", root).option("topic", TOPIC).mode(
            "append"
        ).save()
        rows.write.format("kafka").options(**_address(kafka)).option("topic", TOPIC).save()
        sides = [name for name in ("sparklog", "kafka") if name in run.systems]
        for form in ("json", "raw"):
            for number, side in turns(sides, run.plan.rounds + 1):
                table = str(folder / f"{side}-{form}-{number}")
                if side == "sparklog":
                    seconds, _ = timed(partial(_by_sparklog, spark, root, table, form))
                else:
                    seconds, _ = timed(partial(_by_kafka, spark, kafka, table, form))
                _check(run, spark, table, form)
                if number > 1:  # the first is until everything is warm
                    _add(run, form, side, run.plan.materialised_records / seconds, number - 1)


def _records(spark: SparkSession, count: int) -> DataFrame:
    note = "sha2(CAST(id AS STRING), 256)"
    value = (
        "to_json(named_struct('number', id, 'carrier', concat('C', id % 20), "
        f"'delay', (id % 1000) / 8, 'note', substring({note}, 1, 40)))"
    )
    rows = spark.range(0, count, 1, PARTITIONS)
    return rows.selectExpr(
        "CAST(CAST(id AS STRING) AS BINARY) AS key", f"CAST({value} AS BINARY) AS value"
    )


def _by_sparklog(spark: SparkSession, root: str, table: str, form: str) -> None:
    words = ["--root", root, "--topic", TOPIC, "--table", table, "--format", form, "--no-headers"]
    words += ["--schema", SCHEMA] if form == "json" else []
    materialize(parse_materialize(words), lambda _conf: spark, JobProgress(io.StringIO()))


def _by_kafka(spark: SparkSession, kafka: KafkaCluster, table: str, form: str) -> None:
    options = {**_address(kafka), "subscribe": TOPIC, "startingOffsets": "earliest"}
    records = spark.readStream.format("kafka").options(**options).load()
    columns = [
        "key AS _key",
        "partition AS _partition",
        "offset AS _offset",
        "timestamp AS _timestamp",
    ]
    if form == "json":
        value = f"from_json(CAST(value AS STRING), '{SCHEMA}') AS fields"
        rows = records.selectExpr(*columns, value).select(
            *(c.split()[-1] for c in columns), "fields.*"
        )
    else:
        rows = records.selectExpr(*columns, "value")
    writer = rows.writeStream.format("delta").option("checkpointLocation", f"{table}-checkpoint")
    writer.trigger(availableNow=True).start(table).awaitTermination()


def _check(run: Run[JobsPlan], spark: SparkSession, table: str, form: str) -> None:
    number = "number" if form == "json" else "CAST(CAST(_key AS STRING) AS BIGINT)"
    found = spark.read.format("delta").load(table).selectExpr("count(*)", f"sum({number})").first()
    count = run.plan.materialised_records
    expected = (count, count * (count - 1) // 2)
    run.results.check_equal(
        f"{table.rpartition('/')[2]}: every record once", found and tuple(found), expected
    )


def _add(run: Run[JobsPlan], form: str, side: str, rate: float, number: int) -> None:
    size = f"{run.plan.materialised_records / 1e6:g} M records"
    measure = Measure(
        f"materialise {size} of {form}", "records/s", (RateTimesPeer("kafka", 1.0),), GROUP
    )
    run.results.add(measure, side, rate, number)


def _address(kafka: KafkaCluster) -> dict[str, str]:
    return {"kafka.bootstrap.servers": kafka.bootstrap}
