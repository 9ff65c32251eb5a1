"""Invariants of a simulated cluster of real brokers, checked from inside during and after a run.

After every step:

SIM-1: A leader epoch of a partition has one leader, ever.
SIM-2: The high watermark of a leader epoch never goes back.
SIM-3: flushed end <= high watermark <= copied end <= log end.
SIM-4: A record below the copied end (acks=1) is in the write-ahead log, or in the memory of an
    in-sync follower.

At intervals:

SIM-5: Below the leader's view of a follower's log end, the follower's memory equals the leader's.
SIM-6: A committed record that is not flushed is in the memory of all in-sync replicas.

In the end, read from the store without any broker:

SIM-7: No incarnation acknowledged a window of its write-ahead log at or above its seal.
SIM-8: If only links between brokers break, each fault deposes a broker at most once.
SIM-9: The partition's own log has the records of the final reads, each at its offset.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparklog.broker.controller.metadata_log import MetadataLog
from sparklog.broker.partition.leader import LeaderPartition
from sparklog.core.entropy import new_nonce
from sparklog.core.types import PartitionId, TopicPartition
from sparklog.log.effects import run
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest.refresh import refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.history_reader import HistoryCache, HistoryReader
from sparklog.log.wal.sealing import seal
from sparklog.testing.history import Poll
from sparklog.testing.sim.clients import values_of
from sparklog.testing.sim.cluster import SimBroker, SimCluster
from sparklog.testing.sim.faults import LINK_FAULTS
from sparklog.testing.sim.node import SimulatedBroker, WatchedReplicas
from sparklog.testing.virtual_loop import Process, ProcessState

READ_BYTES = 1024 * 1024
STEPS_BETWEEN_COMPARISONS = 50


def watch(cluster: SimCluster) -> None:
    """Check `cluster` during the run and in the end."""
    cluster.invariants += [_Leaders().look, _replicas_agree]
    cluster.epilogues += [_sealed_logs_end, _incarnations_are_few, _storage_agrees]


class _Leaders:
    def __init__(self) -> None:
        self._leader: dict[tuple[PartitionId, int], str] = {}
        self._high_watermark: dict[tuple[PartitionId, int], int] = {}
        self._copied: dict[tuple[PartitionId, int], int] = {}

    def look(self, cluster: SimCluster, process: Process | None) -> None:
        """Check SIM-1 to SIM-3 for partitions that the process of this step leads."""
        node = cluster.nodes.get(process) if process is not None else None
        if not isinstance(node, SimulatedBroker) or not node.incarnations:
            return
        replicas = node.incarnations[-1]
        incarnation = replicas.identity.incarnation
        for led in replicas.led_partitions():
            epoch = led.where, led.leader_epoch
            leader = self._leader.setdefault(epoch, incarnation)
            assert leader == incarnation, f"SIM-1 two leaders: {epoch} {leader} {incarnation}"
            before, now = self._high_watermark.get(epoch, 0), led.high_watermark
            assert before <= now, f"SIM-2 high watermark went back: {epoch} from={before} to={now}"
            self._high_watermark[epoch] = now
            ends = led.flushed_end, now, led.leadership.copied_end, led.tail.end_offset
            assert list(ends) == sorted(ends), f"SIM-3 ends out of order: {epoch} {ends}"
            if led.leadership.copied_end > self._copied.get(epoch, 0):
                self._copied[epoch] = led.leadership.copied_end
                _has_copy(cluster, led)


def _has_copy(cluster: SimCluster, led: LeaderPartition) -> None:
    """Check SIM-4 in the step that moves the copied end."""
    copied_end = led.leadership.copied_end
    if led.leadership.durable_end >= copied_end:
        return
    by_epoch = {
        replicas.identity.broker_epoch: replicas
        for node in cluster.nodes.values()
        if isinstance(node, SimulatedBroker)
        for replicas in node.incarnations
    }
    for broker_id in led.leadership.minimal_isr & led.follower_epochs.keys():
        follower = by_epoch.get(led.follower_epochs[broker_id])
        followed = follower.followed_partition(led.where) if follower is not None else None
        if followed is None or followed.leader_epoch != led.leader_epoch:
            # It now follows a newer leader, and the records fetched from this one are not visible.
            return
        if followed.held.tail.end_offset >= copied_end:
            return
    raise AssertionError(f"SIM-4 only the leader has it: {led.where} copied_end={copied_end}")


def _alive(cluster: SimCluster) -> list[WatchedReplicas]:
    """Return the newest incarnation of each live process."""
    return [
        node.incarnations[-1]
        for process, node in cluster.nodes.items()
        if process.state is not ProcessState.DEAD
        and isinstance(node, SimulatedBroker)
        and node.incarnations
    ]


def _replicas_agree(cluster: SimCluster, process: Process | None) -> None:
    """Check SIM-5 and SIM-6, from the leaders' side."""
    if cluster.loop.steps % STEPS_BETWEEN_COMPARISONS:
        return
    alive = _alive(cluster)
    by_epoch = {replicas.identity.broker_epoch: replicas for replicas in alive}
    for leader in alive:
        for led in leader.led_partitions():
            for broker_id, broker_epoch in led.follower_epochs.items():
                follower = by_epoch.get(broker_epoch)
                known = led.leadership.follower(broker_id)
                if follower is not None and known is not None and led.live:
                    _compare(led, follower, known.log_end)


