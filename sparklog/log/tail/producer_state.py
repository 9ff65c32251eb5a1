"""ProducerStates: the sequences and transactions of the producers of one partition.

A producer numbers its records; the partition accepts each number once and in order. The leader
calls `check` before an append and `record` after it, with no other call in between. A new leader
rebuilds the state from the log. The caller passes the time; the state has no clock.

PRODUCER-STATE-1: A batch that was appended is recognised while it is among its producer's last
    five.
PRODUCER-STATE-2: Records of one producer epoch are appended in the order of their sequence
    numbers.
PRODUCER-STATE-3: After an epoch was seen, no batch of an older one is appended.
PRODUCER-STATE-4: A producer with an open transaction never expires.

An unknown producer (new or expired) may begin with any sequence number. Kafka does the same since
2.5, and no longer returns UNKNOWN_PRODUCER_ID. Sequence numbers go from 0 to 2**31 - 1, then start
at 0 again.

`OpenTransactions` holds the transactions of the partition: the open ones, and the last stable
offset. It knows only offsets and producer ids, and has no state per record.

PRODUCER-STATE-5: The last stable offset is at most the first offset of every open transaction. The
    same holds for every transaction whose end is not yet below the high watermark.
PRODUCER-STATE-6: It never moves back while the high watermark does not.

Offsets: `first_offset` and `last_offset` are inclusive, the last one is the marker's.
Source: KIP-98, KIP-360; Kafka's ProducerAppendInfo, ProducerStateManager and TransactionIndex.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sparklog.core.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from sparklog.core.types import NO_PRODUCER_ID, NO_TIMESTAMP_MS
from sparklog.protocol.records.control import EndTransactionMarker
from sparklog.protocol.records.header import NO_EPOCH, NO_SEQUENCE, BatchHeader, increment_sequence


class EndedTransaction(NamedTuple):
    """A transaction whose marker was appended."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_commit: bool


class AbortedTransaction(NamedTuple):
    """An aborted transaction: a reader drops the producer's records from its first offset on.

    The reader stops at the marker. `last_stable_offset` is its value after this transaction ended.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class OpenTransactions:
    """The transactions of one partition; see the module. Not thread-safe."""

    __slots__ = ("_open", "_unreplicated", "aborted")

    def __init__(self) -> None:
        """Begin with none."""
        self._open: dict[int, int] = {}
        """Producer id to the first offset of its transaction, in the order they began."""
        self._unreplicated: list[EndedTransaction] = []
        """Ended; the marker is not below the high watermark yet. In the order of their ends."""
        self.aborted: list[AbortedTransaction] = []
        """By last offset."""

    def __contains__(self, producer_id: int) -> bool:
        """Return True if the producer has an open transaction."""
        return producer_id in self._open

    def open(self) -> list[tuple[int, int]]:
        """Return producer ids and the first offsets of their open transactions, oldest first."""
        return list(self._open.items())

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Record the first offset of a transaction; later calls for it change nothing."""
        self._open.setdefault(producer_id, first_offset)

    def end(self, producer_id: int, last_offset: int, *, is_commit: bool) -> None:
        """Record a marker at `last_offset`. Its transaction may have no record here."""
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return
        ended = EndedTransaction(producer_id, first_offset, last_offset, is_commit)
        self._unreplicated.append(ended)
        if not is_commit:
            stable = min(self._first_open(last_offset + 1), last_offset + 1)
            self.aborted.append(AbortedTransaction(producer_id, first_offset, last_offset, stable))

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the offset below which every transaction's end is committed.

        Args:
            high_watermark: not below one that was given before.
        """
        self._unreplicated = [t for t in self._unreplicated if t.last_offset >= high_watermark]
        first = min((t.first_offset for t in self._unreplicated), default=high_watermark)
        return min(first, self._first_open(high_watermark), high_watermark)

    def aborted_between(self, base_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that a reader of these offsets needs."""
        at = bisect_left(self.aborted, base_offset, key=_last_offset_of)
        found = []
        for one in self.aborted[at:]:
            if one.first_offset < end_offset:
                found.append(one)
            if one.last_stable_offset >= end_offset:
                break
        return found

    def forget_below(self, offset: int) -> None:
        """Drop aborted transactions that ended below `offset`: no reader needs them now."""
        del self.aborted[: bisect_left(self.aborted, offset, key=_last_offset_of)]

    def _first_open(self, otherwise: int) -> int:
        return next(iter(self._open.values()), otherwise)


