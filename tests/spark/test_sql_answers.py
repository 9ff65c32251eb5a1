"""Queries over one log by `sparklog.Log.sql`, by Spark SQL and by a plain reader: alike answers.

The log has JSON, Avro of two schema versions, nulls, headers, aborted transactions, gaps of a
compaction, and records that only the broker has.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import uuid4

import confluent_kafka as ck
import fastavro
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.avro.functions import from_avro

from sparklog import Log, open_log
from sparklog.core.config.model import LONG_MAX
from sparklog.log.cleanup.compaction_policy import CompactionPolicy
from sparklog.log.cleanup.compactor import Compactor
from sparklog.log.cleanup.rewriter import Encoding
from sparklog.log.partition.partition_log import PartitionLog
from sparklog.registry import decisions
from sparklog.registry.decisions import ParsedOf, SchemaCandidate
from sparklog.registry.model.schema import read_content
from sparklog.registry.registry import SchemaRegistry
from sparklog.registry.schema_log import RootSchemaLog
from sparklog.registry.state import RegistryState
from tests.harness.waiting import eventually
from tests.interop.brokers import Brokers

POLICY = CompactionPolicy(
    compacts=True, dirty_ratio_min=0, lag_min_ms=0, lag_max_ms=LONG_MAX,
    delete_retention_ms=86_400_000, segment_bytes=1 << 30, segment_ms=LONG_MAX,
)  # fmt: skip
FLUSHED, TAIL, KEYS = 120, 30, 7
SUBJECTS = ({"name": "id", "type": "long"}, {"name": "who", "type": ["null", "string"]})
RATED = (*SUBJECTS, {"name": "rate", "type": ["null", "double"], "default": None})
SCHEMAS = [json.dumps({"type": "record", "name": "Order", "fields": fields})
           for fields in (SUBJECTS, RATED)]  # fmt: skip
Row = dict[str, Any]


@dataclass
class Story:
    """The log, the same topics as Spark's views, and its records as a consumer reads them."""

    log: Log
    spark: SparkSession
    facts: list[Row]
    orders: list[Row]
    names: dict[str, dict[str, str]] = field(default_factory=dict)
    """The words of each dialect."""


def document(number: int) -> bytes | None:
    if number % 11 == 10:
        return None
    found: Row = {"id": number, "amount": number * 1.5, "who": f"u{number % 3}"}
    if number % 4 == 3:
        found["who"] = None
    if number % 5 == 4:
        del found["amount"]
    return json.dumps(found).encode()


def order(number: int, ids: list[int]) -> bytes:
    version = number % 2
    value = {"id": number, "who": None if number % 3 == 0 else f"u{number % 3}"}
    made = io.BytesIO()
    whole = {**value, "rate": number / 4} if version else value
    fastavro.schemaless_writer(made, fastavro.parse_schema(json.loads(SCHEMAS[version])), whole)
    return b"\0" + ids[version].to_bytes(4, "big") + made.getvalue()


def send(brokers: Brokers, numbers: range, ids: list[int], outcome: str | None = None) -> None:
    settings: dict[str, Any] = {"bootstrap.servers": brokers.bootstrap, "linger.ms": 5}
    if outcome is not None:
        settings["transactional.id"] = uuid4().hex
    producer = ck.Producer(settings)
    if outcome is not None:
        producer.init_transactions()
        producer.begin_transaction()
    for n in numbers:
        key = None if n % 13 == 12 else b"k%d" % (n % KEYS)
        headers: Any = [("h", b"%d" % n), ("h", None if n % 9 == 0 else b"last")]
        # A record of a compacted topic has a key; the topic of orders is no such.
        producer.produce(
            "facts", document(n), key or b"none", partition=n % 2, timestamp=1_000_000 + 1000 * n,
            headers=headers if n % 6 == 0 else None,
        )  # fmt: skip
        producer.produce("orders", order(n, ids), key, partition=0)
    producer.flush()
    if outcome == "commit":
        producer.commit_transaction()
    elif outcome == "abort":
        producer.abort_transaction()


