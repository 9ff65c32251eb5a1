"""The second half of the demo: brokers serve the same log, lose two executors, and lose no record.

Brokers are tasks on three executors. Flights come from Spark and from a plain Kafka client, which
goes on sending while executors are killed.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.client.admin import Admin
from sparklog.cluster.image import Topic
from sparklog.cluster.open import Log
from sparklog.cluster.records import NO_LEADER
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.errors import Unavailable
from sparklog.spark.demo.checks import read_topic
from sparklog.spark.demo.expected import Expected
from sparklog.spark.demo.plain_client import PlainClient, Read, read_everything
from sparklog.spark.demo.producing import FLIGHT_RECORDS, FLIGHT_SCHEMA, PARTITIONS, tell_report
from sparklog.spark.demo.scene import Scene
from sparklog.spark.demo.serving import BROKERS, PATIENCE_S, Brokers
from sparklog.spark.demo.takeovers import taken_over_at_s

STEPS = 6
TOPIC = "departures"
FIRST_MONTHS = 3
"""Sent by Spark; a plain client sends the rest."""
CLIENT_ROWS = 20_000
PRINTED_RECORDS = 3
CALM_S = 1.0
LOOK_S = 0.05
CLIENT = "the client says"


def play_brokers(scene: Scene, log: Log, expected: Expected) -> None:
    """Play it.

    Raises:
        SparklogError: it could not be played to its end.
    """
    scene.narrator.step("Brokers: three tasks on three executors serve the same log")
    brokers = Brokers(scene)
    brokers.await_event("serving")
    servers = brokers.bootstrap_servers
    _create_topic(scene, servers)
    by_spark = _produce_by_spark(scene, servers, expected)
    client = _start_client(scene, servers, expected)
    with Admin(servers) as admin:
        try:
            _look_by_console(scene, servers)
            scene.narrator.step("kill -9 of an executor: leaders move, writes go on")
            first = _kill_a_leader(scene, brokers, client, admin, [])
            scene.narrator.step("kill -9 of a second one: the last broker leads, both come back")
            second = _kill_a_leader(scene, brokers, client, admin, [first])
            _describe(scene, servers)
            for broker in (first, second):
                _await_return(brokers, admin, broker)
            scene.narrator.tell(f"all {BROKERS} replicas of all {PARTITIONS} partitions in sync")
            SYSTEM_CLOCK.sleep_s(CALM_S)
        finally:
            client.stop()
    scene.narrator.step("Every acknowledged record: there, once, in order")
    _check_records(scene, servers, client, by_spark)
    drained = brokers.drain()
    scene.checks.equal("brokers that handed over in good order", drained, BROKERS, "there were")
    total = by_spark + len(client.acknowledged)
    records = read_topic(log, TOPIC).num_rows
    scene.checks.equal("records in the log, read without brokers", records, total, CLIENT)


def _create_topic(scene: Scene, servers: str) -> None:
    _cli(
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


def _look_by_console(scene: Scene, servers: str) -> None:
    scene.narrator.step("A console consumer from the beginning, and who leads what")
    _cli(
        scene,
        *("consume", "--bootstrap-server", servers, "--topic", TOPIC, "--from-beginning"),
        *("--max-messages", str(PRINTED_RECORDS)),
    )
    _describe(scene, servers)


def _describe(scene: Scene, servers: str) -> None:
    _cli(scene, "topics", "--bootstrap-server", servers, "--describe", "--topic", TOPIC)


def _kill_a_leader(
    scene: Scene, brokers: Brokers, client: PlainClient, admin: Admin, dead: Sequence[int]
) -> int:
    """Kill the executor of a broker that leads something; returns the broker's id."""
    before = _leaders(admin.topic(TOPIC))
    victim = next(leader for leader in before.values() if leader not in dead)
    led = [number for number, leader in before.items() if leader == victim]
    sent = len(client.acknowledged)
    moment_s = brokers.kill_executor_of(victim)
    for number in led:
        leader, known_s = _await_other_leader(admin, number, victim)
        _await_acknowledgement(client, number, known_s)
        took_s = taken_over_at_s(moment_s, known_s, client.told_s(number)) - moment_s
        scene.narrator.tell(
            f"partition {number}: leader {victim} -> {leader}, which acknowledged its first record "
            f"{took_s:.2f} s after the kill"
        )
    more = len(client.acknowledged) - sent
    scene.narrator.tell(f"meanwhile the client had {more:,} more records acknowledged")
    return victim