def _last_offset_of(one: AbortedTransaction) -> int:
    return one.last_offset


HALF_ROUND: Final = 1 << 30
"""Sequences wrap around: a sequence less than this ahead of another one comes after it."""
REMEMBERED_BATCHES: Final = 5
"""Batches per producer for which retries are recognised; clients have as many in flight."""


class Duplicate(NamedTuple):
    """The batch is in the log already: respond with its old offsets, once they are committed."""

    base_offset: int
    end_offset: int
    append_time_ms: int
    """NO_TIMESTAMP_MS if it is unknown."""


class AppendedBatchMetadata(NamedTuple):
    """A batch that was appended."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    end_offset: int
    append_time_ms: int


@dataclass(slots=True)
class ProducerEntry:
    """One producer id in one partition."""

    epoch: int
    last_sequence: int | None
    """NO_SEQUENCE if this epoch wrote nothing, None if its sequence is unknown."""
    coordinator_epoch: int = NO_EPOCH
    written_ms: int = NO_TIMESTAMP_MS
    batches: deque[AppendedBatchMetadata] = field(
        default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES)
    )

    def enter(self, epoch: int) -> None:
        """Continue with `epoch`: a new one begins with sequence 0."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.last_sequence = NO_SEQUENCE
            self.batches.clear()


@dataclass(slots=True, eq=False)
class Verification:
    """A pending verification: is this partition in the producer's transaction?

    It is valid until the first records of the transaction, or its marker, are appended. An answer
    after the marker is about a transaction that has ended (KIP-890).
    """

    epoch: int
    lowest_sequence: int
    began_ms: int
    is_over: bool = False
    """A marker came: verify again, because it may be that of the previous transaction."""


UNVERIFIED: Final = Verification(NO_EPOCH, NO_SEQUENCE, NO_TIMESTAMP_MS)
"""For appends without verification, because a setting turns it off."""


