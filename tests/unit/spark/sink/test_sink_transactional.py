"""Batches of a query as Kafka transactions: real brokers in this process, no Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from socket import socket
from typing import Any
from uuid import uuid4

import confluent_kafka as ck
import pytest

from sparklog.client.addresses import bootstrap_addresses
from sparklog.client.connections import BrokerConnections as Connections
from sparklog.client.offsets import read_group_offsets
from sparklog.cluster import publication
from sparklog.cluster.publication import StagedPartition, publish
from sparklog.core.clock import SYSTEM_CLOCK, ManualClock
from sparklog.core.config.topic import parse_topic_configs
from sparklog.core.entropy import SYSTEM_ENTROPY, new_nonce
from sparklog.core.errors import Fenced, NotServing, SparklogError, Unavailable
from sparklog.core.types import TopicPartition
from sparklog.log.cleanup.compaction_policy import CompactionPolicy
from sparklog.log.cleanup.compactor import Compactor
from sparklog.log.cleanup.rewriter import Encoding
from sparklog.log.effects import run
from sparklog.log.manifest.change import absorb_tail, change
from sparklog.log.partition.append import AppendResult
from sparklog.log.repair.verify import verify
from sparklog.spark.sink.leader_sink import LeaderAppends
from sparklog.spark.sink.options import TRANSACTION_TIMEOUT_MS
from sparklog.spark.sink.transactional_sink import TransactionalAppends, group_of
from tests.harness.led_topics import LedTopic
from tests.harness.source_logs import numbered, rows_of
from tests.harness.waiting import eventually
from tests.interop.brokers import Brokers
from tests.unit.spark.sink.test_sink_led import staged

PARTITIONS = 2
LONGEST_MS = 900_000
"""`transaction.max.timeout.ms` of the brokers, by default."""
FEW = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2"}


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with Brokers(f"memory://{uuid4()}", settings=FEW) as running:
        yield running


@pytest.fixture
def topic(brokers: Brokers) -> LedTopic:
    return LedTopic(brokers, PARTITIONS)


class Query:
    """The driver of a query at the end of a batch."""

    def __init__(self, topic: LedTopic) -> None:
        self.topic = topic
        self.query_id = str(uuid4())
        self.appends = TransactionalAppends(topic.log, None)

    def parts(self, first: int, count: int) -> tuple[StagedPartition, ...]:
        return staged(self.topic.log, self.topic.name, numbered(first, count))

    def publish(
        self, batch: int, parts: tuple[StagedPartition, ...]
    ) -> Mapping[TopicPartition, AppendResult]:
        return publish(
            self.topic.log,
            self.query_id,
            batch,
            parts,
            append_led=LeaderAppends(self.topic.log, None),
            in_transaction=self.appends,
            transactional=True,
        )

    def begin(
        self,
        batch: int,
        parts: tuple[StagedPartition, ...],
        *,
        tells: bool = False,
        timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    ) -> None:
        """Send a batch and die before the transaction ends."""

        class Dead(Exception):
            pass

        class Dies(TransactionalAppends):
            def tell(self, *args: Any) -> None:
                if tells:
                    super().tell(*args)
                raise Dead

        self.appends = Dies(self.topic.log, None, timeout_ms=timeout_ms)
        with pytest.raises(Dead):
            self.publish(batch, parts)
        self.appends = TransactionalAppends(self.topic.log, None)


@contextmanager
def connected(topic: LedTopic) -> Iterator[Connections]:
    connections = Connections(bootstrap_addresses(topic.brokers.bootstrap))
    yield connections
    connections.close()


def consumed(topic: LedTopic, level: str = "read_committed") -> list[bytes]:
    """Read all with a Kafka client, to the end that its isolation level lets it see."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": topic.brokers.bootstrap,
            "group.id": "nobody",
            "isolation.level": level,
            "enable.partition.eof": True,
        }
    )
    places = [ck.TopicPartition(topic.name, n, ck.OFFSET_BEGINNING) for n in range(PARTITIONS)]
    consumer.assign(places)
    found: list[bytes] = []
    ended: set[int | None] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(10)
        assert message is not None, "no record and no end"
        error = message.error()
        if error is None:
            found.append(message.value() or b"")
        else:
            assert error.code() == ck.KafkaError._PARTITION_EOF, error
            ended.add(message.partition())
    consumer.close()
    return sorted(found, key=int)


