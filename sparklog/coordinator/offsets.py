"""GroupOffsets: commits, fetches and expires the offsets of a shard's groups.

`CommittedOffsets` holds them, and those that wait for a transaction. An offset expires
`offsets.retention.minutes` after its last use:

- group whose last member left: after that.
- group that never had members: after the commit.
- group with members: after the commit, if no member reads the topic.

OFFSETS-1: Of two commits for one partition the later one in the log wins. That holds even if the
    earlier one belongs to a transaction that ends after it.
OFFSETS-2: A transaction's offsets are invisible until it commits, and for ever if it aborts.
OFFSETS-3: A deleted offset stays deleted. A transaction that ends later does not restore an older
    commit.

Source: KIP-211, KIP-496; Kafka's `OffsetMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from kio.schema.errors import ErrorCode

from sparklog.coordinator.config import GroupSettings
from sparklog.coordinator.effects import CoordinatorRecord, size_bytes
from sparklog.coordinator.group_records import (
    NEVER_MS,
    OffsetKey,
    OffsetValue,
    write_offset_key,
    write_offset_value,
)
from sparklog.coordinator.messages import (
    NO_RETENTION,
    CommitRequest,
    FetchRequest,
    GroupOffset,
    GroupOffsetsResult,
)
from sparklog.core.errors import RecordTooLarge


class StoredOffset(NamedTuple):
    """A committed offset and its position in the log."""

    value: OffsetValue
    position: int


Place = tuple[str, int]
"""Topic and partition."""


class CommittedOffsets:
    """Offsets of the groups of one shard; see the module."""

    def __init__(self) -> None:
        """Start without any."""
        self._groups: dict[str, dict[Place, StoredOffset]] = {}
        self._pending: dict[int, dict[str, dict[Place, StoredOffset]]] = {}
        """By producer id and group id."""
        self._producers: dict[str, dict[int, None]] = {}
        """Group id -> producers with pending offsets of it, as an ordered set."""

    def put(self, key: OffsetKey, value: OffsetValue, position: int) -> None:
        """Store a commit."""
        of_group = self._groups.setdefault(key.group_id, {})
        of_group[key.topic, key.partition] = StoredOffset(value, position)

    def put_pending(
        self, key: OffsetKey, value: OffsetValue, position: int, producer_id: int
    ) -> None:
        """Store a commit that becomes visible when its producer's transaction commits."""
        of_group = self._pending.setdefault(producer_id, {}).setdefault(key.group_id, {})
        of_group[key.topic, key.partition] = StoredOffset(value, position)
        self._producers.setdefault(key.group_id, {})[producer_id] = None

    def remove(self, key: OffsetKey) -> None:
        """Remove a partition's committed offset, and those that wait for a transaction."""
        group_id, place = key.group_id, (key.topic, key.partition)
        of_group = self._groups.get(group_id)
        if of_group is not None:
            of_group.pop(place, None)
            if not of_group:
                del self._groups[group_id]
        for producer_id in list(self._producers.get(group_id, ())):
            waiting = self._pending[producer_id][group_id]
            waiting.pop(place, None)
            if not waiting:
                self._forget_pending(producer_id, group_id)

    def end_transaction(self, producer_id: int, *, commit: bool) -> set[str]:
        """Apply or drop a producer's pending offsets; return their group ids."""
        group_ids = set(self._pending.get(producer_id, ()))
        for group_id in group_ids:
            waiting = self._forget_pending(producer_id, group_id)
            for place, committed in waiting.items() if commit else ():
                key = OffsetKey(group_id, *place)
                known = self.get(key)
                if known is None or known.position < committed.position:
                    self.put(key, *committed)
        return group_ids

    def get(self, key: OffsetKey) -> StoredOffset | None:
        """Return a committed offset."""
        return self._groups.get(key.group_id, {}).get((key.topic, key.partition))

    def of(self, group_id: str) -> Iterator[tuple[OffsetKey, OffsetValue]]:
        """Yield a group's committed offsets; the caller may remove them meanwhile."""
        for place, committed in list(self._groups.get(group_id, {}).items()):
            yield OffsetKey(group_id, *place), committed.value

    def keys(self, group_id: str) -> list[OffsetKey]:
        """Return the keys of a group's offsets, committed or pending."""
        places = dict.fromkeys(self._groups.get(group_id, ()))
        for producer_id in self._producers.get(group_id, ()):
            places |= dict.fromkeys(self._pending[producer_id][group_id])
        return [OffsetKey(group_id, *place) for place in places]

    def group_ids(self) -> list[str]:
        """Return the groups that have offsets, committed or pending."""
        return list(dict.fromkeys((*self._groups, *self._producers)))

    def is_pending(self, key: OffsetKey) -> bool:
        """Return True if an open transaction may change an offset."""
        place = key.topic, key.partition
        producers = self._producers.get(key.group_id, ())
        return any(place in self._pending[p][key.group_id] for p in producers)

    def holds(self, group_id: str) -> bool:
        """Return True if a group has offsets, committed or pending."""
        return group_id in self._groups or group_id in self._producers

    def _forget_pending(self, producer_id: int, group_id: str) -> dict[Place, StoredOffset]:
        """Remove and return a group's offsets that wait for a producer's transaction."""
        of_producer, producers = self._pending[producer_id], self._producers[group_id]
        waiting = of_producer.pop(group_id)
        if not of_producer:
            del self._pending[producer_id]
        del producers[producer_id]
        if not producers:
            del self._producers[group_id]
        return waiting


