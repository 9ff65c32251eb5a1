"""Leadership, model-checked: every order of events for three brokers and a partition.

Brokers register, crash and are fenced, restart, and shut down after draining or without. The
leader recovers, changes the ISR and hands over. The controller keeps up, and an admin moves
replicas. States that differ in epochs, offsets and incarnations alone are one. Each step runs the
very decisions that brokers append, and each must keep the invariants of `check`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from sparklog.cluster.controller import controller, election, isr, reassignment
from sparklog.cluster.metadata import changes
from sparklog.cluster.metadata.image import MetadataImage, PartitionState
from sparklog.cluster.metadata.records import (
    NO_LEADER,
    ControllerChangeRecord,
    Record,
    RegisterBrokerRecord,
    TopicRecord,
)
from sparklog.core.errors import InvalidRequest
from sparklog.core.types import PartitionId
from tests.harness.metadata_cluster import broker as _broker

TOPIC_ID = "t" * 22
WHERE = PartitionId(TOPIC_ID, 0)
WALS_MAX = 2
"""More generations of leaders than this without a recovery are not looked at."""


@dataclass(frozen=True)
class Step:
    """Something that happens, and what it may leave out of `wals`."""

    name: str
    decide: Callable[[MetadataImage], Sequence[Record]]
    flushes: bool = False
    """The leader has brought all it had into the partition's own log."""


def applied(image: MetadataImage, records: Sequence[Record]) -> MetadataImage:
    return image.applied(records, image.end_offset + len(records)) if records else image


def partition(image: MetadataImage) -> PartitionState | None:
    return image.partition(WHERE)


def steps(image: MetadataImage, brokers: Sequence[int]) -> Iterator[Step]:
    for b in brokers:
        record = RegisterBrokerRecord(b, f"{b}{image.end_offset:031x}", f"host{b}", 9092)
        yield Step(f"register {b}", partial(election.register, record=record))
        known = image.brokers.get(b)
        if known is None:
            continue
        yield Step(f"fence {b}", partial(election.fence, broker_ids=[b]))
        if not known.fenced:
            who: dict[str, Any] = {"broker_id": b, "incarnation": known.incarnation}
            leave = partial(election.controlled_shutdown, **who)
            yield Step(f"begin {b}", partial(election.begin_shutdown, **who))
            yield Step(f"leave {b} drained", partial(leave, drained={WHERE}), flushes=True)
            yield Step(f"leave {b} in haste", partial(leave, drained=()))
    yield Step("keep up", partial(controller.upkeep, topics=["t"], default_replication_factor=2))
    yield Step("rebalance", controller.rebalance)
    state = partition(image)
    if state is not None:
        yield from steps_of_partition(image, state, brokers)


def steps_of_partition(
    image: MetadataImage, state: PartitionState, brokers: Sequence[int]
) -> Iterator[Step]:
    yield Step("prefer", partial(election.prefer, where=WHERE))
    yield Step("cancel", partial(reassignment.cancel, where=WHERE))
    for target in ((1, 2), (2, 3), (3,)):
        if set(target) <= set(brokers):
            move = partial(reassignment.reassign, where=WHERE, target=target)
            yield Step(f"move to {target}", move)
    if state.leader == NO_LEADER:
        return
    me, epoch = state.leader, state.leader_epoch
    leader: dict[str, Any] = {"where": WHERE, "broker_id": me, "leader_epoch": epoch}
    recovered = partial(isr.recovered, leading=[(WHERE, epoch)], broker_id=me)
    yield Step("recovered", recovered, flushes=True)
    yield Step("hand over", partial(election.hand_over, **leader), flushes=True)
    for b in brokers:
        known = image.brokers.get(b)
        if known is not None:
            now, earlier = {b: known.epoch}, {b: known.epoch - 1}
            yield Step(f"expand {b}", partial(isr.expand, **leader, joining=now))
            yield Step(f"stale {b}", partial(isr.expand, **leader, joining=earlier))
        yield Step(f"shrink {b}", partial(isr.shrink, **leader, leaving=[b]))


def check(image: MetadataImage) -> None:
    """Check the invariants of every state."""
    for _, p in image.partitions():
        assert set(p.isr) <= set(p.replicas), p
        assert len(set(p.replicas)) == len(p.replicas), p
        for b in p.isr:
            assert b in image.brokers, (b, p)
            assert not image.brokers[b].fenced, (b, p)
        if p.leader == NO_LEADER:
            assert p.isr == (), p
            assert p.recovering == bool(p.wals), p
        else:
            assert p.leader in p.isr, p
        assert p.recovering or p.wals == (), p
        assert p.recovering or not p.take_lead, p
        assert set(p.adding_replicas) <= set(p.replicas), p
        assert set(p.removing_replicas) <= set(p.replicas), p
        assert not set(p.adding_replicas) & set(p.removing_replicas), p
        assert set(p.replicas) != set(p.removing_replicas) or not p.replicas, p
        assert p.next_leader == NO_LEADER or p.next_leader in p.replicas, p


def leader_of(image: MetadataImage) -> tuple[int, int]:
    """The process that leads: broker id and broker epoch."""
    p = partition(image)
    if p is None or p.leader == NO_LEADER:
        return NO_LEADER, -1
    return p.leader, image.brokers[p.leader].epoch