def read(topic: LedTopic, level: str = "read_committed", **options: str) -> list[bytes]:
    """Read all as Spark does."""
    rows = rows_of(topic.log, ("value",), subscribe=topic.name, isolationLevel=level, **options)
    return sorted((row[0] for row in rows), key=int)


def until(holds: Callable[[], bool]) -> None:
    """Wait until markers are written, and what is committed is flushed."""
    eventually(holds, "the end of a transaction", 30)


def absorb(topic: LedTopic) -> None:
    """Take the tails of the partitions into their manifests, as appenders do now and then."""
    for number in range(PARTITIONS):
        log = topic.log.partition(topic.name, number)
        plan = absorb_tail(1, 0)
        run(change(log.view(), plan, new_nonce(SYSTEM_ENTROPY)), topic.log.store)


def compact(topic: LedTopic) -> None:
    """Rewrite what the partitions hold, after a look whether all is whole."""
    policy = CompactionPolicy.of(parse_topic_configs({"cleanup.policy": "compact"}))
    with ThreadPoolExecutor(2) as pool:
        for number in range(PARTITIONS):
            layout = topic.log.partition(topic.name, number).layout
            store = topic.log.store
            found = verify(store, layout, pool, deep=True, now_ms=SYSTEM_CLOCK.now_ms())
            assert found.damages == ()
            done = Compactor(store, layout, policy, Encoding("lz4"), pool).compact(force=True)
            assert done is not None
            assert done.rows_after == found.rows


def test_batch_is_there_once_in_all_partitions_with_its_number(topic: LedTopic) -> None:
    query = Query(topic)
    parts = query.parts(0, 100)
    done = query.publish(0, parts)
    assert len(done) == PARTITIONS
    for attempt in (parts, query.parts(0, 100)):
        again = query.publish(0, attempt)
        assert {p: (a.base_offset, a.end_offset) for p, a in again.items()} == {
            p: (a.base_offset, a.end_offset) for p, a in done.items()
        }
    query.publish(1, query.parts(100, 50))
    assert query.publish(0, parts) == {}, "a later batch is known to be there"
    until(lambda: consumed(topic) == numbered(0, 150))
    assert read(topic) == numbered(0, 150)
    group = group_of(query.query_id)
    with connected(topic) as connections:
        found = read_group_offsets(connections, [group], SYSTEM_CLOCK)[group]
    assert not isinstance(found, SparklogError)
    told = f'{{"query":"{query.query_id}","batch":1}}'
    assert {one.metadata for one in found.values()} == {told}


def test_readers_of_committed_records_never_see_some_of_a_batch(topic: LedTopic) -> None:
    query = Query(topic)
    query.publish(0, query.parts(0, 10))
    query.begin(1, query.parts(10, 10))
    topic.flush_always()
    topic.send(20, 1, partition=0)
    until(lambda: consumed(topic, "read_uncommitted") == numbered(0, 21))
    assert consumed(topic) == read(topic) == numbered(0, 10)
    assert read(topic, "read_uncommitted") == numbered(0, 21)
    query.publish(1, query.parts(10, 10))
    until(lambda: consumed(topic) == numbered(0, 21))
    until(lambda: read(topic) == numbered(0, 21))


