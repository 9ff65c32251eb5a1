from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from sparklog.cluster.named_snapshots import create_snapshot
from sparklog.core.errors import DataCorrupt, InvalidRequest, UnknownTopicOrPartition
from sparklog.sql.engine import DecodeRules, Query, QueryLimits
from sparklog.sql.queryable_log import QueryableLog as Log
from sparklog.sql.queryable_log import open_log
from sparklog.sql.topics import RootTopics
from tests.harness.log_records import batch

PARTITIONS, SEGMENTS, ROWS = 3, 4, 25
Row = dict[str, Any]


def document(number: int) -> bytes | None:
    if number % 10 == 9:
        return None
    fields: Row = {"id": number, "amount": number * 1.5, "who": f"u{number % 3}"}
    if number % 2:
        fields["deep"] = {"x": [number]}
    return json.dumps(fields).encode()


@pytest.fixture(scope="module")
def log() -> Iterator[Log]:
    with open_log(f"memory://{uuid4().hex}") as opened:
        opened.create_topic("orders", PARTITIONS, {"sparklog.key.index": "bloom"})
        number = 0
        for _ in range(SEGMENTS):
            for partition in range(PARTITIONS):
                span = range(number, number + ROWS)
                rows = batch(
                    [document(i) for i in span],
                    keys=[b"k%d" % (i % 40) if i % 4 else None for i in span],
                    timestamps_ms=[1_000_000 + 1000 * i for i in span],
                    headers=[[("n", b"%d" % i), ("e", None)] if i % 5 == 0 else None for i in span],
                )
                opened.partition("orders", partition).append([rows])
                number += ROWS
        create_snapshot(opened, "before", ["orders"])
        for partition in range(PARTITIONS):
            opened.partition("orders", partition).append([batch([b'{"id": -1}'])])
        opened.create_topic("empty", 2)
        opened.create_topic("with.dots-and-dashes")
        yield opened


@pytest.fixture(scope="module")
def plain(log: Log) -> list[Row]:
    """All records, read without SQL."""
    found: list[Row] = []
    for number in range(PARTITIONS):
        partition = log.partition("orders", number)
        view = partition.view()
        for rows in partition.read(view.log_start_offset, view.end_offset, view=view):
            place = {"partition": number, "topic": "orders"}
            found += [{**place, **row} for row in rows.to_pylist()]
    return found


def parsed(row: Row) -> Row:
    return json.loads(row["value"]) if row["value"] is not None else {}


def ms(row: Row) -> int:
    return int(row["timestamp"].timestamp() * 1000)


Answer = Callable[[list[Row]], Any]
QUERIES: list[tuple[str, Answer]] = [
    ("select count(*) from orders", lambda rows: [(len(rows),)]),
    ("select count(key), count(value), count(headers) from orders",
     lambda rows: [tuple(sum(r[column] is not None for r in rows)
                         for column in ("key", "value", "headers"))]),
    ("select partition, offset from orders",
     lambda rows: [(r["partition"], r["offset"]) for r in rows]),
    ("select offset from orders where offset between 30 and 40 and partition = 1",
     lambda rows: [(r["offset"],) for r in rows
                   if 30 <= r["offset"] <= 40 and r["partition"] == 1]),
    ("select partition, offset, value from orders where key = 'k7'",
     lambda rows: [(r["partition"], r["offset"], r["value"]) for r in rows if r["key"] == b"k7"]),
    ("select offset from orders where key in ('k1', 'k2', 'none')",
     lambda rows: [(r["offset"],) for r in rows if r["key"] in (b"k1", b"k2")]),
    ("select offset from orders where key is null and offset < 9",
     lambda rows: [(r["offset"],) for r in rows if r["key"] is None and r["offset"] < 9]),
    ("select offset from orders where key = 'k1' or (partition = 2 and offset >= 90)",
     lambda rows: [(r["offset"],) for r in rows
                   if r["key"] == b"k1" or (r["partition"] == 2 and r["offset"] >= 90)]),
    ("select offset from orders where value is null",
     lambda rows: [(r["offset"],) for r in rows if r["value"] is None]),
    ("select offset from orders where timestamp between to_timestamp(1100) and to_timestamp(1199)",
     lambda rows: [(r["offset"],) for r in rows if 1_100_000 <= ms(r) <= 1_199_000]),
    ("select min(offset), max(offset), min(timestamp) = to_timestamp(1000) from orders",
     lambda rows: [(min(r["offset"] for r in rows), max(r["offset"] for r in rows), True)]),
    ("select decode(header(headers, 'n')) from orders where headers is not null",
     lambda rows: [(r["headers"][0]["value"].decode(),) for r in rows if r["headers"]]),
    ("select sum(id), sum(amount) from json.orders",
     lambda rows: [(sum(parsed(r).get("id", 0) for r in rows),
                    sum(parsed(r).get("amount", 0) for r in rows))]),
    ("select id, deep->>'$.x[0]' from json.orders where deep is not null",
     lambda rows: [(parsed(r)["id"], str(parsed(r)["id"])) for r in rows if "deep" in parsed(r)]),
    ("select id from json.orders where who = 'u1' and partition = 0",
     lambda rows: [(parsed(r)["id"],) for r in rows
                   if parsed(r).get("who") == "u1" and r["partition"] == 0]),
    ("select key, value from text.orders where offset = 3",
     lambda rows: [(r["key"] and r["key"].decode(), r["value"] and r["value"].decode())
                   for r in rows if r["offset"] == 3]),
    ("select a.offset from orders a join orders b using (partition, timestamp) where a.offset < 5",
     lambda rows: [(r["offset"],) for r in rows if r["offset"] < 5]),
    ("select count(*) from orders where offset > (select max(offset) - 3 from orders)",
     lambda rows: [(sum(r["offset"] > max(x["offset"] for x in rows) - 3 for r in rows),)]),
    ("select count(*) from orders VERSION AS OF 'before'",
     lambda rows: [(PARTITIONS * SEGMENTS * ROWS,)]),
    ("select count(*) from orders TIMESTAMP AS OF '1970-01-01 00:17:00'",
     lambda rows: [(sum(ms(r) <= 1_020_000 for r in rows),)]),
    ("select count(*) from empty", lambda rows: [(0,)]),
    ("select topic, timestampType, count(*) from orders group by all",
     lambda rows: [("orders", 0, len(rows))]),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "answer"), QUERIES)
