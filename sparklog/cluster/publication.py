"""Publication: appends staged objects to many partitions, exactly once. Source: FORMAT.md 7.

The process that creates the record `commits/<writer>/<sequence>.json` decides the contents of the
batch. After that, any process may publish it, and repeat that. `decide` is pure (a protocol over
`log.effects`); `publish` does the I/O and appends to the partitions in parallel.

PUBLICATION-1: A batch is what its record contains, in any process and after any number of
    attempts.
PUBLICATION-2: A partition appends a batch at most once: the append carries the commit key.
PUBLICATION-3: This module never deletes a staged object that a record names.
PUBLICATION-4: A partition with a leader gets the same objects under the same key through its
    leader. So an attempt may publish some partitions directly and others through leaders, before
    and after changes of leader.
PUBLICATION-5: The batch's record says whether it is a transaction. A batch that one attempt may
    have committed in a transaction is never published in another way.

Publication: the record with the contents of a batch, `commits/<writer>/<sequence>.json`.

Source: FORMAT.md 7. `cluster.publication` creates and publishes such records.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from sparklog.cluster.log import Log
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.entropy import SYSTEM_ENTROPY, Entropy, new_nonce
from sparklog.core.errors import (
    DataCorrupt,
    InvalidRequest,
    NotServing,
    OutcomeUnknown,
    SparklogError,
    Unavailable,
    UnknownTopicOrPartition,
)
from sparklog.core.types import TopicPartition
from sparklog.log.checked_json import decode_checked, encode_checked
from sparklog.log.effects import Program, get, put, run
from sparklog.log.layout import commit_key
from sparklog.log.partition.append import AppendResult
from sparklog.log.partition.partition_log import PartitionLog
from sparklog.log.segment.footer import reference_document, reference_from_document
from sparklog.log.segment.segment import CommitKey, CommitStamp, Reference
from sparklog.store.base import PutOutcome


@dataclass(frozen=True, slots=True)
class StagedPartition:
    """The staged objects of one partition, in the order of the append."""

    topic: str
    topic_id: str
    partition: int
    staged: tuple[Reference, ...]

    @property
    def place(self) -> TopicPartition:
        """Return the partition's name."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication record."""

    writer: str
    sequence: int
    nonce: str
    timestamp_ms: int
    partitions: tuple[StagedPartition, ...]
    transactional: bool = False
    """True if only a transaction may append the batch (PUBLICATION-5)."""


def merged(staged: Iterable[StagedPartition]) -> tuple[StagedPartition, ...]:
    """Return one entry per partition, the objects of each in the given order.

    Raises:
        UnknownTopicOrPartition: one topic has two ids.
    """
    objects: dict[TopicPartition, list[Reference]] = {}
    ids: dict[str, str] = {}
    for part in staged:
        if ids.setdefault(part.topic, part.topic_id) != part.topic_id:
            raise recreated(part.topic, part.topic_id, ids[part.topic])
        objects.setdefault(part.place, []).extend(r for r in part.staged if r.rows)
    return tuple(
        StagedPartition(place.topic, ids[place.topic], place.partition, tuple(found))
        for place, found in sorted(objects.items())
        if found
    )


def encode(publication: Publication) -> bytes:
    """Return the bytes of the record's object."""
    return encode_checked(
        {
            "nonce": publication.nonce,
            "writer": publication.writer,
            "sequence": publication.sequence,
            "timestamp": publication.timestamp_ms,
            **({"transactional": True} if publication.transactional else {}),
            "partitions": [
                {
                    "topic": p.topic,
                    "topic_id": p.topic_id,
                    "partition": p.partition,
                    "staged": [reference_document(r) for r in p.staged],
                }
                for p in publication.partitions
            ],
        }
    )


def decode(data: bytes, name: str) -> Publication:
    """Return the record in an object.

    Raises:
        DataCorrupt: damaged, or of a newer format.
    """
    try:
        return _publication(decode_checked(data, f"the batch's record {name}"))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataCorrupt(
            f"the batch's record is not as the format says: {error!r}. object={name}"
        ) from error


