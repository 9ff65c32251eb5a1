"""Brokers on versitygw, a real S3 server, whose requests take as long as S3's: rates and the bill.

The bill counts all requests that the brokers send while a producer writes at a fixed rate, until
everything is in segments. Prices are S3's list prices in us-east-1. The peers published their
figures themselves, for other hardware and rates.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.broker.distant_broker import OTHER_S, PUT_S, PUT_SPREAD, SPREAD_VARIABLE
from tests.bench.broker.measures.bill import CONFIGS, FLUSH_MS, RATE_MB, RECORD_BYTES
from tests.bench.broker.measures.consuming import consume
from tests.bench.broker.measures.producing import MB, new_topic, produce_librdkafka
from tests.bench.broker.measures.slow_store import SlowStore, measure_slow_store
from tests.bench.broker.plan import BrokerPlan
from tests.bench.common.clusters import sparklog_cluster
from tests.bench.common.plan import GIB
from tests.bench.common.results import Measure, Results
from tests.bench.common.sparklog_side import SparklogSide, total
from tests.bench.common.targets import CostAtMostPeer, RateTimesPeer
from tests.harness.store_servers import KEEP_ALIVE, s3_environment, versitygw

LAUNCHER = (sys.executable, "-m", "tests.bench.broker.distant_serve")
BUCKET = "bench"
S3 = SlowStore(
    "S3",
    f"versitygw, puts {PUT_S * 1000:.0f} ms (p99 88), others {OTHER_S * 1000:.0f} ms",
    rate_mb=150,
    p99_ms=200,
    memory_p99_ms=15,
    java_mb=2,
)
FOLDER_SIDE = "sparklog on a folder"
GROUP = "S3 requests per GiB"
DOLLARS = {"put": 0.005 / 1000, "list": 0.005 / 1000, "get": 0.0004 / 1000, "head": 0.0004 / 1000}
"""S3's list prices; deletes are free."""
PEERS = {"WarpStream": 0.0034, "AutoMQ": 0.0015}
"""Dollars of requests per GiB written, derived from what the vendors say. WarpStream: below $40 a
day at 140 MiB/s (its post on the costs of S3's API). AutoMQ: $3,952 a month at 1 GiB/s (its docs).
"""


@contextmanager
def cluster_on_s3(work: Path) -> Iterator[SparklogSide]:
    """Run brokers on Spark over versitygw."""
    with (
        versitygw(work / "s3", BUCKET, KEEP_ALIVE) as port,
        sparklog_cluster(
            work / "brokers",
            LAUNCHER,
            *CONFIGS,
            root=f"s3://{BUCKET}/log",
            environment={**s3_environment(port), SPREAD_VARIABLE: str(PUT_SPREAD)},
        ) as side,
    ):
        yield side


def measure_s3(side: SparklogSide, plan: BrokerPlan, results: Results) -> None:
    """Measure rates and waiting times, and count requests."""
    measure_slow_store(side, plan, results, S3)
    for partitions in plan.bill_partitions[:2]:
        _count(side, partitions, plan, results)


def measure_history_s3(side: SparklogSide, work: Path, plan: BrokerPlan, results: Results) -> None:
    """Read history from S3 and from a folder; `work` is for the folder."""
    with sparklog_cluster(work) as folder:
        _read_history(side, folder, plan, results)


def _read_history(
    side: SparklogSide, folder: SparklogSide, plan: BrokerPlan, results: Results
) -> None:
    """Read the same records from segments on S3 and in a folder, in turn."""
    measure = Measure(
        f"consume {plan.large.label}, history", "MB/s", (RateTimesPeer(FOLDER_SIDE, 0.8),), S3.group
    )
    topics: list[tuple[str, SparklogSide, str]] = []
    for name, one in ((side.name, side), (FOLDER_SIDE, folder)):
        topic = new_topic(one, plan.partitions, 3)
        produce_librdkafka(one, topic, plan.large.records, plan.large.value_bytes)
        one.await_history(topic)
        topics.append((name, one, topic))
    for number in range(1, plan.rounds + 1):
        for name, one, topic in topics:
            seconds = consume(one, topic, plan.partitions, plan.large.records)
            results.add(measure, name, plan.large.total_bytes / seconds / MB, number)
    for _, one, topic in topics:
        one.drop(topic)


def _count(side: SparklogSide, partitions: int, plan: BrokerPlan, results: Results) -> None:
    topic = new_topic(side, partitions, 3, {"flush.ms": str(FLUSH_MS)})
    side.await_quiet()
    before = side.samples()
    records = plan.bill_bytes // RECORD_BYTES
    per_s = RATE_MB * MB / RECORD_BYTES
    produce_librdkafka(side, topic, records, RECORD_BYTES, records_per_s=per_s)
    side.await_history(topic)
    after = side.samples()
    words = f"{partitions} partition{'s' if partitions > 1 else ''}"
    price, name = 0.0, "sparklog_store_requests_total"
    for kind in ("put", "get", "list", "head", "delete"):
        counted = total(after, name, {"kind": kind}) - total(before, name, {"kind": kind})
        per_gib = counted * GIB / plan.bill_bytes
        price += per_gib * DOLLARS.get(kind, 0.0)
        results.add(Measure(f"{kind} requests per GiB, {words}", "", (), GROUP), side.name, per_gib)
    targets = tuple(map(CostAtMostPeer, PEERS))
    measure = Measure(f"price of requests per GiB, {words}", "$", targets, GROUP)
    results.add(measure, side.name, price)
    for peer, dollars in PEERS.items():
        results.add(measure, peer, dollars)
    side.drop(topic)
