"""Time until a group has shared its partitions again after members came, left or crashed.

The clock starts when a client is started, closed or killed. It stops when the last member has its
even share. For a crash it stops at the first record of the last partition of the dead member.
Members send heartbeats every half second, of every protocol and to both systems alike.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import count

from confluent_kafka import Producer

from tests.bench.common.results import Measure, Results
from tests.bench.common.rounds import turns
from tests.bench.common.side import ANSWER_TIMEOUT_S, Side
from tests.bench.common.targets import CostAtMost, CostAtMostPeer
from tests.bench.groups.members import PROTOCOLS, SESSION_MS, Group
from tests.bench.groups.plan import Plan
from tests.peers.sparklog import PROJECT

GROUP = "rebalance, s"
CRASH_LIMIT_S = SESSION_MS / 1000 + 1

_names = count(1)


def measure_rebalances(sides: Sequence[Side], plan: Plan, results: Results) -> None:
    """Measure every protocol, every side in turn."""
    topic = "rebalanced"
    for side in sides:
        side.create(topic, plan.partitions, 1)
        _fill(side, topic, plan.partitions)
        _warm_up(side, topic, plan.partitions)
    for protocol in PROTOCOLS:
        for number, side in turns(sides, plan.rounds):
            _grow_and_shrink(side, topic, protocol, plan, results, number)
            _crash(side, topic, protocol, plan, results, number)
    for side in sides:
        side.drop(topic)


def _grow_and_shrink(
    side: Side, topic: str, protocol: str, plan: Plan, results: Results, number: int
) -> None:
    members, partitions = plan.members, plan.partitions

    def add(what: str, began: float, ended: float) -> None:
        measure = Measure(f"{protocol}: {what}", "s", (CostAtMostPeer("kafka"),), GROUP)
        results.add(measure, side.name, ended - began, number)

    with Group(side.bootstrap, f"group-{next(_names)}", topic, protocol) as group:
        began = group.join(members)
        add(
            f"{members} members start at once",
            began,
            group.await_share(partitions, ANSWER_TIMEOUT_S),
        )
        began = group.leave()
        add("one of them leaves", began, group.await_share(partitions, ANSWER_TIMEOUT_S))
        began = group.join()
        add(f"a {members}th joins", began, group.await_share(partitions, ANSWER_TIMEOUT_S))
        twice = group.owners_at_once
    with Group(side.bootstrap, f"group-{next(_names)}", topic, protocol) as group:
        group.join()
        group.await_share(partitions, ANSWER_TIMEOUT_S)
        began = group.join(members - 1)
        add(f"1 member becomes {members}", began, group.await_share(partitions, ANSWER_TIMEOUT_S))
        twice += group.owners_at_once
    results.check_equal(f"{side.name}: {protocol}: partitions seen with two owners", twice, 0)


def _crash(
    side: Side, topic: str, protocol: str, plan: Plan, results: Results, number: int
) -> None:
    measure = Measure(
        f"{protocol}: a killed member's partitions are read again",
        "s",
        (CostAtMost(CRASH_LIMIT_S, "s", "session time-out + 1 s"), CostAtMostPeer("kafka")),
        GROUP,
    )
    name = f"group-{next(_names)}"
    share = plan.partitions // plan.members
    words = [sys.executable, "-m", "tests.bench.groups.lone_member"]
    words += [side.bootstrap, name, topic, protocol]
    with (
        Group(side.bootstrap, name, topic, protocol) as group,
        subprocess.Popen(words, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as lone,
    ):
        try:
            group.join(plan.members - 1)
            group.await_share(plan.partitions - share, ANSWER_TIMEOUT_S)
            assert lone.stdout is not None
            while len(owned := json.loads(lone.stdout.readline())) != share:
                pass
        finally:
            killed = time.monotonic()
            lone.kill()
        read = group.await_read(frozenset(owned), killed, ANSWER_TIMEOUT_S)
    results.add(measure, side.name, read - killed, number)


def _warm_up(side: Side, topic: str, partitions: int) -> None:
    """Have a group, so that there is a topic for groups."""
    for protocol in PROTOCOLS:
        with Group(side.bootstrap, f"group-{next(_names)}", topic, protocol) as group:
            group.join()
            group.await_share(partitions, ANSWER_TIMEOUT_S)


def _fill(side: Side, topic: str, partitions: int) -> None:
    """Give every partition a record."""
    producer = Producer({"bootstrap.servers": side.bootstrap, "log_level": 2})
    for partition in range(partitions):
        producer.produce(topic, b"here", partition=partition)
    left = producer.flush(ANSWER_TIMEOUT_S)
    assert left == 0, f"{left} records were not acknowledged"
