"""Named snapshots: the contents of topics at one moment, kept until the snapshot is dropped.

This module does the I/O over `log.pins`. A snapshot is one object that names a pin per partition.
It is created last, so it exists whole or not at all. Retention, compaction and deletion do not read
it: they spare the objects that pins name. Source: FORMAT.md 12.

NamedSnapshot: a value, and its encoding as a stored object. Source: FORMAT.md 12.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from sparklog.cluster.log import Log
from sparklog.cluster.metadata import changes
from sparklog.cluster.metadata.image import PartitionState, Topic
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.entropy import SYSTEM_ENTROPY, Entropy, new_nonce
from sparklog.core.errors import (
    DataCorrupt,
    InvalidRequest,
    OutcomeUnknown,
    Unavailable,
    UnknownTopicOrPartition,
)
from sparklog.core.types import PartitionId, TopicPartition
from sparklog.log.checked_json import decode_checked, encode_checked
from sparklog.log.effects import Program, Range, get, get_many, list_after, put, run
from sparklog.log.layout import (
    SNAPSHOTS_PREFIX,
    PartitionLayout,
    name_of_snapshot_key,
    named_snapshot_key,
)
from sparklog.log.manifest.change import with_tail
from sparklog.log.manifest.pins import pin, read_pin
from sparklog.log.manifest.refresh import refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.partition_log import DEFAULT_COLUMNS, PartitionLog
from sparklog.store.base import ObjectStore, PutOutcome


@dataclass(frozen=True, slots=True)
class PinnedPartition:
    """One partition in a snapshot."""

    topic: str
    topic_id: str
    partition: int
    pin: str
    """The nonce of its pin."""
    log_start_offset: int
    end_offset: int
    objects: int
    rows: int
    size_bytes: int

    @property
    def layout(self) -> PartitionLayout:
        """Return the names of its objects."""
        return PartitionLayout(self.topic, self.topic_id, self.partition)

    @property
    def place(self) -> TopicPartition:
        """Return the partition's name."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True)
class NamedSnapshot:
    """One snapshot: a name and its pinned partitions."""

    name: str
    timestamp_ms: int
    partitions: tuple[PinnedPartition, ...]

    @cached_property
    def by_place(self) -> Mapping[TopicPartition, PinnedPartition]:
        """Return its partitions by topic and number."""
        return {one.place: one for one in self.partitions}

    @property
    def topics(self) -> list[str]:
        """Return the names of its topics, sorted."""
        return sorted({one.topic for one in self.partitions})

    def as_topics(self) -> dict[str, Topic]:
        """Return its topics by name, with the partition counts of that time."""
        states: dict[str, tuple[str, tuple[PartitionState, ...]]] = {}
        for one in self.partitions:
            _, before = states.get(one.topic, ("", ()))
            states[one.topic] = one.topic_id, (*before, PartitionState())
        return {name: Topic(name, topic_id, some) for name, (topic_id, some) in states.items()}


@dataclass(frozen=True, slots=True)
class SnapshotRecords:
    """All snapshots of a log."""

    snapshots: tuple[NamedSnapshot, ...] = ()
    """Sorted by name."""
    damaged: tuple[str, ...] = ()
    """Keys of unreadable snapshots; while there are any, retention must not delete pins."""

    def pins(self) -> Mapping[PartitionId, frozenset[str]] | None:
        """Return the pins of snapshots by partition; None if a snapshot cannot be read."""
        if self.damaged:
            return None
        found: defaultdict[PartitionId, set[str]] = defaultdict(set)
        for snapshot in self.snapshots:
            for one in snapshot.partitions:
                found[PartitionId(one.topic_id, one.partition)].add(one.pin)
        return {where: frozenset(pins) for where, pins in found.items()}

    def all_pins(self) -> frozenset[str] | None:
        """Return all pins of snapshots; None if a snapshot cannot be read."""
        pins = self.pins()
        return None if pins is None else frozenset().union(*pins.values())


