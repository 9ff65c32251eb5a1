"""The second half of the demo: brokers serve the same log, lose two executors, and lose no record.

Brokers are tasks on three executors. Flights come from Spark and from a plain Kafka client, which
goes on sending while executors are killed, and a consumer group goes on reading.

The checks find every record that brokers acknowledged while executors were killed.

The demo kills executors, and reports how long clients were without a leader.

A killed executor's broker lives on for the blink of an eye and may still acknowledge, so the first
acknowledgement after a kill proves nothing. The measure is the longest silence between the kill
and the moment when another broker is known to lead. It ends with the new leader's first answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.client.admin import Admin
from sparklog.client.values import Election
from sparklog.cluster.log import Log
from sparklog.cluster.metadata.records import NO_LEADER
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.errors import SparklogError, Unavailable
from sparklog.core.types import TopicPartition
from sparklog.spark.demo.group import GROUP, MEMBERS, ReadingGroup
from sparklog.spark.demo.plain_client import PlainClient, Read, read_everything
from sparklog.spark.demo.producers import FLIGHT_RECORDS, FLIGHT_SCHEMA, PARTITIONS, tell_report
from sparklog.spark.demo.scene import Expected, Scene, read_topic, sparklog
from sparklog.spark.demo.serving import BROKERS, PATIENCE_S, TOPIC, DemoBrokers

LOOK_S = 0.05


def kill_a_leader(
    scene: Scene, brokers: DemoBrokers, client: PlainClient, admin: Admin, dead: Sequence[int]
) -> int:
    """Kill the executor of a broker that leads something, and report who takes over and how fast.

    Returns the broker's id. Raises Unavailable: no broker took over.
    """
    before = _leaders(admin)
    victim = next(leader for leader in before if leader not in dead)
    acknowledged = len(client.acknowledged)
    moment_s = brokers.kill_executor_of(victim)
    for number in [number for number, leader in enumerate(before) if leader == victim]:
        at_s = _taken_over_at_s(client, admin, number, victim, moment_s)
        scene.narrator.tell(
            f"partition {number}: leader {victim} -> {_leaders(admin)[number]}, which acknowledged "
            f"its first record {at_s - moment_s:.2f} s after the kill"
        )
    more = len(client.acknowledged) - acknowledged
    scene.narrator.tell(f"meanwhile the client had {more:,} more records acknowledged")
    return victim


def await_return(brokers: DemoBrokers, admin: Admin, broker: int) -> None:
    """Wait until a killed broker is in sync everywhere.

    Raises:
        Unavailable: not in time.
    """

    def returned() -> bool:
        brokers.look()
        return all(broker in one.isr for one in admin.topic(TOPIC).partition_states)

    _wait(returned, f"a killed broker is not back in sync. broker={broker}")


def taken_over_at_s(moment_s: float, known_s: float, acknowledged_s: Sequence[float]) -> float:
    """Return when the new leader acknowledged first.

    Args:
        moment_s: of the kill.
        known_s: when another leader was seen in the cluster's metadata.
        acknowledged_s: of all acknowledgements of the partition, in order. One at least must be
            later than `known_s`.
    """
    until_s = next(at_s for at_s in acknowledged_s if at_s > known_s)
    acknowledgements_s = [at_s for at_s in acknowledged_s if moment_s < at_s <= until_s]
    silences = [
        (after - before, after) for before, after in pairwise([moment_s, *acknowledgements_s])
    ]
    return max(silences)[1]


def _taken_over_at_s(
    client: PlainClient, admin: Admin, number: int, victim: int, moment_s: float
) -> float:
    """Wait until another broker leads a partition and accepts records; returns since when.

    Raises:
        Unavailable: not in time.
    """

    def led() -> bool:
        return _leaders(admin)[number] not in (victim, NO_LEADER)

    _wait(led, f"nobody took over. partition={number} victim={victim}")
    known_s = SYSTEM_CLOCK.monotonic_s()

    def acknowledged() -> bool:
        return max(client.acknowledgements_s(number), default=0.0) > known_s

    _wait(acknowledged, f"the new leader takes no records. partition={number}")
    return taken_over_at_s(moment_s, known_s, client.acknowledgements_s(number))


def _leaders(admin: Admin) -> list[int]:
    return [one.leader for one in admin.topic(TOPIC).partition_states]


def _wait(holds: Callable[[], bool], otherwise: str) -> None:
    deadline_s = SYSTEM_CLOCK.monotonic_s() + PATIENCE_S
    while not holds():
        if SYSTEM_CLOCK.monotonic_s() > deadline_s:
            raise Unavailable(otherwise)
        SYSTEM_CLOCK.sleep_s(LOOK_S)


CLIENT = "the client says"
NONE = "there should be"


def check_records(scene: Scene, servers: str, client: PlainClient, by_spark: int) -> Sequence[Read]:
    """Compare what is in the topic with what was acknowledged; returns what is there."""
    found = read_everything(servers, TOPIC, PARTITIONS)
    own = [one for one in found if one.number is not None]
    numbers = {one.number for one in own}
    acknowledged = len(client.acknowledged)
    lost = sum(one.number not in numbers for one in client.acknowledged)
    equal = scene.checks.equal
    equal("records the client could not send", len(client.failed), 0, NONE)
    equal("acknowledged records of the client", len(numbers), acknowledged, CLIENT)
    equal("acknowledged records that are missing", lost, 0, NONE)
    equal("records that are there twice", len(own) - len(numbers), 0, NONE)
    equal("records out of order", out_of_order(own), 0, NONE)
    equal("records of the Spark job", len(found) - len(own), by_spark)
    return found


def out_of_order(found: Sequence[Read]) -> int:
    """Return how many records come after one that was sent later, in any partition."""
    newest: dict[int, int] = defaultdict(lambda: -1)
    wrong = 0
    for one in sorted(found, key=lambda read: (read.partition, read.offset)):
        assert one.number is not None, "only the client's own records have an order"
        wrong += one.number < newest[one.partition]
        newest[one.partition] = max(newest[one.partition], one.number)
    return wrong


def check_group(scene: Scene, servers: str, group: ReadingGroup, found: Sequence[Read]) -> None:
    """Let a group come to the end, and compare what it has read and committed.

    Raises:
        SparklogError: it does not come there, or its committed offsets are unknown.
    """
    places = {(one.partition, one.offset) for one in found}
    try:
        group.await_all(places, PATIENCE_S)
    finally:
        group.stop()
    again = group.reads - len(places)
    scene.narrator.tell(f"the group has read {group.reads:,} records, {again:,} of them twice")
    equal = scene.checks.equal
    equal("records that the group has missed", len(group.missing(places)), 0, NONE)
    equal("members that failed", len(group.failed), 0, NONE)
    sparklog(scene, "groups", "--bootstrap-server", servers, "--describe", "--group", GROUP)
    equal("lag of the group", _lag(servers, places), 0, NONE)


def _lag(servers: str, places: set[tuple[int, int]]) -> int:
    """Return how many records lie behind what the group has committed."""
    with Admin(servers) as admin:
        committed = admin.groups.offsets([GROUP])[GROUP]
    if isinstance(committed, SparklogError):
        raise committed
    read_to = {where.partition: one.offset for where, one in committed.items()}
    return sum(offset >= read_to.get(partition, 0) for partition, offset in places)


STEPS = 6
FIRST_MONTHS = 3
"""Sent by Spark; a plain client sends the rest."""
CLIENT_ROWS = 20_000
PRINTED_RECORDS = 3
CALM_S = 1.0


def play_brokers(
    scene: Scene,
    log: Log,
    expected: Expected,
    schedule: Path,
    upkeep: Callable[[DemoBrokers], None],
) -> None:
    """Play it; `upkeep` looks at jobs of `schedule` before brokers are asked to end.

    Raises:
        SparklogError: it could not be played to its end.
    """
    scene.narrator.step("Brokers: three tasks on three executors serve the same log")
    brokers = DemoBrokers(scene, schedule)
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
            client.abandon()  # there may be no broker left to answer
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