def test_sql_answers_as_a_plain_reader_does(
    log: Log, plain: list[Row], statement: str, answer: Answer
) -> None:
    rows = log.sql(statement).to_pylist()
    found = [tuple(row.values()) for row in rows]
    assert sorted(found, key=repr) == sorted(answer(plain), key=repr)


def scanned(log: Log, statement: str) -> Query:
    with RootTopics(log) as topics, Query(topics, statement) as done:
        list(done.batches())
        return done


def test_bounds_skip_segments(log: Log) -> None:
    (scan,) = scanned(
        log, "select value from orders where offset >= 80 and partition = 1"
    ).scans.scans
    assert sum(len(plan.entries) for plan in scan.plans) == 2  # of four filled ones and the last
    (scan,) = scanned(
        log, "select value from orders where timestamp < to_timestamp(1010)"
    ).scans.scans
    assert [len(plan.entries) for plan in scan.plans] == [1, 0, 0]
    assert sum(counts.rows for counts in scan.counts) == ROWS


def test_a_key_reads_only_the_segments_that_may_have_it(log: Log) -> None:
    done = scanned(log, "select value from orders where key = 'no such key'")
    (scan,) = done.scans.scans
    assert sum(counts.rows for counts in scan.counts) == 0
    assert sum(counts.excluded_by_key for counts in scan.counts) == PARTITIONS * (SEGMENTS + 1)


def test_counting_reads_no_records(log: Log) -> None:
    with RootTopics(log) as topics, Query(topics, "select count(*) from orders") as done:
        before = topics.counted()
        list(done.batches())
        assert (topics.counted() - before).bytes == 0


def test_a_limit_stops_reading(log: Log) -> None:
    (scan,) = scanned(log, "select value from orders limit 1").scans.scans
    assert len(scan.counts) == 1


def test_explain_reads_nothing_and_counts_skipped_segments(log: Log) -> None:
    table = log.sql("explain select value from orders where offset < 5").to_pylist()
    text = {row["explain_key"]: row["explain_value"] for row in table}
    assert "3 to read of 15" in text["scan of orders"]
    assert "12 skipped by bounds" in text["scan of orders"]
    assert "read" not in text["scan of orders"].splitlines()[-1]
    table = log.sql("explain analyze select value from orders where offset < 5").to_pylist()
    assert "read 5 records of 1 segments" in table[1]["explain_value"]
    assert "requests" in table[2]["explain_value"]


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("select nope from orders", r"line=1 column=8 near='nope'"),
        ("select *\nfrom orders\nwhere foo(1)", r"line=3 column=7 near='foo\(1\)'"),
        ("select 1 +", "syntax error"),
        ("with x as (select 1) insert into orders select * from x", "only read"),
        ("from read_csv('/etc/passwd')", "disabled by configuration"),
        ("from glob('/etc/*')", "disabled by configuration"),
        ("from read_text('https://localhost/x')", "disabled by configuration|extension"),
        ("select * from json.empty", "no columns"),
        (
            "select count(distinct i::varchar || repeat('a', 40)) from range(100000000) t(i)",
            "memory",
        ),
    ],
)
def test_a_wrong_statement_is_refused_with_its_place(log: Log, statement: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        log.sql(statement, limits=QueryLimits(memory_bytes=64 << 20))


@pytest.mark.parametrize("name", ["nope", "Orders", "'/etc/passwd'"])
def test_only_topics_are_tables(log: Log, name: str) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="no such topic"):
        log.sql(f"select * from {name}")
    orders = ["a local variable is no table"]
    assert len(orders) == 1
    assert [r["name"] for r in log.sql("show tables").to_pylist()] == sorted(log.topics())