def snapshot_records() -> Program[SnapshotRecords]:
    """Return every snapshot. One listing, and one GET for each."""
    names = sorted(
        name
        for info in (yield from list_after(SNAPSHOTS_PREFIX, ""))
        if (name := name_of_snapshot_key(info.key)) is not None
    )
    if not names:
        return SnapshotRecords()
    stored = yield from get_many(tuple(Range(named_snapshot_key(name)) for name in names))
    found: list[NamedSnapshot] = []
    damaged: list[str] = []
    for name, data in zip(names, stored, strict=True):
        try:
            found += [decode(data, name)] if data is not None else []
        except DataCorrupt:
            damaged.append(named_snapshot_key(name))
    return SnapshotRecords(tuple(found), tuple(damaged))


def encode(snapshot: NamedSnapshot) -> bytes:
    """Return the bytes of a snapshot's object."""
    document = {
        "name": snapshot.name,
        "timestamp": snapshot.timestamp_ms,
        "partitions": [
            [getattr(one, field) for field in PinnedPartition.__slots__]
            for one in snapshot.partitions
        ],
    }
    return encode_checked(document)


def decode(data: bytes, name: str) -> NamedSnapshot:
    """Return the snapshot in an object.

    Raises:
        DataCorrupt: damaged, of another name, or of a newer format.
    """
    key = named_snapshot_key(name)
    try:
        document = decode_checked(data, f"snapshot {key}")
        if document["name"] != name:
            raise DataCorrupt(f"snapshot has another name. object={key}")
        return NamedSnapshot(
            name,
            int(document["timestamp"]),
            tuple(_partition(values) for values in document["partitions"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataCorrupt(f"snapshot is not as the format says: {error!r}. object={key}") from error


def _partition(values: Sequence[Any]) -> PinnedPartition:
    topic, topic_id, partition, nonce, *numbers = values
    if len(numbers) != 5:
        raise ValueError("a partition has another number of fields")
    return PinnedPartition(
        str(topic), str(topic_id), int(partition), str(nonce), *(int(n) for n in numbers)
    )


PINS_AT_ONCE = 16
CREATE_TRIES_MAX = 8
"""Limit for repeated puts of a snapshot whose outcome is unknown."""
CREATION_MAX_S = 3000
"""Below one hour: after that, retention may delete a pin without a snapshot as a leftover."""
FLUSH_LOOK_S = 0.5
"""Interval between reads of a partition whose leader must still flush."""

_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")


def create_snapshot(
    log: Log,
    name: str,
    topics: Sequence[str],
    *,
    flushed: Mapping[TopicPartition, int] | None = None,
    patience_s: float = 60.0,
    clock: Clock = SYSTEM_CLOCK,
    entropy: Entropy = SYSTEM_ENTROPY,
) -> NamedSnapshot:
    """Keep the present contents of these topics until the snapshot is dropped.

    Each partition is pinned at its own moment within the call. A partition with a leader is pinned
    up to its flushed end.

    Args:
        log: the log.
        name: the snapshot's name.
        topics: names; all partitions of each are kept.

        flushed: offsets up to which leaders must have flushed first.
        patience_s: limit for that wait, in seconds.

    Raises:
        InvalidRequest: the name is taken or invalid.
        UnknownTopicOrPartition: no such topic, or it was deleted meanwhile.
        Unavailable: no snapshot was made; try again. DataCorrupt: a partition is damaged.
        OutcomeUnknown: it may exist now or later; list snapshots, and drop it to be sure.

    Cost: per partition two refreshes and a put.
    """
    _check_name(name)
    if run(get(named_snapshot_key(name)), log.store) is not None:
        raise _taken(name)
    image = log.refresh()
    layouts = [
        layout for topic in dict.fromkeys(topics)
        for layout in changes.known_topic(image, topic).layouts()
    ]  # fmt: skip
    deadline_s = clock.monotonic_s() + patience_s
    attempt = _SnapshotAttempt(log.store, clock, entropy, flushed or {}, deadline_s)
    try:
        parts = attempt.pin_all(layouts)
        made = NamedSnapshot(name, clock.now_ms(), parts)
        attempt.check_time()
        created = run(_put(made), log.store)
    except OutcomeUnknown:
        raise  # its pins may be needed
    except BaseException:
        attempt.undo()
        raise
    if not created:
        attempt.undo()
        raise _taken(name)
    return made


def read_snapshot(store: ObjectStore, name: str) -> NamedSnapshot:
    """Return one snapshot.

    Raises:
        InvalidRequest: no such snapshot. DataCorrupt: it is damaged.
    """
    _check_name(name)
    data = run(get(named_snapshot_key(name)), store)
    if data is None:
        raise _unknown(name)
    return decode(data, name)


def drop_snapshot(store: ObjectStore, name: str) -> None:
    """Delete a snapshot; the next retention deletes objects that only it kept.

    A damaged snapshot can be dropped, too. Retention deletes its pins when they are old enough.

    Raises:
        InvalidRequest: no such snapshot, or another one got the name meanwhile.
    """
    _check_name(name)
    data = run(get(named_snapshot_key(name)), store)
    if data is None:
        raise _unknown(name)
    try:
        parts = decode(data, name).partitions
    except DataCorrupt:
        parts = ()
    # A slow process must not drop a later snapshot of this name: its pins would look left behind.
    if not store.delete_if(named_snapshot_key(name), data):
        raise InvalidRequest(
            f"another snapshot got the name meanwhile, and stays; drop it again. snapshot={name}"
        )
    _drop_pins(store, [(one.layout, one.pin) for one in parts])


class SnapshotReader:
    """Reads the partitions of a snapshot, however the log has changed since."""

    def __init__(self, store: ObjectStore, snapshot: NamedSnapshot, pool: Executor) -> None:
        """Read through `store`, with the threads of `pool`."""
        self._store = store
        self._pool = pool
        self.snapshot = snapshot

    def partition(self, topic: str, partition: int) -> tuple[PartitionLog, PartitionView]:
        """Return a partition's log, and the pinned view of it. One request.

        Raises:
            UnknownTopicOrPartition: the snapshot does not have it. DataCorrupt: its pin is damaged.
        """
        part = self.snapshot.by_place.get(TopicPartition(topic, partition))
        if part is None:
            raise UnknownTopicOrPartition(
                "the snapshot has no such partition. "
                f"snapshot={self.snapshot.name} topic={topic} partition={partition}"
            )
        pinned = run(read_pin(part.layout, part.pin), self._store)
        return PartitionLog(self._store, part.layout, pool=self._pool), pinned.view

    def read(
        self,
        topic: str,
        partition: int,
        base_offset: int | None = None,
        end_offset: int | None = None,
        columns: Sequence[str] = DEFAULT_COLUMNS,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of a partition in the snapshot, by default all of them.

        Raises:
            as `partition` and `PartitionLog.read`.
        """
        opened, view = self.partition(topic, partition)
        base = view.log_start_offset if base_offset is None else base_offset
        end = view.end_offset if end_offset is None else end_offset
        return opened.read(base, end, columns, view=view)


class _SnapshotAttempt:
    """The pins of a snapshot before it exists."""

    def __init__(
        self,
        store: ObjectStore,
        clock: Clock,
        entropy: Entropy,
        flushed: Mapping[TopicPartition, int],
        deadline_s: float,
    ) -> None:
        self._store = store
        self._clock = clock
        self._entropy = entropy
        self._flushed = flushed
        self._deadline_s = deadline_s
        self._began_s = clock.monotonic_s()
        self._made: list[tuple[PartitionLayout, str]] = []

    def pin_all(self, layouts: Sequence[PartitionLayout]) -> tuple[PinnedPartition, ...]:
        """Pin every partition."""
        with ThreadPoolExecutor(PINS_AT_ONCE, "sparklog-pin") as pool:
            futures = [pool.submit(self._pin, layout) for layout in layouts]
            try:
                return tuple(future.result() for future in futures)
            finally:
                for future in futures:
                    future.cancel()

    def check_time(self) -> None:
        """Stop when retention may already delete the pins as leftovers.

        Raises:
            Unavailable: the creation took too long.
        """
        if self._clock.monotonic_s() - self._began_s > CREATION_MAX_S:
            raise Unavailable(
                "the snapshot took too long to make; take several, of fewer topics each. "
                f"limit_s={CREATION_MAX_S}"
            )

    def undo(self) -> None:
        """Delete the pins; retention deletes those that stay."""
        _drop_pins(self._store, self._made)

    def _pin(self, layout: PartitionLayout) -> PinnedPartition:
        self.check_time()
        view = self._awaited(layout)
        made = run(pin(view, self._nonces()), self._store)
        self._made.append((layout, made.nonce))
        entries = made.manifest.entries
        return PinnedPartition(
            layout.topic,
            layout.topic_id,
            layout.partition,
            made.nonce,
            made.manifest.log_start_offset,
            made.manifest.end_offset,
            len(entries),
            sum(e.rows for e in entries),
            sum(e.size_bytes for e in entries),
        )

    def _awaited(self, layout: PartitionLayout) -> PartitionView:
        """Refresh a partition until its leader has flushed up to the wanted offset."""
        view = PartitionView(layout)
        wanted = self._flushed.get(TopicPartition(layout.topic, layout.partition), 0)
        while wanted:
            view = run(refresh(view), self._store)
            # A pin cannot go past records of an open transaction.
            end_offset = with_tail(view, 0).end_offset
            if end_offset >= wanted:
                break
            if self._clock.monotonic_s() >= self._deadline_s:
                raise Unavailable(
                    "the partition's leader did not flush in time; is flush.ms longer, or a "
                    "transaction of a query open? Try again, or take what is there. "
                    f"partition={layout.topic}-{layout.partition} "
                    f"flushed={end_offset} wanted={wanted}"
                )
            self._clock.sleep_s(FLUSH_LOOK_S)
        return view

    def _nonces(self) -> Iterator[str]:
        while True:
            yield new_nonce(self._entropy)


def _put(made: NamedSnapshot) -> Program[bool]:
    """Create the snapshot; return True if this call created it.

    Raises:
        OutcomeUnknown: the store does not confirm the put.
    """
    key, data = named_snapshot_key(made.name), encode(made)
    for _ in range(CREATE_TRIES_MAX):
        outcome = yield from put(key, data)
        if outcome is PutOutcome.CREATED:
            return True
        found = yield from get(key)
        if found is not None:
            # It holds the nonces of its pins, so no other snapshot is equal.
            return found == data
    raise OutcomeUnknown(
        "the store does not tell whether the snapshot was made; look with `sparklog snapshots "
        f"--list`, and drop it to be sure. snapshot={made.name}"
    )


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            "not a name for a snapshot; it takes letters, digits, '.', '_' and '-', at most 249. "
            f"snapshot={name!r}"
        )


def _unknown(name: str) -> InvalidRequest:
    return InvalidRequest(
        f"no such snapshot; `sparklog snapshots --list` shows what there is. snapshot={name}"
    )


def _taken(name: str) -> InvalidRequest:
    return InvalidRequest(
        f"snapshot exists already; take another name or drop it first. snapshot={name}"
    )


def _drop_pins(store: ObjectStore, pins: Sequence[tuple[PartitionLayout, str]]) -> None:
    if not pins:
        return
    with ThreadPoolExecutor(PINS_AT_ONCE, "sparklog-unpin") as pool:
        list(pool.map(store.delete, [layout.key(layout.pin_name(n)) for layout, n in pins]))