@pytest.mark.parametrize("absorbed", [False, True])
def test_aborted_batch_is_invisible_and_its_objects_may_come_again(
    topic: LedTopic, absorbed: bool
) -> None:
    query = Query(topic)
    topic.flush_always()
    first = query.parts(0, 10)
    query.begin(0, first)
    before = {n: topic.stored_end(n) for n in range(PARTITIONS)}
    if absorbed:
        absorb(topic)  # which has to stop before it, as its outcome is unknown
    query.publish(0, query.parts(0, 10))
    until(lambda: consumed(topic) == numbered(0, 10))
    if absorbed:
        until(lambda: all(topic.stored_end(n) > before[n] + 3 for n in range(PARTITIONS)))
        absorb(topic)
        views = [topic.log.partition(topic.name, n).view() for n in range(PARTITIONS)]
        assert not any(view.tail for view in views)
        assert sum(entry.rows for view in views for entry in view.entries) == 10
        compact(topic)
    for level in ("read_committed", "read_uncommitted"):
        assert read(topic, level) == consumed(topic, level) == numbered(0, 10)
    until(lambda: read(topic, includeUnflushed="false") == numbered(0, 10))


@pytest.mark.parametrize("successor_is_done", [False, True])
def test_older_driver_is_fenced_with_an_error(topic: LedTopic, successor_is_done: bool) -> None:
    """It sleeps amid its transaction while another one takes over, and perhaps ends."""
    query = Query(topic)
    parts = query.parts(0, 10)
    successor = TransactionalAppends(topic.log, None)

    class Sleeps(TransactionalAppends):
        def tell(self, *args: Any) -> None:
            query.appends = successor
            if successor_is_done:
                query.publish(0, query.parts(0, 10))
            else:
                with connected(topic) as connections:
                    successor.begin(connections, query.query_id)
            super().tell(*args)

    query.appends = Sleeps(topic.log, None)
    if successor_is_done:
        assert query.publish(0, parts), "it is there"
    else:
        with pytest.raises(Fenced, match=r"another driver.*batch=0"):
            query.publish(0, parts)
        assert consumed(topic) == []
    query.publish(0, parts)
    until(lambda: consumed(topic) == numbered(0, 10))


def test_open_transaction_of_a_dead_attempt_is_not_waited_for(topic: LedTopic) -> None:
    query = Query(topic)
    # A caller that waited for its own end would give up long before.
    assert LONGEST_MS > 10 * publication.LED_PATIENCE_S * 1000
    query.begin(0, query.parts(0, 10), tells=True, timeout_ms=LONGEST_MS)
    query.publish(0, query.parts(0, 10))
    until(lambda: consumed(topic) == numbered(0, 10))


def test_absent_brokers_end_a_batch_with_a_remedy(topic: LedTopic) -> None:
    query, clock = Query(topic), ManualClock()
    parts = query.parts(0, 10)
    with socket() as silent:  # bound and not listened to: connections are refused
        silent.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        query.appends = TransactionalAppends(topic.log, address, clock=clock)
        with pytest.raises(
            Unavailable, match=r"see that they run.* start the query again.*batch=0"
        ):
            query.publish(0, parts)
    assert clock.monotonic_s() >= publication.LED_PATIENCE_S
    query.appends = TransactionalAppends(topic.log, None)
    query.publish(0, parts)
    until(lambda: consumed(topic) == numbered(0, 10))


def test_topics_of_which_brokers_lead_some_only_are_written_as_before(brokers: Brokers) -> None:
    topic = LedTopic(brokers, PARTITIONS)
    query = Query(topic)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publication, "_all_led", lambda image, parts: False)
        query.publish(0, query.parts(0, 10))
    assert query.publish(0, query.parts(0, 10)), "its record says how it is published"
    assert consumed(topic, "read_uncommitted") == consumed(topic) == numbered(0, 10)


def test_a_batch_begun_as_a_transaction_is_published_in_no_other_way(topic: LedTopic) -> None:
    query = Query(topic)
    query.begin(0, query.parts(0, 10))
    with pytest.raises(NotServing, match="begun as a transaction"):
        publish(topic.log, query.query_id, 0, query.parts(0, 10), append_led=None)
    query.publish(0, query.parts(0, 10))
    until(lambda: consumed(topic) == numbered(0, 10))