class ProducerStates:
    """The idempotent and transactional producers of one partition. Not thread-safe."""

    __slots__ = ("_producers", "_verifying", "transactions")

    def __init__(self) -> None:
        """Begin with no producer known."""
        self._producers: dict[int, ProducerEntry] = {}
        self._verifying: dict[int, Verification] = {}
        self.transactions = OpenTransactions()

    def __len__(self) -> int:
        """Return the number of known producers."""
        return len(self._producers)

    def __iter__(self) -> Iterator[tuple[int, ProducerEntry]]:
        """Yield producer ids and their state."""
        return iter(self._producers.items())

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, is_over: bool = False
    ) -> Verification | None:
        """Return a verification for the question whether a transaction has this partition.

        None: no question is needed. The transaction has records here already, or the leader will
        reject them anyway.

        Args:
            `producer_id`: of the transaction's producer.
            `epoch`: the producer's.
            `sequence`: of the first record to append.
            `now_ms`: the time.
            `is_over`: a marker is about to be appended for the open transaction.
        """
        known = self._producers.get(producer_id)
        if known is not None and epoch < known.epoch:
            return None
        if not is_over and self.is_open(producer_id, epoch):
            return None
        verifying = self._verifying.get(producer_id)
        if verifying is None or verifying.epoch != epoch:
            verifying = self._verifying[producer_id] = Verification(epoch, sequence, now_ms)
        verifying.lowest_sequence = min(verifying.lowest_sequence, sequence)
        return verifying

    def end_verification(self, producer_id: int) -> None:
        """Invalidate a pending verification, because a marker is about to be appended."""
        verifying = self._verifying.pop(producer_id, None)
        if verifying is not None:
            verifying.is_over = True

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Return True if the producer, with this epoch, has records in an open transaction here."""
        known = self._producers.get(producer_id)
        return known is not None and known.epoch == epoch and producer_id in self.transactions

    def check_verified(
        self, producer_id: int, epoch: int, verification: Verification | None
    ) -> None:
        """Check that a transaction may have its first records here.

        Raises:
            InvalidTxnState: the coordinator was not asked, or the transaction has ended since.
        """
        if verification is UNVERIFIED or self.is_open(producer_id, epoch):
            return
        if verification is None or self._verifying.get(producer_id) is not verification:
            raise InvalidTxnState(
                "the partition is not in the producer's transaction, or that has ended. "
                f"producer_id={producer_id} producer_epoch={epoch}"
            )

    def is_ahead(self, header: BatchHeader) -> bool:
        """Return True if an earlier batch is missing, or may be missing for an unknown producer."""
        first = header.base_sequence
        if header.producer_id == NO_PRODUCER_ID or first == NO_SEQUENCE:
            return False
        known = self._producers.get(header.producer_id)
        if known is None or header.producer_epoch > known.epoch:
            return first != 0
        if header.producer_epoch < known.epoch or known.last_sequence is None:
            return False
        return 0 < increment_sequence(first, -known.last_sequence - 1) < HALF_ROUND

    def check(
        self, header: BatchHeader, verification: Verification | None = UNVERIFIED
    ) -> Duplicate | None:
        """Check that a client's batch may be appended now; return its offsets if it is a duplicate.

        Batches without a producer id always pass.

        Args:
            `header`: the batch's.
            `verification`: the result of `begin_verification`, after the coordinator has agreed.

        Raises:
            OutOfOrderSequence: an earlier batch is missing, or this one is older than the
                remembered ones.
            InvalidProducerEpoch: a newer producer has the id.
            InvalidTxnState: a plain write inside the producer's own transaction, or a transactional
                one outside.
        """
        if header.producer_id == NO_PRODUCER_ID:
            return None
        known = self._producers.get(header.producer_id)
        if known is not None:
            duplicate = self._check_order(header, known)
            if duplicate is not None:
                return duplicate
        if header.is_transactional:
            self.check_verified(header.producer_id, header.producer_epoch, verification)
            is_new = known is None or known.epoch != header.producer_epoch
            if is_new and verification is not None and verification is not UNVERIFIED:
                _check_first(header, verification)
        return None

    def _check_order(self, header: BatchHeader, known: ProducerEntry) -> Duplicate | None:
        if header.producer_epoch < known.epoch:
            raise _stale_epoch(header.producer_id, header.producer_epoch, known.epoch)
        if header.producer_epoch == known.epoch:
            sequences = header.base_sequence, header.last_sequence
            for batch in known.batches:
                if batch[:2] == sequences:
                    return Duplicate(batch.base_offset, batch.end_offset, batch.append_time_ms)
            last = known.last_sequence
        else:
            last = NO_SEQUENCE
        if last is not None and header.base_sequence != increment_sequence(last, 1):
            raise OutOfOrderSequence(
                "batch does not follow the producer's last one here: one between is missing, or it "
                f"was appended long ago. producer_id={header.producer_id} "
                f"producer_epoch={header.producer_epoch} base_sequence={header.base_sequence} "
                f"known_epoch={known.epoch} last_sequence={last}"
            )
        if not header.is_transactional and header.producer_id in self.transactions:
            raise InvalidTxnState(
                "a plain batch amid the producer's open transaction; end the transaction first. "
                f"producer_id={header.producer_id} producer_epoch={header.producer_epoch}"
            )
        return None

    def check_epoch(self, producer_id: int, producer_epoch: int) -> None:
        """Check that a coordinator may append records for a producer: they have no sequence.

        Raises:
            InvalidProducerEpoch: a newer producer has the id.
        """
        known = self._producers.get(producer_id)
        if known is not None and producer_epoch < known.epoch:
            raise _stale_epoch(producer_id, producer_epoch, known.epoch)

    def record(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """Record that a batch of records (no marker) was appended at `base_offset`."""
        if header.producer_id == NO_PRODUCER_ID:
            return
        end_offset = base_offset + header.last_offset_delta + 1
        batch = AppendedBatchMetadata(
            header.base_sequence, header.last_sequence, base_offset, end_offset, now_ms
        )
        self.take(
            header.producer_id,
            header.producer_epoch,
            batch,
            now_ms,
            is_transactional=header.is_transactional,
        )

    def take(
        self,
        producer_id: int,
        producer_epoch: int,
        batch: AppendedBatchMetadata,
        now_ms: int,
        *,
        is_transactional: bool,
    ) -> None:
        """Record that the log has a batch, without a check; it may come from a replay."""
        known = self._producers.get(producer_id)
        if known is None:
            known = self._producers[producer_id] = ProducerEntry(producer_epoch, NO_SEQUENCE)
        known.enter(producer_epoch)
        if batch.base_sequence != NO_SEQUENCE:  # coordinators' batches have none
            known.batches.append(batch)
            known.last_sequence = batch.last_sequence
        known.written_ms = now_ms
        if is_transactional:
            self._verifying.pop(producer_id, None)
            self.transactions.begin(producer_id, batch.base_offset)

    def restore(self, producer_id: int, known: ProducerEntry) -> None:
        """Restore an entry that `__iter__` yielded."""
        self._producers[producer_id] = known

    def check_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        ends_older: bool = False,
    ) -> None:
        """Check that a coordinator may append a marker now.

        Args:
            `producer_id`: of the producer whose transaction ends.
            `producer_epoch`: of the marker.
            `coordinator_epoch`: of the coordinator that sends it.
            `ends_older`: the epoch was raised for this marker (KIP-890). Then it ends only
                transactions of older epochs; an open one with its epoch is a later transaction.

        Raises:
            InvalidProducerEpoch: a newer producer has the id; or a later transaction is open.
            TransactionCoordinatorFenced: a newer coordinator has written here before.
        """
        known = self._producers.get(producer_id)
        if known is None:
            return
        is_late = ends_older and self.is_open(producer_id, producer_epoch)
        if producer_epoch < known.epoch or is_late:
            raise _stale_epoch(producer_id, producer_epoch, known.epoch)
        if coordinator_epoch < known.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                "a newer coordinator looks after the producer's transactions; find it. "
                f"producer_id={producer_id} coordinator_epoch={coordinator_epoch} "
                f"known_coordinator_epoch={known.coordinator_epoch}"
            )

    def record_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        marker: EndTransactionMarker,
        offset: int,
        now_ms: int,
    ) -> None:
        """Record that a marker was appended at `offset`."""
        known = self._producers.get(producer_id)
        if known is None:
            known = self._producers[producer_id] = ProducerEntry(producer_epoch, None)
        self.end_verification(producer_id)
        known.enter(producer_epoch)
        known.coordinator_epoch = marker.coordinator_epoch
        known.written_ms = now_ms
        self.transactions.end(producer_id, offset, is_commit=marker.is_commit)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Drop producers that were idle for `producer.id.expiration.ms`; return their number."""
        oldest_ms = now_ms - expiration_ms
        gone = [
            producer_id
            for producer_id, known in self._producers.items()
            if known.written_ms < oldest_ms and producer_id not in self.transactions
        ]
        for producer_id in gone:
            del self._producers[producer_id]
        for producer_id in [p for p, v in self._verifying.items() if v.began_ms < oldest_ms]:
            del self._verifying[producer_id]
        return len(gone)


def _check_first(header: BatchHeader, verification: Verification) -> None:
    """Reject a batch that overtook the first one of its transaction."""
    if header.base_sequence > verification.lowest_sequence:
        raise OutOfOrderSequence(
            "an earlier batch of the transaction is under way; send it again after that one. "
            f"producer_id={header.producer_id} base_sequence={header.base_sequence} "
            f"earlier={verification.lowest_sequence}"
        )


def _stale_epoch(producer_id: int, epoch: int, known_epoch: int) -> InvalidProducerEpoch:
    return InvalidProducerEpoch(
        "a newer producer has the producer id; stop, or get a new one. "
        f"producer_id={producer_id} producer_epoch={epoch} known_epoch={known_epoch}"
    )