def test_a_table_of_keys_has_the_newest_values(log: Log, plain: list[Row]) -> None:
    newest: dict[tuple[int, bytes], Row] = {}
    for row in plain:
        if row["key"] is not None:
            newest[row["partition"], row["key"]] = row
    expected = {(p, k, r["offset"]) for (p, k), r in newest.items() if r["value"] is not None}
    assert len(expected) < len(newest), "some keys have a tombstone"
    found = log.sql("select partition, key, offset from latest.orders").to_pylist()
    assert sorted(tuple(row.values()) for row in found) == sorted(expected)
    done = scanned(log, "select value from latest.orders where key = 'no such key'")
    (scan,) = done.scans.scans
    assert sum(counts.excluded_by_key for counts in scan.counts) == PARTITIONS * (SEGMENTS + 1)


def test_get_returns_the_newest_value_of_a_key(log: Log) -> None:
    log.create_topic("states", configs={"sparklog.key.index": "bloom"})
    partition = log.partition("states", 0)
    for value in (b"old", b"new"):
        partition.append([batch([value, b"x"], keys=[b"ann", b"bob"])])
    partition.append([batch([None], keys=[b"bob"])])
    assert log.get("states", b"ann") == b"new"
    assert log.get("states", b"bob") is None, "a tombstone"
    assert log.get("states", b"eve") is None
    assert log.sql("select key, value from latest.states").to_pylist() == [
        {"key": b"ann", "value": b"new"}
    ]
    with pytest.raises(UnknownTopicOrPartition, match="topic=states partition=1"):
        log.get("states", b"ann", 1)


def test_limits_stop_a_query(log: Log) -> None:
    with pytest.raises(InvalidRequest, match="time limit"):
        log.sql(
            "select count(*) from range(1000000000000) t(i) where i % 7 = 3",
            limits=QueryLimits(timeout_s=0.2),
        )
    with (
        RootTopics(log) as topics,
        Query(topics, "select offset from orders", QueryLimits(rows_max=5)) as limited,
    ):
        assert sum(b.num_rows for b in limited.batches()) == 5
        assert limited.is_truncated
    with pytest.raises(InvalidRequest, match="result is larger"):
        log.sql(
            "select repeat('a', 10000) from range(50000)",
            limits=QueryLimits(memory_bytes=128 << 20),
        )
    with RootTopics(log) as topics, Query(topics, "select offset from orders") as cancelled:
        cancelled.cancel()
        with pytest.raises(InvalidRequest, match="cancelled"):
            list(cancelled.batches())


def test_values_that_do_not_decode_fail_or_are_null(log: Log) -> None:
    log.create_topic("mixed")
    values = [b'{"n": 1, "b": true}', b'{"n": 2.5, "b": true}', b"\xff", b"no json", b"[1]", None]
    log.partition("mixed", 0).append([batch([values[0]] * 2000)])
    log.partition("mixed", 0).append([batch(values + [values[0]] * 2000)])
    with pytest.raises(
        InvalidRequest, match=r"no BIGINT. field=n partition=0 offset=2001 value=2.5"
    ):
        log.sql("select n from json.mixed where offset = 2001")
    with pytest.raises(InvalidRequest, match=r"(?i)malformed json"):
        log.sql("select n from json.mixed where offset = 2003")
    lenient = DecodeRules(strict=False)
    found = log.sql(
        "select n, decode_error from json.mixed where offset between 2000 and 2005",
        rules=lenient,
    ).to_pylist()
    assert [tuple(row.values()) for row in found] == [
        (1, None),
        (None, None),
        (None, "not UTF-8"),
        (None, "not JSON"),
        (None, None),
        (None, None),
    ]
    text = log.sql("select value from text.mixed where offset = 2002", rules=lenient)
    assert text.to_pylist() == [{"value": None}]


def test_a_damaged_object_is_reported_as_such(log: Log) -> None:
    log.create_topic("damaged")
    partition = log.partition("damaged", 0)
    partition.append([batch([b"x"])])
    (entry,) = partition.view().entries
    key = partition.layout.key(entry.object)
    log.store.delete(key)
    log.store.put(key, b"not a segment")
    with pytest.raises(DataCorrupt):
        log.sql("select value from damaged")


def test_fields_with_the_names_of_columns_get_other_names(log: Log) -> None:
    log.create_topic("names")
    value = b'{"offset": 1, "a b\\"c": 2, "A": 3, "a": 4, "x/y~z": 5}'
    log.partition("names", 0).append([batch([value])])
    (row,) = log.sql("select * from json.names").to_pylist()
    assert (row["offset"], row["value_offset"], row['a b"c'], row["x/y~z"]) == (0, 1, 2, 5)
    assert (row["A"], row["value_a"]) == (3, 4)