def _compare(led: LeaderPartition, follower: WatchedReplicas, log_end: int) -> None:
    followed = follower.followed_partition(led.where)
    if followed is None or followed.leader_epoch != led.leader_epoch:
        return
    theirs = followed.held.tail
    span = max(led.tail.start_offset, theirs.start_offset), min(log_end, theirs.end_offset)
    same = led.tail.batches(*span) == theirs.batches(*span)
    assert same, (
        f"SIM-5 a replica differs: {led.where} epoch={led.leader_epoch} offsets={span} "
        f"follower={follower.identity.broker_id}"
    )
    has_all = theirs.end_offset >= led.high_watermark or led.flushed_end >= led.high_watermark
    assert has_all or follower.identity.broker_id not in led.leadership.isr, (
        f"SIM-6 committed and not everywhere: {led.where} high_watermark={led.high_watermark} "
        f"follower={follower.identity.broker_id} its_end={theirs.end_offset}"
    )


def _sealed_logs_end(cluster: SimCluster) -> Iterator[str]:
    """Seal all logs: each seal must be above every acknowledged window (SIM-7)."""
    for broker in cluster.brokers:
        for node in _nodes(broker):
            for manager in node.incarnations:
                nonce = new_nonce(cluster.entropy("seals"))
                sealed = run(seal(manager.identity.wal, nonce), cluster.store.objects)
                acknowledged = manager.wal_acknowledged
                if acknowledged and acknowledged >= sealed.sequence:
                    yield (
                        f"SIM-7 acknowledged beyond the seal: wal={manager.identity.wal.folder} "
                        f"acknowledged={acknowledged} seal={sealed.sequence}"
                    )


def _incarnations_are_few(cluster: SimCluster) -> Iterator[str]:
    """Compare the number of incarnations with the number of faults (SIM-8)."""
    nemesis = cluster.nemesis
    if not nemesis.kinds or not set(nemesis.kinds) <= set(LINK_FAULTS):
        return
    for broker in cluster.brokers:
        incarnations = sum(len(node.incarnations) for node in _nodes(broker))
        if incarnations > 1 + nemesis.begun:
            yield (
                f"SIM-8 deposed again and again: {broker.address} {incarnations=} "
                f"faults={nemesis.begun}"
            )


def _nodes(broker: SimBroker) -> Iterator[SimulatedBroker]:
    return (node for _, node in broker.incarnations if isinstance(node, SimulatedBroker))


def _storage_agrees(cluster: SimCluster) -> Iterator[str]:
    """Compare the partitions' own logs with the final polls (SIM-9)."""
    shown: dict[TopicPartition, dict[int, int]] = {}
    for poll in cluster.recorder.history:
        if isinstance(poll, Poll) and poll.final:
            shown.setdefault(poll.partition, {}).update(poll.records)
    for partition, records in shown.items():
        stored = dict(_stored(cluster, partition))
        missing = {
            offset: value for offset, value in stored.items() if records.get(offset) != value
        }
        if missing:
            yield f"SIM-9 stored and not shown: {partition} {dict(list(missing.items())[:5])}"
        end = max(stored, default=-1)
        extra = {o: v for o, v in records.items() if o <= end and stored.get(o) != v}
        if extra:
            yield f"SIM-9 shown and not stored: {partition} {dict(list(extra.items())[:5])}"


def _stored(cluster: SimCluster, partition: TopicPartition) -> Iterator[tuple[int, int]]:
    environment = cluster.environment("auditor", "audit")
    image = cluster.loop.run_until_complete(MetadataLog(environment).open())
    topic_id = image.topics[partition.topic].topic_id
    layout = PartitionLayout(partition.topic, topic_id, partition.partition)
    view = run(refresh(PartitionView(layout)), cluster.store.objects)
    reader = HistoryReader(layout, HistoryCache(READ_BYTES))
    offset = view.log_start_offset
    while offset < view.end_offset:
        history = run(reader.read(view, offset, READ_BYTES), cluster.store.objects)
        for at, value in values_of(b"".join(history.batches)):
            if value is not None:
                yield at, value
        offset = history.next_offset