def check_step(before: MetadataImage, after: MetadataImage, step: Step) -> None:
    """Check the invariants from one state to the next."""
    old, new = partition(before), partition(after)
    assert old is not None
    assert new is not None
    assert (new.partition_epoch == old.partition_epoch) == (new == old), (old, new)
    assert new.partition_epoch in (old.partition_epoch, old.partition_epoch + 1), (old, new)
    changed = leader_of(before) != leader_of(after)
    assert new.leader_epoch == old.leader_epoch + changed, (old, new)
    if changed and new.leader != NO_LEADER:
        assert new.recovering, (old, new)
        assert new.take_lead or old.leader != NO_LEADER, "nobody led it: the log is to be marked"
        assert new.take_lead or not old.recovering, "the log is to be marked against a late flush"
    needed = set(old.wals)
    if changed and old.leader != NO_LEADER:
        needed.add(election.wal_name(before.brokers[old.leader]))
    if not step.flushes:
        assert needed <= set(new.wals), (step.name, old, new)
    for b, was in before.brokers.items():
        now = after.brokers.get(b)
        if now is not None and now.epoch != was.epoch:
            assert now.epoch > was.epoch
            assert b not in new.isr or new.leader == b, "a new incarnation has nothing in memory"


def keeps_up(image: MetadataImage) -> None:
    """Left alone, the controller comes to an end, and everything is led if anybody can."""
    for _ in range(6):
        records = controller.upkeep(image, ["t"], 2)
        if not records:
            break
        image = applied(image, records)
        check(image)
    assert controller.upkeep(image, ["t"], 2) == []
    p = partition(image)
    assert p is not None
    if image.eligible_brokers():
        assert p.leader != NO_LEADER


def essence(image: MetadataImage) -> Any:
    """Return the relevant part of a state: of a WAL its owner, and if that owner is registered."""
    p = partition(image)
    assert p is not None
    names = {election.wal_name(b): b.broker_id for b in image.brokers.values()}
    return (
        tuple(sorted((b.broker_id, b.fenced, b.shutting_down) for b in image.brokers.values())),
        p.replicas,
        p.isr,
        p.leader,
        p.recovering,
        p.take_lead,
        tuple((wal[:1], wal in names) for wal in p.wals),
        p.adding_replicas,
        p.removing_replicas,
        p.next_leader,
        image.topics["t"].replication_factor,
    )


def explore(
    start: MetadataImage, brokers: Sequence[int], states_max: int
) -> tuple[int, int, set[str]]:
    """Visit states breadth first; return how many, the steps, and which kinds did something."""
    check(start)
    seen = {essence(start)}
    queue = deque([start])
    transitions = 0
    effective: set[str] = set()
    while queue and len(seen) < states_max:
        image = queue.popleft()
        keeps_up(image)
        for step in steps(image, brokers):
            try:
                records = step.decide(image)
            except InvalidRequest:
                continue
            if not records:
                continue
            after = applied(image, records)
            transitions += 1
            effective.add(step.name)
            check(after)
            check_step(image, after, step)
            p = partition(after)
            assert p is not None
            if len(p.wals) <= WALS_MAX and (key := essence(after)) not in seen:
                seen.add(key)
                queue.append(after)
    return len(seen), transitions, effective


def unled(replication_factor: int | None) -> MetadataImage:
    """A topic made when there was no broker."""
    records: list[Record] = [*changes.create_topic(MetadataImage(), "t", TOPIC_ID, 1, {})]
    records[0] = TopicRecord("t", TOPIC_ID, replication_factor)
    return applied(MetadataImage(), records)


def test_every_order_of_two_brokers() -> None:
    states, transitions, effective = explore(unled(None), (1, 2), 100_000)
    assert states < 100_000, "all states were visited"
    assert transitions > states
    assert {"hand over", "recovered", "prefer", "leave 1 in haste", "leave 2 drained"} <= effective
    assert not any(name.startswith("stale") for name in effective)


@pytest.mark.parametrize("replication_factor", [1, 2, 3])
def test_decisions_hold_in_many_orders_of_three_brokers(replication_factor: int) -> None:
    states, _, effective = explore(unled(replication_factor), (1, 2, 3), 8_000)
    assert states >= 8_000
    assert {"move to (2, 3)", "cancel", "recovered"} <= effective


@pytest.mark.soak
def test_every_order_of_three_brokers() -> None:
    states, _, _ = explore(unled(2), (1, 2, 3), 150_000)
    assert states > 10_000


def test_two_controllers_are_never_one_epoch() -> None:
    image = MetadataImage()
    for b in (1, 2, 3):
        made = _broker(b)
        image = applied(image, [RegisterBrokerRecord(b, made.incarnation, made.host, 9092)])
    first = controller.claim(image, 1, _broker(1).incarnation, None)
    assert first == [ControllerChangeRecord(1, _broker(1).incarnation, 1)]
    image = applied(image, first)
    lost = image.controller
    second = applied(image, controller.claim(image, 2, _broker(2).incarnation, lost))
    assert second.controller is not None
    assert second.controller.epoch == 2
    assert controller.claim(second, 3, _broker(3).incarnation, lost) == [], "somebody was faster"
