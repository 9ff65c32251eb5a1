"""The second half of the demo: brokers serve the same log, lose two executors, and lose no record.

Brokers are tasks on three executors. Flights come from Spark and from a plain Kafka client, which
goes on sending while executors are killed, and a consumer group goes on reading.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.client.admin import Admin
from sparklog.client.values import Election
from sparklog.cluster.open import Log
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.types import TopicPartition
from sparklog.spark.demo.broker_checks import CLIENT, check_group, check_records
from sparklog.spark.demo.checks import read_topic
from sparklog.spark.demo.command import sparklog
from sparklog.spark.demo.expected import Expected
from sparklog.spark.demo.group import GROUP, MEMBERS, ReadingGroup
from sparklog.spark.demo.plain_client import PlainClient
from sparklog.spark.demo.producing import FLIGHT_RECORDS, FLIGHT_SCHEMA, PARTITIONS, tell_report
from sparklog.spark.demo.scene import Scene
from sparklog.spark.demo.serving import BROKERS, PATIENCE_S, TOPIC, Brokers
from sparklog.spark.demo.takeovers import await_return, kill_a_leader

STEPS = 6
FIRST_MONTHS = 3
"""Sent by Spark; a plain client sends the rest."""
CLIENT_ROWS = 20_000
PRINTED_RECORDS = 3
CALM_S = 1.0


def play_brokers(
    scene: Scene, log: Log, expected: Expected, schedule: Path, upkeep: Callable[[Brokers], None]
) -> None:
    """Play it; `upkeep` looks at jobs of `schedule` before brokers are asked to end.

    Raises:
        SparklogError: it could not be played to its end.
    """
    scene.narrator.step("Brokers: three tasks on three executors serve the same log")
    brokers = Brokers(scene, schedule)
    brokers.await_event("serving")
    servers = brokers.bootstrap_servers
    _create_topic(scene, servers)
    group = _start_group(scene, servers)
    by_spark = _produce_by_spark(scene, servers, expected)
    client = _start_client(scene, servers, expected)
    with Admin(servers) as admin:
        try:
            _look_by_console(scene, servers)
            group.await_reads(by_spark, PATIENCE_S)
            scene.narrator.tell(f"the group has read {group.reads:,} records so far")
            scene.narrator.step("kill -9 of an executor: leaders move, writes go on")
            first = kill_a_leader(scene, brokers, client, admin, [])
            scene.narrator.step("kill -9 of a second one: the last broker leads, both come back")
            second = kill_a_leader(scene, brokers, client, admin, [first])
            _describe(scene, servers)
            for broker in (first, second):
                await_return(brokers, admin, broker)
            scene.narrator.tell(f"all {BROKERS} replicas of all {PARTITIONS} partitions in sync")
            everything = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
            admin.elect_leaders(Election.PREFERRED, everything)
            scene.narrator.tell("an election of the preferred leaders puts things as they were")
            _describe(scene, servers)
            SYSTEM_CLOCK.sleep_s(CALM_S)
        except BaseException:
            client.abandon()  # there may be nobody left to answer
            raise
        client.stop()
    scene.narrator.step("Every acknowledged record: there, once, in order")
    found = check_records(scene, servers, client, by_spark)
    check_group(scene, servers, group, found)
    upkeep(brokers)
    drained = brokers.drain()
    scene.checks.equal("brokers that handed over in good order", drained, BROKERS, "there were")
    total = by_spark + len(client.acknowledged)
    records = read_topic(log, TOPIC).num_rows
    scene.checks.equal("records in the log, read without brokers", records, total, CLIENT)


def _create_topic(scene: Scene, servers: str) -> None:
    sparklog(
        scene,
        *("topics", "--bootstrap-server", servers, "--create", "--topic", TOPIC),
        *("--partitions", str(PARTITIONS), "--replication-factor", str(BROKERS)),
    )


def _produce_by_spark(scene: Scene, servers: str, expected: Expected) -> int:
    """Send some months by a Spark job; returns how many records that are."""
    scene.narrator.step("A Spark job and a plain Kafka client send flights to the brokers")
    job = scene.job(
        "produce.py",
        *("--bootstrap-server", servers, "--topic", TOPIC),
        *("--input", str(scene.stage.work / "in" / "flights"), "--format", "csv"),
        *("--option", "nullValue=NA", "--schema", FLIGHT_SCHEMA),
        *("--where", f"month <= {FIRST_MONTHS}", *FLIGHT_RECORDS),
    )
    rows = tell_report(scene, job)
    months = expected.rows["flights"].column("month")
    must = int(pc.sum(pc.less_equal(months, FIRST_MONTHS)).as_py())
    scene.checks.equal("flights sent by Spark", rows, must)
    return must


def _start_client(scene: Scene, servers: str, expected: Expected) -> PlainClient:
    flights: pa.Table = expected.rows["flights"]
    later = flights.filter(pc.greater(flights.column("month"), FIRST_MONTHS))
    client = PlainClient(servers, TOPIC, later.slice(0, CLIENT_ROWS).to_pylist())
    client.start()
    scene.narrator.command(f'Producer({{"bootstrap.servers": "{servers}"}}).produce("{TOPIC}", …)')
    scene.narrator.tell("confluent-kafka sends later flights from here on, without a pause")
    return client


def _start_group(scene: Scene, servers: str) -> ReadingGroup:
    group = ReadingGroup(servers, TOPIC)
    group.start()
    scene.narrator.command(f'Consumer({{"group.id": "{GROUP}", …}}).subscribe(["{TOPIC}"])')
    scene.narrator.tell(
        f"a consumer group of {MEMBERS} reads from the beginning, and goes on reading"
    )
    return group


def _look_by_console(scene: Scene, servers: str) -> None:
    scene.narrator.step("A console consumer from the beginning, and who leads what")
    sparklog(
        scene,
        *("consume", "--bootstrap-server", servers, "--topic", TOPIC, "--from-beginning"),
        *("--max-messages", str(PRINTED_RECORDS)),
    )
    _describe(scene, servers)


def _describe(scene: Scene, servers: str) -> None:
    sparklog(scene, "topics", "--bootstrap-server", servers, "--describe", "--topic", TOPIC)