def _publication(document: dict[str, Any]) -> Publication:
    return Publication(
        writer=str(document["writer"]),
        sequence=int(document["sequence"]),
        nonce=str(document["nonce"]),
        timestamp_ms=int(document["timestamp"]),
        partitions=tuple(
            StagedPartition(
                str(p["topic"]),
                str(p["topic_id"]),
                int(p["partition"]),
                tuple(reference_from_document(r) for r in p["staged"]),
            )
            for p in document["partitions"]
        ),
        transactional=bool(document.get("transactional", False)),
    )


def recreated(topic: str, staged_id: str, current_id: str) -> UnknownTopicOrPartition:
    """Return the error for records of a deleted topic whose name a new topic has."""
    return UnknownTopicOrPartition(
        "the topic was deleted and created again while records were being written to it, and the "
        "records went with the old one; write them again (a streaming query that stays at this "
        "batch needs a new checkpoint). "
        f"topic={topic} written_to_id={staged_id} current_id={current_id}"
    )


CREATE_TRIES_MAX = 8
"""Limit for repeated puts of a record whose outcome is unknown."""
APPEND_TRIES_MAX = 4
"""Limit for repeated appends of unknown outcome; the commit key makes repeats harmless."""
APPENDS_AT_ONCE = 16
LED_PATIENCE_S = 60.0
"""Time for partitions whose leaders append nothing, before `publish` gives up."""
LED_AGAIN_S = 0.2

_MAY_PASS = (NotServing, Unavailable, UnknownTopicOrPartition)
_WRITER = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")


AppendLed = Callable[
    [Sequence[StagedPartition], CommitStamp | None],
    Mapping[TopicPartition, AppendResult | SparklogError],
]
"""Appends to partitions through their leaders; the commit key makes repeats harmless.

`NotServing`, `Unavailable` and `UnknownTopicOrPartition` are retriable, here or directly.
"""
AppendInTransaction = Callable[[Publication], Mapping[TopicPartition, AppendResult]]
"""Appends a whole publication in one transaction; repeats are harmless.

Raises the errors of `publish`.
"""


def publish(
    log: Log,
    writer: str,
    sequence: int,
    staged: Iterable[StagedPartition],
    *,
    append_led: AppendLed | None = None,
    in_transaction: AppendInTransaction | None = None,
    transactional: bool = False,
    clock: Clock = SYSTEM_CLOCK,
    entropy: Entropy = SYSTEM_ENTROPY,
) -> Mapping[TopicPartition, AppendResult]:
    """Append batch `sequence` of `writer` to the log exactly once; repeats are harmless.

    If the batch has a record already, that one is published, and `staged` is dropped.

    Args:
        writer: permanent name, for example a streaming query's id.
        sequence: rises from batch to batch of a writer.

        staged: staged objects of this call, in order; partitions may repeat.

        append_led: appends to partitions with a leader; None rejects those.
        in_transaction: appends a batch whose record is transactional.

        transactional: True makes a new record transactional, if all its partitions have leaders.

        clock: for the time of the decision and for waits.
        entropy: for the attempt's nonce.

    Raises:
        InvalidRequest: not a name for a writer. NotServing: partitions have leaders; see above.
        UnknownTopicOrPartition: a topic was deleted, or deleted and created again.
        OutcomeUnknown, Unavailable: call again with the same writer and sequence.
        Fenced: the transactional id has another owner now. DataCorrupt: the record is damaged.

    Cost: one put, and per partition one put and a listing; a GET if there is nothing to publish.
    """
    if not _WRITER.fullmatch(writer) or sequence < 0:
        raise InvalidRequest(
            "not a writer and batch to commit for; a name takes letters, digits, '.', '_' and '-'. "
            f"writer={writer!r} sequence={sequence}"
        )
    image = log.refresh()
    parts = merged(staged)
    mine = Publication(
        writer,
        sequence,
        new_nonce(entropy),
        clock.now_ms(),
        parts,
        transactional=transactional and bool(parts) and _all_led(image, parts),
    )
    _check_topics(image, mine.partitions)
    decided = run(decide(mine), log.store)
    if decided.nonce != mine.nonce:
        _check_topics(image, decided.partitions)
        drop_staged(log, mine.partitions, but=decided.partitions)
    if decided.transactional:
        if in_transaction is None:
            raise NotServing(
                "the batch was begun as a transaction, which only brokers can tell the end of. "
                f"writer={writer} sequence={sequence}"
            )
        return in_transaction(decided)
    key = CommitKey(writer, sequence)

    def append_one(place: PartitionLog, part: StagedPartition) -> AppendResult:
        _refuse_forgotten(place, decided, clock.now_ms())
        return _persistently(lambda: place.append_staged(part.staged, key=key))

    commit = CommitStamp(key, clock.now_ms())
    return _Appending(log, append_one, append_led, commit, clock).run(decided.partitions)