def consumed(brokers: Brokers, topic: str, partitions: int) -> list[Row]:
    consumer = ck.Consumer(
        {"bootstrap.servers": brokers.bootstrap, "group.id": "plain", "enable.partition.eof": True,
         "isolation.level": "read_committed"}
    )  # fmt: skip
    consumer.assign([ck.TopicPartition(topic, n, 0) for n in range(partitions)])
    found: list[Row] = []
    while partitions:
        message: Any = consumer.poll(30)
        if message.error() is not None:
            assert message.error().code() == ck.KafkaError._PARTITION_EOF
            partitions -= 1
            continue
        found.append(
            {"partition": message.partition(), "offset": message.offset(), "key": message.key(),
             "value": message.value(), "headers": message.headers(), "ms": message.timestamp()[1]}
        )  # fmt: skip
    consumer.close()
    return found


def registered(log: Log) -> list[int]:
    registry = SchemaRegistry(RootSchemaLog(log))
    ids = []
    for text in SCHEMAS:
        candidate = registry.candidate("orders-value", read_content({"schema": text}))

        def decide(state: RegistryState, parsed: ParsedOf, one: SchemaCandidate = candidate) -> Any:
            return decisions.register(state, one, parsed)

        ids.append(registry.change(decide).schema_id)
    return ids


def is_flushed(partition: PartitionLog, end: int) -> bool:
    return partition.view().end_offset >= end


