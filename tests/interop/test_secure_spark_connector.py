"""Spark's own Kafka connector at brokers with TLS, logins and ACLs: batches and a stream."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

import sparklog
from tests.interop.secure_cluster import (
    CERTIFICATE,
    SESSION_MS,
    SecureCluster,
    read_all,
    secure_cluster,
)
from tests.peers.jars import SPARK_KAFKA_CONNECTOR
from tests.peers.sparklog import spark_environment

pytestmark = [pytest.mark.soak, pytest.mark.timeout(400)]
ROUNDS, ROWS = 12, 25
"""Batches that are written while the stream runs, one each second, and the rows of each."""

PROGRAM = """
import json, sys, time
from pyspark.sql import SparkSession

jars, java, options, source, target, folder, rounds, rows = json.loads(sys.argv[1])
builder = SparkSession.builder.master("local[2]").config("spark.jars", jars)
builder = builder.config("spark.driver.extraJavaOptions", java)
builder = builder.config("spark.ui.enabled", "false").config("spark.sql.warehouse.dir", folder)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("WARN")
read = spark.readStream.format("kafka").options(**options).option("subscribe", source)
stream = (
    read.option("startingOffsets", "earliest").load().select("value")
    .writeStream.format("kafka").options(**options).option("topic", target)
    .option("checkpointLocation", folder + "/checkpoint").trigger(processingTime="1 second").start()
)
for number in range(rounds):
    values = spark.range(number * rows, (number + 1) * rows).selectExpr("string(id) AS value")
    values.write.format("kafka").options(**options).option("topic", source).save()
    time.sleep(1)  # sessions of the logins have to pass while the stream runs
stream.processAllAvailable()
stream.stop()
found = spark.read.format("kafka").options(**options).option("subscribe", source).load()
print(json.dumps([row.value.decode() for row in found.select("value").collect()]))
spark.stop()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    with secure_cluster(tmp_path_factory.mktemp("secure-spark")) as running:
        yield running


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "OAUTHBEARER", CERTIFICATE])
def test_batches_and_a_stream_move_each_record_once(
    cluster: SecureCluster, tmp_path: Path, mechanism: str
) -> None:
    assert ROUNDS * 1000 > 4 * SESSION_MS
    again = cluster.logins_again(mechanism)
    source, target = (f"t-{uuid4().hex[:8]}" for _ in range(2))
    with sparklog.open_log(cluster.root) as log:
        for topic in (source, target):
            log.create_topic(topic, partitions=2)
    options = {f"kafka.{name}": text for name, text in cluster.java(mechanism).items()}
    options["kafka.bootstrap.servers"] = cluster.bootstrap(mechanism)
    jars = ",".join(str(jar) for jar in SPARK_KAFKA_CONNECTOR.jars())
    java = " ".join(cluster.jvm)
    asked = [jars, java, options, source, target, str(tmp_path), ROUNDS, ROWS]
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(asked)],
        cwd=tmp_path, env=spark_environment(), capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-4000:]
    expected = sorted(str(number) for number in range(ROUNDS * ROWS))
    assert sorted(json.loads(ran.stdout.splitlines()[-1])) == expected
    copied = read_all(cluster.librdkafka(), target, len(expected), partitions=2)
    assert sorted((value or b"").decode() for _, value in copied) == expected
    assert mechanism == CERTIFICATE or cluster.logins_again(mechanism) - again >= 3