def append_once(
    log: Log,
    staged: Iterable[StagedPartition],
    *,
    append_led: AppendLed | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Mapping[TopicPartition, AppendResult]:
    """Append staged objects without a commit key; sequential repeats are harmless.

    Each partition gets its objects as one append; together they are not atomic. A repeated call
    finds the objects in the log by name, unless a rewrite has replaced them meanwhile.

    Raises:
        UnknownTopicOrPartition: a topic was deleted, or deleted and created again.
        NotServing: partitions have leaders, and there is no `append_led`.
        OutcomeUnknown, Unavailable: some partitions may have their records; call again.
    """
    parts = merged(staged)
    _check_topics(log.refresh(), parts)

    def append_one(place: PartitionLog, part: StagedPartition) -> AppendResult:
        wanted = {r.object for r in part.staged}
        found = [e for e in place.view().entries if e.object in wanted]
        if found:
            return AppendResult(found[0].base_offset, found[-1].end_offset, repeated=True)
        return place.append_staged(part.staged)

    return _Appending(log, append_one, append_led, None, clock).run(parts)


def decide(mine: Publication) -> Program[Publication]:
    """Create the batch's record, or return the existing one.

    An empty batch creates no record: a later attempt with records may still decide.

    Raises:
        OutcomeUnknown: the store does not confirm the put. DataCorrupt: the record is damaged.
    """
    key = commit_key(mine.writer, mine.sequence)
    if not mine.partitions:
        stored = yield from get(key)
        return mine if stored is None else decode(stored, key)
    data = encode(mine)
    for _ in range(CREATE_TRIES_MAX):
        if (yield from put(key, data)) is PutOutcome.CREATED:
            return mine
        stored = yield from get(key)
        if stored is not None:
            return decode(stored, key)
    raise OutcomeUnknown(
        f"the store does not tell whether the batch's record exists; publish it again. object={key}"
    )


def drop_staged(
    log: Log, staged: Iterable[StagedPartition], but: Iterable[StagedPartition] = ()
) -> None:
    """Delete unreferenced staged objects, best effort: the rest are orphans.

    Objects that are also in `but` stay: a caller may repeat the same call.
    """
    kept = {r.object for part in but for r in part.staged}
    for part in staged:
        try:
            layout = log.partition(part.topic, part.partition).layout
            if layout.topic_id != part.topic_id:
                continue
            for reference in part.staged:
                if reference.object not in kept:
                    log.store.delete(layout.key(reference.object))
        except SparklogError:
            continue


class _Appending:
    """Appends to every partition: directly, or through its leader if it has one."""

    def __init__(
        self,
        log: Log,
        append_one: Callable[[PartitionLog, StagedPartition], AppendResult],
        append_led: AppendLed | None,
        commit: CommitStamp | None,
        clock: Clock,
    ) -> None:
        self._log = log
        self._append_one = append_one
        self._append_led = append_led
        self._commit = commit
        self._clock = clock

    def run(self, parts: Sequence[StagedPartition]) -> Mapping[TopicPartition, AppendResult]:
        """Append to all partitions while leaders change; raise an error after all have ended."""
        done: dict[TopicPartition, AppendResult] = {}
        left = list(parts)
        deadline_s = self._clock.monotonic_s() + LED_PATIENCE_S
        while True:
            found: dict[TopicPartition, AppendResult | SparklogError] = {**self._directly(left)}
            led = [part for part in left if isinstance(found[part.place], NotServing)]
            if led and self._append_led is not None:
                found.update(self._append_led(led, self._commit))
            done.update((p, one) for p, one in found.items() if isinstance(one, AppendResult))
            left = [part for part in left if part.place not in done]
            if not left:
                return {part.place: done[part.place] for part in parts}
            troubles = [one for one in found.values() if isinstance(one, SparklogError)]
            final = [one for one in troubles if not isinstance(one, _MAY_PASS)]
            is_late = self._clock.monotonic_s() >= deadline_s
            if final or is_late or self._append_led is None:
                raise (final or troubles)[0]
            self._clock.sleep_s(LED_AGAIN_S)

    def _directly(
        self, parts: Sequence[StagedPartition]
    ) -> Mapping[TopicPartition, AppendResult | NotServing]:
        """Append to every partition in parallel; raise the first error other than `NotServing`."""
        places = [self._log.partition(p.topic, p.partition) for p in parts]
        if len(parts) == 1:
            return {parts[0].place: self._try_one(places[0], parts[0])}
        with ThreadPoolExecutor(min(APPENDS_AT_ONCE, len(parts) or 1), "sparklog-publish") as pool:
            running = [
                pool.submit(self._try_one, *pair) for pair in zip(places, parts, strict=True)
            ]
        return {p.place: one.result() for p, one in zip(parts, running, strict=True)}

    def _try_one(self, place: PartitionLog, part: StagedPartition) -> AppendResult | NotServing:
        try:
            return self._append_one(place, part)
        except NotServing as error:
            return error


def _persistently(append: Callable[[], AppendResult]) -> AppendResult:
    for _ in range(APPEND_TRIES_MAX - 1):
        try:
            return append()
        except OutcomeUnknown:
            continue
    return append()


def _refuse_forgotten(place: PartitionLog, decided: Publication, now_ms: int) -> None:
    """Reject a batch so old that the partition may have it and no longer remember it."""
    if now_ms - decided.timestamp_ms < place.config.writer_expiry_ms:
        return
    view = place.view()
    if decided.writer in view.manifest.writers or any(
        one.segment.commit is not None and one.segment.commit.key.writer == decided.writer
        for one in view.tail
    ):
        return
    raise OutcomeUnknown(
        "the batch was decided so long ago that nothing tells any more whether this partition has "
        "it; compare the log with the source, then start the query with a new checkpoint. "
        f"partition={place.layout.folder} writer={decided.writer} sequence={decided.sequence}"
    )


def _all_led(image: MetadataImage, parts: Iterable[StagedPartition]) -> bool:
    for part in parts:
        topic = image.topics.get(part.topic)
        if topic is None or part.partition >= topic.partitions:
            return False
        if topic.partition_states[part.partition].leader < 0:
            return False
    return True


def _check_topics(image: MetadataImage, parts: Iterable[StagedPartition]) -> None:
    for part in parts:
        topic = image.topics.get(part.topic)
        if topic is None:
            raise UnknownTopicOrPartition(
                "the topic was deleted while records were being written to it; create it with "
                f"`sparklog topics --create --topic {part.topic}` and write again. "
                f"topic={part.topic} topic_id={part.topic_id}"
            )
        if topic.topic_id != part.topic_id:
            raise recreated(part.topic, part.topic_id, topic.topic_id)