@pytest.fixture(scope="module")
def story(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    root = tmp_path_factory.mktemp("answers").as_uri()
    with open_log(root) as log:
        ids = registered(log)
        settings = {"flush.bytes": "1", "flush.ms": "600000"}
        log.create_topic("facts", 2, {**settings, "cleanup.policy": "compact"})
        log.create_topic("orders", 1, settings)
        with Brokers(root) as brokers:
            send(brokers, range(40), ids)
            send(brokers, range(40, 60), ids, "abort")
            send(brokers, range(60, FLUSHED), ids, "commit")
            for topic, number, end in [
                ("facts", 0, FLUSHED // 2), ("facts", 1, FLUSHED // 2), ("orders", 0, FLUSHED)
            ]:  # fmt: skip
                partition = log.partition(topic, number)
                eventually(partial(is_flushed, partition, end), "the segments")
        # Brokers may serve older records from memory, so none runs during the compaction.
        with ThreadPoolExecutor(4) as pool:
            layout = log.partition("facts", 0).layout
            job = Compactor(log.store, layout, POLICY, Encoding("zstd"), pool)
            assert job.compact(force=True) is not None
        for topic in ("facts", "orders"):
            log.alter_configs(topic, {"flush.bytes": str(1 << 30)})
        with Brokers(root) as brokers:
            send(brokers, range(FLUSHED, FLUSHED + TAIL), ids)
            send(brokers, range(200, 210), ids, "abort")
            found = Story(log, spark, consumed(brokers, "facts", 2), consumed(brokers, "orders", 1))
            views(found, root)
            yield found


def views(story: Story, root: str) -> None:
    """Make the views of Spark, and name the tables of both dialects."""

    def read(topic: str) -> DataFrame:
        reader = story.spark.read.format("sparklog").option("path", root)
        reader = reader.option("isolationLevel", "read_committed").option("includeHeaders", "true")
        return reader.option("subscribe", topic).load()

    facts, orders = read("facts"), read("orders")
    text = [sf.col(name).cast("string").alias(name) for name in ("key", "value")]
    kept = ["partition", "offset", "timestamp"]
    fields = sf.from_json(sf.col("value").cast("string"), "id BIGINT, amount DOUBLE, who STRING")
    id_of = sf.conv(sf.hex(sf.substring("value", 2, 4)), 16, 10).cast("int")
    body = sf.expr("substring(value, 6)")
    read_by = [from_avro(body, schema) for schema in SCHEMAS]
    old = orders.where(sf.length("value") > 0).withColumn("id_", id_of)
    made = [
        old.where(sf.col("id_") == n + 1).select(*kept, "key", decoded.alias("v"))
        for n, decoded in enumerate(read_by)
    ]
    wide = [
        frame.select(*kept, "key", "v.id", "v.who",
                     (sf.col("v.rate") if n else sf.lit(None).cast("double")).alias("rate"))
        for n, frame in enumerate(made)
    ]  # fmt: skip
    for name, frame in {
        "facts": facts,
        "text_facts": facts.select(*kept, *text, "headers"),
        "json_facts": facts.select(*kept, fields.alias("v")).select(*kept, "v.*"),
        "registry_orders": wide[0].unionByName(wide[1]),
    }.items():
        frame.createOrReplaceTempView(name)
    story.names = {
        "duckdb": {"facts": "facts", "text": "text.facts", "json": "json.facts",
                   "orders": "registry.orders", "time": "TIMESTAMPTZ",
                   "header": "decode(header(headers, 'h'))"},
        "spark": {"facts": "facts", "text": "text_facts", "json": "json_facts",
                  "orders": "registry_orders", "time": "TIMESTAMP",
                  "header": "CAST(try_element_at(filter(headers, h -> h.key = 'h'), -1).value "
                            "AS STRING)"},
    }  # fmt: skip


def parsed(row: Row) -> Row:
    return {} if row["value"] is None else json.loads(row["value"])


def decoded(row: Row) -> Row:
    schema = json.loads(SCHEMAS[int.from_bytes(row["value"][1:5], "big") - 1])
    found = fastavro.schemaless_reader(io.BytesIO(row["value"][5:]), schema, None)
    assert isinstance(found, dict)
    return {"rate": None, **found, "offset": row["offset"]}


def grouped(pairs: Iterator[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found


def total(values: list[Any]) -> Any:
    known = [v for v in values if v is not None]
    return sum(known) if known else None


def last_header(row: Row) -> str | None:
    named = [value for name, value in row["headers"] or [] if name == "h"]
    return named[-1].decode() if named and named[-1] is not None else None


Answer = Callable[[Story], Any]
QUERIES: list[tuple[str, Answer]] = [
    ("select count(*) from {facts}", lambda s: [(len(s.facts),)]),
    ("select count(key), count(value) from {facts}",
     lambda s: [(len(s.facts), sum(r["value"] is not None for r in s.facts))]),
    ("select partition, count(*), min(offset), max(offset) from {facts} group by partition",
     lambda s: [(p, len(o), min(o), max(o)) for p, o in
                grouped((r["partition"], r["offset"]) for r in s.facts).items()]),
    ("select partition, offset from {facts} where offset between 5 and 25",
     lambda s: [(r["partition"], r["offset"]) for r in s.facts if 5 <= r["offset"] <= 25]),
    ("select partition, offset, value from {text} where key = 'k3'",
     lambda s: [(r["partition"], r["offset"], r["value"] and r["value"].decode())
                for r in s.facts if r["key"] == b"k3"]),
    ("select partition, offset from {facts} where value is null",
     lambda s: [(r["partition"], r["offset"]) for r in s.facts if r["value"] is None]),
    ("select count(*) from {facts} where partition = 1 and offset >= 60",
     lambda s: [(sum(r["partition"] == 1 and r["offset"] >= 60 for r in s.facts),)]),
    (("select partition, offset from {facts} "
      "where timestamp >= {time} '1970-01-01 00:18:30+00:00'"),
     lambda s: [(r["partition"], r["offset"]) for r in s.facts if r["ms"] >= 1_110_000]),
    ("select sum(octet_length(value)) from {facts}",
     lambda s: [(sum(len(r["value"] or b"") for r in s.facts),)]),
    ("select topic, timestampType, count(*) from {facts} group by topic, timestampType",
     lambda s: [("facts", 0, len(s.facts))]),
    ("select count(*) from {facts} where headers is null",
     lambda s: [(sum(not r["headers"] for r in s.facts),)]),
    ("select partition, offset, {header} from {facts} where headers is not null",
     lambda s: [(r["partition"], r["offset"], last_header(r)) for r in s.facts if r["headers"]]),
    ("select sum(id), sum(amount), count(who) from {json}",
     lambda s: [(sum(parsed(r).get("id", 0) for r in s.facts),
                 sum(parsed(r).get("amount", 0) for r in s.facts),
                 sum(parsed(r).get("who") is not None for r in s.facts))]),
    ("select who, count(*), sum(amount) from {json} group by who",
     lambda s: [(w, len(a), total(a)) for w, a in
                grouped((parsed(r).get("who"), parsed(r).get("amount")) for r in s.facts).items()]),
    ("select id from {json} where amount > 30 and who = 'u1' and partition = 0",
     lambda s: [(parsed(r)["id"],) for r in s.facts if r["partition"] == 0
                and parsed(r).get("amount", 0) > 30 and parsed(r)["who"] == "u1"]),
    ("select partition, avg(amount) from {json} where id >= 120 group by partition",
     lambda s: [(p, sum(a) / len(a)) for p, a in grouped(
                (r["partition"], parsed(r)["amount"]) for r in s.facts
                if parsed(r).get("id", 0) >= 120 and "amount" in parsed(r)).items()]),
    (("select f.key, f.value from {text} f join (select partition, key, max(offset) as newest "
     "from {text} group by partition, key) n on f.partition = n.partition and f.key = n.key "
     "and f.offset = n.newest where f.partition = 0"),
     lambda s: [(k.decode(), v and v.decode()) for k, v in
                {r["key"]: r["value"] for r in s.facts if r["partition"] == 0}.items()]),
    ("select id, who, rate from {orders}",
     lambda s: [(o["id"], o["who"], o["rate"]) for o in map(decoded, s.orders)]),
    ("select who, count(*), sum(rate), count(rate) from {orders} group by who",
     lambda s: [(w, len(r), total(r), sum(one is not None for one in r)) for w, r in
                grouped((o["who"], o["rate"]) for o in map(decoded, s.orders)).items()]),
    ("select id from {orders} where rate > 20 or (who is null and id < 30)",
     lambda s: [(o["id"],) for o in map(decoded, s.orders)
                if (o["rate"] or 0) > 20 or (o["who"] is None and o["id"] < 30)]),
    ("select max(offset), count(*) from {orders} where key is null",
     lambda s: [(max(r["offset"] for r in s.orders if r["key"] is None),
                 sum(r["key"] is None for r in s.orders))]),
]  # fmt: skip


def test_the_log_has_each_case_that_the_queries_need(story: Story) -> None:
    offsets = [r["offset"] for r in story.facts if r["partition"] == 0]
    assert len(offsets) < (FLUSHED - 20) // 2 + TAIL // 2, "a compaction left gaps"
    stored = story.log.partition("facts", 0).view().end_offset
    assert max(offsets) >= stored, "the newest records are only in the broker"
    assert len(story.orders) == FLUSHED - 20 + TAIL, "aborted records are left out"


@pytest.mark.parametrize(("statement", "answer"), QUERIES)
def test_answers_are_alike(story: Story, statement: str, answer: Answer) -> None:
    expected = ordered(answer(story))
    assert expected
    found = story.log.sql(statement.format(**story.names["duckdb"]), committed_only=True)
    assert ordered(tuple(row.values()) for row in found.to_pylist()) == expected
    by_spark = story.spark.sql(statement.format(**story.names["spark"])).collect()
    assert ordered(map(tuple, by_spark)) == expected


def ordered(rows: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(map(_plain, row)) for row in rows), key=repr)


def _plain(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, Decimal):
        return int(value)
    return round(value, 9) if isinstance(value, float) else value