def java_length(text: str) -> int:
    """Return the length as Java counts it: characters beyond 16 bits count twice."""
    return len(text) + sum(character > "\uffff" for character in text)


class OffsetOwner(Protocol):
    """A group of any type, as the owner of offsets."""

    @property
    def group_id(self) -> str:
        """Return the group id."""
        ...

    def subscribed(self) -> frozenset[str] | None:
        """Return the topics that members read; None if unknown, so any topic may be in use."""
        ...

    def offsets_unused_since_ms(self, commit_ms: int) -> int | None:
        """Return since when an offset is unused, in ms; None if it is in use."""
        ...


class GroupOffsets:
    """Offsets of a shard's groups; see the module. It knows members only through `OffsetOwner`."""

    def __init__(self, offsets: CommittedOffsets, settings: GroupSettings) -> None:
        """Use `offsets` as the state."""
        self._offsets = offsets
        self._settings = settings

    def take(
        self, key: OffsetKey, value: OffsetValue | None, position: int, producer_id: int | None
    ) -> None:
        """Apply a record; with a producer id, as part of its transaction."""
        if value is None:
            self._offsets.remove(key)
        elif producer_id is None:
            self._offsets.put(key, value, position)
        else:
            self._offsets.put_pending(key, value, position, producer_id)

    def end_transaction(self, producer_id: int, *, commit: bool) -> set[str]:
        """Apply or drop pending offsets; return their group ids."""
        return self._offsets.end_transaction(producer_id, commit=commit)

    def holds(self, group_id: str) -> bool:
        """Return True if a group has offsets, committed or pending."""
        return self._offsets.holds(group_id)

    def commit(
        self, asked: CommitRequest, now_ms: int, position: int
    ) -> tuple[tuple[ErrorCode, ...], list[CoordinatorRecord]]:
        """Commit offsets; return a code for each, and the records of the accepted ones.

        Raises:
            RecordTooLarge: too many offsets for one batch; none is committed.
        """
        retention_ms = asked.retention_ms
        expire_ms = NEVER_MS if retention_ms == NO_RETENTION else now_ms + retention_ms
        producer_id = None if asked.producer is None else asked.producer.producer_id
        codes: list[ErrorCode] = []
        taken: list[tuple[OffsetKey, OffsetValue]] = []
        for given in asked.offsets:
            if java_length(given.metadata) > self._settings.offset_metadata_max_bytes:
                codes.append(ErrorCode.offset_metadata_too_large)
                continue
            key = OffsetKey(asked.group_id, given.topic, given.partition)
            value = OffsetValue(
                given.offset, given.leader_epoch, given.metadata, now_ms, expire_ms, given.topic_id
            )
            taken.append((key, value))
            codes.append(ErrorCode.none)
        records = [
            CoordinatorRecord(write_offset_key(key), write_offset_value(value))
            for key, value in taken
        ]
        if size_bytes(records) > self._settings.batch_bytes_max:
            raise RecordTooLarge(
                "too many offsets for one commit; commit fewer at a time. "
                f"group={asked.group_id} offsets={len(records)} bytes={size_bytes(records)}"
            )
        for at, (key, value) in enumerate(taken, position):
            self.take(key, value, at, producer_id)
        return tuple(codes), records

    def fetch(self, asked: FetchRequest) -> GroupOffsetsResult:
        """Return committed offsets; -1 where there is none."""
        if asked.partitions is None:
            keys = [key for key, _ in self._offsets.of(asked.group_id)]
        else:
            keys = [OffsetKey(asked.group_id, *where) for where in asked.partitions]
        return GroupOffsetsResult(
            ErrorCode.none, tuple(self._found(key, asked.require_stable) for key in keys)
        )

    def delete(
        self,
        group_id: str,
        partitions: Iterable[tuple[str, int]],
        subscribed: frozenset[str] | None,
    ) -> tuple[list[ErrorCode], list[CoordinatorRecord]]:
        """Delete offsets, except of topics that members read; None: any topic may be in use."""
        codes: list[ErrorCode] = []
        records: list[CoordinatorRecord] = []
        for topic, partition in partitions:
            if subscribed is None or topic in subscribed:
                codes.append(ErrorCode.group_subscribed_to_topic)
                continue
            codes.append(ErrorCode.none)
            key = OffsetKey(group_id, topic, partition)
            if self._offsets.get(key) is not None or self._offsets.is_pending(key):
                records.append(self._tombstone(key))
        return codes, records

    def delete_all(self, group_id: str, count_max: int) -> list[CoordinatorRecord]:
        """Delete at most `count_max` offsets of a group; return the tombstones."""
        return [self._tombstone(key) for key in self._offsets.keys(group_id)[:count_max]]

    def forget_topics(self, topics: frozenset[str], count_max: int) -> list[CoordinatorRecord]:
        """Delete at most `count_max` offsets of topics, in all groups; return the tombstones."""
        records: list[CoordinatorRecord] = []
        for group_id in self._offsets.group_ids():
            for key in self._offsets.keys(group_id):
                if key.topic in topics and len(records) < count_max:
                    records.append(self._tombstone(key))
        return records

    def expire(self, group: OffsetOwner, now_ms: int) -> list[CoordinatorRecord]:
        """Delete the expired offsets of a group; return the tombstones."""
        subscribed = group.subscribed()
        if subscribed is None:
            return []
        return [
            self._tombstone(key)
            for key, value in self._offsets.of(group.group_id)
            if key.topic not in subscribed
            and self._is_expired(group, value, now_ms)
            and not self._offsets.is_pending(key)
        ]

    def _is_expired(self, group: OffsetOwner, value: OffsetValue, now_ms: int) -> bool:
        unused_since_ms = group.offsets_unused_since_ms(value.commit_ms)
        if unused_since_ms is None:
            return False
        if value.expire_ms != NEVER_MS:
            return now_ms >= value.expire_ms
        return now_ms - unused_since_ms >= self._settings.offsets_retention_ms

    def _found(self, key: OffsetKey, require_stable: bool) -> GroupOffset:
        if require_stable and self._offsets.is_pending(key):
            return GroupOffset(key.topic, key.partition, error=ErrorCode.unstable_offset_commit)
        committed = self._offsets.get(key)
        if committed is None:
            return GroupOffset(key.topic, key.partition)
        value = committed.value
        return GroupOffset(
            key.topic,
            key.partition,
            value.offset,
            value.leader_epoch,
            value.metadata,
            topic_id=value.topic_id,
        )

    def _tombstone(self, key: OffsetKey) -> CoordinatorRecord:
        self._offsets.remove(key)
        return CoordinatorRecord(write_offset_key(key), None)
