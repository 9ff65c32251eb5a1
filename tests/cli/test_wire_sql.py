"""SQL and look-ups over topics that brokers lead, with transactions and unflushed records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import confluent_kafka as ck
import pytest

from sparklog.client.admin import Admin
from sparklog.cluster.log import open_log
from sparklog.sql.engine import query_table
from sparklog.sql.key_state import newest_record
from sparklog.sql.topics import BrokerTopics, RootTopics, TopicReader
from tests.cli.conftest import Cli
from tests.harness.waiting import eventually
from tests.interop.brokers import Brokers

MUCH = str(1 << 30)
FLUSHED = 40
Sent = list[tuple[bytes, bytes | None]]


def send(brokers: Brokers, topic: str, records: Sent, outcome: str | None = None) -> None:
    """Send records, as one transaction that ends with `outcome`, if there is one."""
    settings: dict[str, Any] = {"bootstrap.servers": brokers.bootstrap}
    if outcome is not None:
        settings["transactional.id"] = uuid4().hex
    producer = ck.Producer(settings)
    if outcome is not None:
        producer.init_transactions()
        producer.begin_transaction()
    for key, value in records:
        producer.produce(topic, value, key, partition=0, headers=[("k", key)])
    if outcome is None or outcome == "open":
        producer.flush()
    elif outcome == "commit":
        producer.commit_transaction()
    else:
        producer.flush()
        producer.abort_transaction()


def numbered(word: str, count: int) -> Sent:
    return [
        (b"%s-%d" % (word.encode(), i % 5), b"%s %d" % (word.encode(), i)) for i in range(count)
    ]


@pytest.fixture(scope="module")
def topic(brokers: Brokers) -> str:
    """A topic with flushed and unflushed records of committed, aborted and open transactions."""
    name = f"sql-{uuid4().hex[:8]}"
    with Admin(brokers.bootstrap) as admin:
        admin.create_topic(name, 1, {"flush.ms": "600000", "flush.bytes": "1"}, 1)
        send(brokers, name, numbered("plain", 20))
        send(brokers, name, numbered("gone", 10), "abort")
        send(brokers, name, numbered("kept", 10), "commit")
        with open_log(brokers.root) as log:
            partition = log.partition(name, 0)
            eventually(lambda: partition.view().end_offset >= FLUSHED, "the segments")
        admin.alter_configs(name, {"flush.bytes": MUCH})
    send(brokers, name, numbered("late gone", 10), "abort")
    send(brokers, name, numbered("late", 10), "commit")
    send(brokers, name, [(b"deleted", None)])
    send(brokers, name, numbered("open", 10), "open")
    return name


@pytest.fixture(params=["root", "brokers"])
def opened(
    request: pytest.FixtureRequest, brokers: Brokers
) -> Iterator[Callable[..., TopicReader]]:
    with ExitStack() as closing:

        def topics(*, committed_only: bool) -> TopicReader:
            if request.param == "brokers":
                return closing.enter_context(
                    BrokerTopics(brokers.bootstrap, committed_only=committed_only, settings={})
                )
            log = closing.enter_context(open_log(brokers.root))
            return closing.enter_context(RootTopics(log, committed_only=committed_only))

        yield topics


def plain(brokers: Brokers, topic: str, isolation: str, until: int) -> list[Any]:
    """Return the records that librdkafka reads, up to an offset."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": brokers.bootstrap,
            "group.id": "none",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    found: list[Any] = []
    while True:
        message = consumer.poll(20)
        assert message is not None
        if message.error() is not None or (message.offset() or 0) >= until:
            consumer.close()
            return found
        found.append((message.offset(), message.key(), message.value(), message.headers()))


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_sql_reads_the_records_that_librdkafka_reads(
    brokers: Brokers, topic: str, opened: Callable[..., TopicReader], isolation: str
) -> None:
    expected = plain(brokers, topic, isolation, 1 << 60)
    assert len(expected) == (41 if isolation == "read_committed" else 71)
    topics = opened(committed_only=isolation == "read_committed")
    rows = query_table(topics, f'select offset, key, value, headers from "{topic}"').to_pylist()
    found = [
        (r["offset"], r["key"], r["value"], [(h["key"], h["value"]) for h in r["headers"]])
        for r in rows
    ]
    assert found == expected
    counted = query_table(topics, f'select count(*) as n from "{topic}"').to_pylist()
    assert counted == [{"n": len(expected)}]
    late = query_table(topics, f"select value from \"{topic}\" where key = 'late-1'").to_pylist()
    assert late == [{"value": b"late 1"}, {"value": b"late 6"}]


def test_newest_record_may_be_unflushed_and_is_committed(brokers: Brokers, topic: str) -> None:
    with open_log(brokers.root) as log:
        newest: dict[bool, list[Any]] = {}
        for committed_only in (True, False):
            with RootTopics(log, committed_only=committed_only) as topics:
                newest[committed_only] = []
                for key in (b"late-1", b"gone-1", b"kept-1", b"open-1", b"deleted", b"late gone-1"):
                    record = newest_record(topics, topic, key, 0)
                    value = None if record is None else record[1].column("value")[0].as_py()
                    newest[committed_only].append("none" if record is None else value)
        assert newest[True] == [b"late 6", "none", b"kept 6", "none", None, "none"]
        assert newest[False] == [
            b"late 6", b"gone 6", b"kept 6", b"open 6", None, b"late gone 6",
        ]  # fmt: skip


def test_the_command_reads_through_brokers(wire_cli: Cli, topic: str) -> None:
    statement = f'select max(offset) as last from "{topic}"'
    uncommitted = wire_cli.ok("sql", statement, "--json").documents
    committed = wire_cli.ok(
        "sql", statement, "--json", "--isolation-level", "read_committed"
    ).documents
    assert committed[0]["last"] < uncommitted[0]["last"]
