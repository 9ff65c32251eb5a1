"""A query's batches as transactions: workers, drivers and brokers are killed while others read.

Two readers of committed records watch from beginning to end, a Kafka client and Spark's own source.
They must never see a part of a batch, nor anything that is not there in the end.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pyarrow as pa
import pytest

from sparklog.client.addresses import BrokerAddress
from sparklog.cluster.log import Log
from sparklog.cluster.publication import publish
from sparklog.core.errors import Fenced, NotServing, OutcomeUnknown, Unavailable
from sparklog.core.types import TopicPartition
from sparklog.log.partition.append import AppendResult
from sparklog.spark.demo.consumers import read_delta
from sparklog.spark.jobs.jars import delta_conf
from sparklog.spark.sink.options import SinkOptions
from sparklog.spark.sink.transactional_sink import TransactionalAppends
from sparklog.spark.sink.writer import stage_rows
from sparklog.spark.source.batch_reader import SparklogReader
from sparklog.spark.source.options import parse_batch_options
from tests.harness.source_logs import read_all, schema
from tests.harness.waiting import eventually, until_a_random_moment
from tests.spark.kill.brokers import KilledBrokers
from tests.spark.kill.drivers import RUN_SECONDS_MAX
from tests.spark.kill.points import Point, reached, write_plan
from tests.spark.kill.query import PARTITIONS, RECORDS_PER_BATCH, Query

QUIET_POLLS = 80
Place = tuple[int, int]
"""Partition and offset."""
TAKEN = r"broker \d: after put wal/.*/0*[1-9]\d*\.arrow"
FLUSHED = r"broker \d: after put topics/out~.*/log/0*[1-9]\d*\.arrow"


@dataclass
class Seen:
    """Records that readers of committed records saw, and the order."""

    by_client: dict[Place, int] = field(default_factory=dict)
    """The number in the record at a place."""
    looks: list[dict[Place, int]] = field(default_factory=list)
    """Result of each read by Spark."""

    def check(self, final: Mapping[Place, int]) -> None:
        """Compare with what is there in the end, of which each batch is a whole by itself."""
        assert self.by_client == final, "a client saw other records than there are"
        assert self.looks
        whole: dict[tuple[int, int], int] = Counter(_piece(at, n) for at, n in final.items())
        for look in self.looks:
            assert look.items() <= final.items(), "a read saw records that are not there"
            for piece, count in Counter(_piece(at, n) for at, n in look.items()).items():
                assert count == whole[piece], f"{count} records of {whole[piece]} of {piece}"


def _piece(at: Place, number: int) -> tuple[int, int]:
    """Return the partition and the batch of a record."""
    return at[0], number // RECORDS_PER_BATCH


def look(root: str) -> dict[Place, int]:
    """Read all that is committed, as Spark does."""
    wanted = {"path": root, "subscribe": "out", "isolationLevel": "read_committed"}
    columns = schema("partition", "offset", "value")
    reader = SparklogReader(parse_batch_options(wanted), columns)
    rows = read_all(reader, reader.partitions())
    return {(partition, offset): int(value) for partition, offset, value in rows}


@contextmanager
def watched(query: Query) -> Iterator[Seen]:
    """Let both readers look on until the end."""
    seen, ended = Seen(), threading.Event()
    failed: list[BaseException] = []

    def follow() -> None:
        try:
            consume(query, seen, ended)
        except BaseException as error:
            failed.append(error)

    def peek() -> None:
        try:
            while not ended.wait(0.5):
                with suppress(Unavailable):  # brokers are dead for a moment
                    seen.looks.append(look(query.job.root))
        except BaseException as error:
            failed.append(error)

    readers = [threading.Thread(target=one) for one in (follow, peek)]
    for reader in readers:
        reader.start()
    try:
        yield seen
    finally:
        ended.set()
        for reader in readers:
            reader.join(RUN_SECONDS_MAX)
    assert not failed, failed


def consume(query: Query, seen: Seen, ended: threading.Event) -> None:
    """Read committed records with Kafka clients until all are read.

    A client without data for long has a successor: all brokers it knew may be others now.
    """
    places = dict.fromkeys(range(PARTITIONS), 0)
    while not (ended.is_set() and len(seen.by_client) >= query.expected):
        given_up = ended.is_set()
        consumer = ck.Consumer(
            {
                "bootstrap.servers": addresses(query),
                "group.id": "nobody",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        consumer.assign([ck.TopicPartition("out", *at) for at in places.items()])
        quiet = 0
        while quiet < QUIET_POLLS and not (
            ended.is_set() and len(seen.by_client) >= query.expected
        ):
            message = consumer.poll(0.1)
            quiet = quiet + 1 if message is None else 0
            if message is None or message.error() is not None:
                continue
            partition, offset = int(message.partition() or 0), int(message.offset() or 0)
            assert (partition, offset) not in seen.by_client, f"twice: {partition} {offset}"
            seen.by_client[partition, offset] = int(message.value() or b"")
            places[partition] = offset + 1
        consumer.close()
        if given_up:
            return  # the comparison reports the missing records


def addresses(query: Query) -> str:
    """Return the brokers there are."""
    image = query.log.refresh()
    return ",".join(str(BrokerAddress(b.host, b.port)) for b in image.live_brokers())


def check(query: Query, seen: Seen) -> None:
    """Count what is there, once everything has ended, and compare with what was seen."""
    eventually(
        lambda: len(look(query.job.root)) == query.expected, "the end of the last transaction"
    )
    final = look(query.job.root)
    numbers = sorted(final.values())
    assert numbers == list(range(query.expected))
    by_partition: dict[int, list[int]] = defaultdict(list)
    for (partition, _), number in sorted(final.items()):
        by_partition[partition].append(number // RECORDS_PER_BATCH)
    assert all(batches == sorted(batches) for batches in by_partition.values())


class Died(Exception):
    """An attempt ended here, without a word."""


class Dying(TransactionalAppends):
    """Attempts of which many die after one of their steps."""

    def __init__(self, log: Log, chances: random.Random) -> None:
        super().__init__(log, None)
        self.chances = chances

    def send(self, *args: Any) -> Mapping[TopicPartition, AppendResult]:
        appended = super().send(*args)
        self.perhaps_die()
        return appended

    def tell(self, *args: Any) -> None:
        super().tell(*args)
        self.perhaps_die()

    def end(self, *args: Any, **how: Any) -> None:
        super().end(*args, **how)
        self.perhaps_die()

    def perhaps_die(self) -> None:
        if self.chances.random() < 0.25:
            raise Died


def test_attempts_and_brokers_that_die_leave_whole_batches(query: Query) -> None:
    """Run the sink's driver without Spark: each attempt may end at any step."""
    seed = random.randrange(1 << 32)
    print(f"seed={seed}")
    write_plan(query.plan, [Point(where, "itself") for where in (TAKEN, FLUSHED, TAKEN, FLUSHED)])
    with KilledBrokers(query.folder, query.job.root, query.plan) as brokers:
        query.wait_for_leaders()
        with watched(query) as seen:
            for batch in range(query.expected // RECORDS_PER_BATCH):
                attempts = Dying(query.log, random.Random(seed + batch))
                eventually(lambda: publish_numbers(query, batch, attempts), f"batch {batch}")  # noqa: B023
            assert reached(query.plan) == 4, brokers.said()
            check(query, seen)
        seen.check(look(query.job.root))


def publish_numbers(query: Query, batch: int, attempts: Dying) -> bool:
    """Stage and publish a batch as one attempt does; says whether it came to its end."""
    log, options = query.log, SinkOptions("", "out")
    numbers = range(batch * RECORDS_PER_BATCH, (batch + 1) * RECORDS_PER_BATCH)
    values = [b"%d" % number for number in numbers]
    rows = pa.RecordBatch.from_pydict({"key": [v[-1:] for v in values], "value": values})
    try:
        parts = stage_rows(log, options, ["key", "value"], iter([rows]))
        publish(log, "query", batch, parts, in_transaction=attempts, transactional=True)
    except (Died, Unavailable, OutcomeUnknown, NotServing, Fenced):
        return False
    return True


def test_readers_of_committed_records_see_whole_batches_after_kills(query: Query) -> None:
    """Workers of the driver and brokers die between the steps of transactions."""
    query.reads_files()
    steps = ["after begin", "after send", TAKEN, "after tell", FLUSHED, "after end", TAKEN]
    write_plan(query.plan, [Point(where, "itself") for where in steps])
    query.job = replace(query.job, restarts_max=2 * len(steps))
    with KilledBrokers(query.folder, query.job.root, query.plan) as brokers:
        query.wait_for_leaders()
        with watched(query) as seen:
            assert query.run() == 0
            assert reached(query.plan) == len(steps), brokers.said()
            assert brokers.restarts >= 3
            check(query, seen)
        seen.check(look(query.job.root))


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_driver_killed_in_a_transaction_leaves_whole_batches(
    query: Query,
) -> None:
    query.reads_files()
    steps = ["after begin", "after send", "after tell", "after end", r"after commit .*"]
    write_plan(query.plan, [Point(where, "driver") for where in steps])
    with KilledBrokers(query.folder, query.job.root, query.plan):
        query.wait_for_leaders()
        with watched(query) as seen:
            assert query.run_until_done(len(steps) + 1) == len(steps) + 1
            check(query, seen)
        seen.check(look(query.job.root))


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("slept", ["after send", "after tell", "before begin"])
def test_a_driver_that_wakes_amid_its_transaction_changes_nothing(query: Query, slept: str) -> None:
    query.reads_files()
    write_plan(query.plan, [Point(slept, "pause")])
    with KilledBrokers(query.folder, query.job.root, query.plan):
        query.wait_for_leaders()
        with watched(query) as seen:
            query.overtake_one_that_sleeps(lambda: check(query, seen))
        seen.check(look(query.job.root))


KILLS = 12
NO_LAG = {0: 0, 1: 0}
TRANSACTIONS = 24


def fill(query: Query, bootstrap: str) -> None:
    """Produce to the topic that is read, in transactions of which every other one is aborted."""
    query.expected = TRANSACTIONS * RECORDS_PER_BATCH
    producer = ck.Producer({"bootstrap.servers": bootstrap, "transactional.id": "filler"})
    producer.init_transactions(RUN_SECONDS_MAX)
    for number in range(2 * TRANSACTIONS):
        producer.begin_transaction()
        first = number // 2 * RECORDS_PER_BATCH
        for n in range(first, first + RECORDS_PER_BATCH):
            producer.produce("in", b"%d" % n, key=b"%d" % (n % 20), partition=n % 2)
        if number % 2:
            producer.commit_transaction(RUN_SECONDS_MAX)
        else:
            producer.abort_transaction(RUN_SECONDS_MAX)


def executors(driver: int) -> list[int]:
    """Return the executors of a driver that runs a local cluster."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_one = b"CoarseGrainedExecutorBackend" in (folder / "cmdline").read_bytes()
            if is_one and os.getpgid(int(folder.name)) == driver:
                found.append(int(folder.name))
        except OSError:  # it has just ended
            continue
    return found


def harass(query: Query, brokers: KilledBrokers, chances: random.Random) -> None:
    """Run the query, and kill executors, brokers and drivers until enough are dead."""
    driver = query.start()
    for _ in range(KILLS):
        until_a_random_moment(chances, 1, 5)
        if driver.poll() is not None:
            assert driver.returncode in (0, -signal.SIGKILL), query.said()
            driver = query.start()
            continue
        victim = chances.choice(["executor", "broker", "driver"])
        some = executors(driver.pid)
        if victim == "broker":
            brokers.kill(chances.randrange(1, brokers.count + 1))
        elif victim == "driver":
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
        elif some:
            os.kill(chances.choice(some), signal.SIGKILL)
    if driver.poll() is None:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    query.run_until_done(2, 4 * RUN_SECONDS_MAX)


DELTA = delta_conf()


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("sink", ["sparklogpoints", "delta"])
def test_pipelines_have_each_record_once_after_kills(query: Query, sink: str) -> None:
    """From a led topic with aborted transactions to another one, and to a Delta table."""
    seed = random.randrange(1 << 32)
    print(f"seed={seed}")
    table = query.folder / "table"
    query.log.create_topic("in", 2)
    query.job = replace(
        query.job,
        topic="in",
        reading={"isolationLevel": "read_committed", "kafka.group.id": "copy"},
        sink=sink,
        output=str(table) if sink == "delta" else "out",
        records_per_batch=RECORDS_PER_BATCH,
        restarts_max=10,
        master="local-cluster[2,1,700]",
        settings={"spark.executor.memory": "600m", **(DELTA if sink == "delta" else {})},
    )
    with KilledBrokers(query.folder, query.job.root, query.plan, count=3) as brokers:
        query.wait_for_leaders()
        fill(query, addresses(query))
        with watched(query) if sink != "delta" else nullcontext() as seen:
            harass(query, brokers, random.Random(seed))
            if seen is not None:
                eventually(lambda: len(look(query.job.root)) == query.expected, "the copy")
        final = look(query.job.root)
        if lag(query) != NO_LAG:  # a marker came after the last run had seen the end
            assert query.run() == 0
        ends = eventually(lambda: lag(query) == NO_LAG, "the group's offsets at the end")
        assert ends
    if sink == "delta":
        numbers = [int(n) for n in read_delta(table).column("value").to_pylist()]
    else:
        assert seen is not None
        assert seen.by_client == final
        assert all(one.items() <= final.items() for one in seen.looks)
        numbers = list(final.values())
    assert sorted(numbers) == list(range(query.expected))


def lag(query: Query) -> dict[int, int]:
    """Return the lag of the query's group in what it reads, as Kafka's tools compute it."""
    settings = {"bootstrap.servers": addresses(query), "group.id": "copy"}
    consumer = ck.Consumer({**settings, "isolation.level": "read_committed"})
    places = consumer.committed([ck.TopicPartition("in", n) for n in range(2)], timeout=30)
    found = {}
    for place in places:
        _, end = consumer.get_watermark_offsets(place, timeout=30)
        found[int(place.partition)] = int(end) - int(place.offset)
    consumer.close()
    return found