def _await_other_leader(admin: Admin, number: int, victim: int) -> tuple[int, float]:
    """Return who leads a partition instead of the victim, and when that was seen."""
    deadline_s = SYSTEM_CLOCK.monotonic_s() + PATIENCE_S
    while (leader := _leaders(admin.topic(TOPIC))[number]) in (victim, NO_LEADER):
        if SYSTEM_CLOCK.monotonic_s() > deadline_s:
            raise Unavailable(f"nobody took over. partition={number} victim={victim}")
        SYSTEM_CLOCK.sleep_s(LOOK_S)
    return leader, SYSTEM_CLOCK.monotonic_s()


def _await_acknowledgement(client: PlainClient, number: int, after_s: float) -> None:
    deadline_s = after_s + PATIENCE_S
    while not any(at_s > after_s for at_s in client.told_s(number)[-1:]):
        if SYSTEM_CLOCK.monotonic_s() > deadline_s:
            raise Unavailable(f"the new leader takes no records. partition={number}")
        SYSTEM_CLOCK.sleep_s(LOOK_S)


def _await_return(brokers: Brokers, admin: Admin, broker: int) -> None:
    """Wait until a killed broker is in sync everywhere."""
    deadline_s = SYSTEM_CLOCK.monotonic_s() + PATIENCE_S
    while not all(broker in one.isr for one in admin.topic(TOPIC).partition_states):
        brokers.look()
        if SYSTEM_CLOCK.monotonic_s() > deadline_s:
            raise Unavailable(f"a killed broker is not back in sync. broker={broker}")
        SYSTEM_CLOCK.sleep_s(LOOK_S)


def _leaders(topic: Topic) -> dict[int, int]:
    return {number: one.leader for number, one in enumerate(topic.partition_states)}


def _check_records(scene: Scene, servers: str, client: PlainClient, by_spark: int) -> None:
    """Compare what is in the topic with what was acknowledged."""
    found = read_everything(servers, TOPIC, PARTITIONS)
    own = [one for one in found if one.number is not None]
    numbers = {one.number for one in own}
    lost = sum(one.number not in numbers for one in client.acknowledged)
    checks = scene.checks
    checks.equal("records the client could not send", len(client.failed), 0, "there should be")
    checks.equal("acknowledged records of the client", len(numbers), len(client.acknowledged),
                 CLIENT)  # fmt: skip
    checks.equal("acknowledged records that are missing", lost, 0, "there should be")
    checks.equal("records that are there twice", len(own) - len(numbers), 0, "there should be")
    checks.equal("records out of order", out_of_order(own), 0, "there should be")
    checks.equal("records of the Spark job", len(found) - len(own), by_spark)


def out_of_order(found: Sequence[Read]) -> int:
    """Return how many records come after one that was sent later, in any partition."""
    newest: dict[int, int] = defaultdict(lambda: -1)
    wrong = 0
    for one in sorted(found, key=lambda read: (read.partition, read.offset)):
        assert one.number is not None, "only the client's own records have an order"
        wrong += one.number < newest[one.partition]
        newest[one.partition] = max(newest[one.partition], one.number)
    return wrong


def _cli(scene: Scene, *words: str) -> None:
    """Run `sparklog`, and show what it says."""
    scene.narrator.command(_shown(words))
    child = scene.children.start([sys.executable, "-m", "sparklog.cli", *words], scene.environment)
    for line in child.lines():
        scene.narrator.tell(_cut(line.rstrip()))
    child.finish()


def _shown(words: Sequence[Any]) -> str:
    return " ".join(["sparklog", *words])


def _cut(line: str, width: int = 150) -> str:
    return line if len(line) <= width else line[: width - 1] + "…"
