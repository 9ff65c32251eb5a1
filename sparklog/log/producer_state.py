"""What one partition knows of its idempotent producers: the sequence each has come to.

A producer numbers its records; the partition takes each number once and in order. The leader asks
`check` before an append and tells `record` after it, without anything in between. Whoever becomes
leader rebuilds the state from what the log has. Knows nothing of time but what it is told.

  P1  a batch that was appended is recognised while it is among its producer's last five
  P2  records of one producer epoch are appended in the order of their sequence numbers
  P3  after an epoch was seen, nothing of an older one is appended
  P4  a producer with an open transaction is never forgotten

A producer that is unknown, because it is new or was forgotten, may begin with any sequence number
(as in Kafka since 2.5, which answers UNKNOWN_PRODUCER_ID no more). Sequence numbers go from 0 to
2**31 - 1 and on at 0. Source: KIP-98, KIP-360; Kafka's ProducerAppendInfo.
"""

from __future__ import annotations

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
from sparklog.log.transactions import Transactions
from sparklog.protocol.batch_header import (
    NO_EPOCH,
    NO_SEQUENCE,
    BatchHeader,
    increment_sequence,
)
from sparklog.protocol.control import EndTransactionMarker

REMEMBERED_BATCHES: Final = 5
"""How many batches a producer may have in flight and still be recognised; a client's limit too."""


class Duplicate(NamedTuple):
    """The batch is in the log already: answer with its old place, once that is committed."""

    base_offset: int
    end_offset: int
    append_time_ms: int
    """NO_TIMESTAMP_MS when it is not known any more."""


class TakenBatch(NamedTuple):
    """A batch that was appended."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    end_offset: int
    append_time_ms: int


@dataclass(slots=True)
class Producer:
    """One producer id in one partition."""

    epoch: int
    last_sequence: int | None
    """NO_SEQUENCE when this epoch wrote nothing, None when what it wrote is not known."""
    coordinator_epoch: int = NO_EPOCH
    written_ms: int = NO_TIMESTAMP_MS
    batches: deque[TakenBatch] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))

    def enter(self, epoch: int) -> None:
        """Go on with `epoch`: a new one begins with sequence 0."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.last_sequence = NO_SEQUENCE
            self.batches.clear()


class ProducerStates:
    """The idempotent and transactional producers of one partition. Not thread-safe."""

    __slots__ = ("_producers", "transactions")

    def __init__(self) -> None:
        """Begin with no producer known."""
        self._producers: dict[int, Producer] = {}
        self.transactions = Transactions()

    def __len__(self) -> int:
        """Return how many producers are known."""
        return len(self._producers)

    def __iter__(self) -> Iterator[tuple[int, Producer]]:
        """Yield producer ids and what is known of them."""
        return iter(self._producers.items())

    def check(self, header: BatchHeader) -> Duplicate | None:
        """Tell whether a client's batch may be appended now: None, or where it already is.

        Batches without a producer id may always.

        Raises:
            OutOfOrderSequence: a batch before it is missing, or it is older than what is recalled.
            InvalidProducerEpoch: a newer producer has the id.
            InvalidTxnState: a plain write amid the producer's own transaction.
        """
        if header.producer_id == NO_PRODUCER_ID:
            return None
        known = self._producers.get(header.producer_id)
        if known is None:
            return None
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
        """Tell whether a coordinator may append records for a producer: they have no sequence.

        Raises:
            InvalidProducerEpoch: a newer producer has the id.
        """
        known = self._producers.get(producer_id)
        if known is not None and producer_epoch < known.epoch:
            raise _stale_epoch(producer_id, producer_epoch, known.epoch)

    def record(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """Note that a batch of records (no marker) was appended at `base_offset`."""
        if header.producer_id == NO_PRODUCER_ID:
            return
        end_offset = base_offset + header.last_offset_delta + 1
        batch = TakenBatch(
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
        batch: TakenBatch,
        now_ms: int,
        *,
        is_transactional: bool,
    ) -> None:
        """Note that a batch is in the log, wherever that is known from; nothing is checked."""
        known = self._producers.get(producer_id)
        if known is None:
            known = self._producers[producer_id] = Producer(producer_epoch, NO_SEQUENCE)
        known.enter(producer_epoch)
        if batch.base_sequence != NO_SEQUENCE:  # coordinators' batches have none
            known.batches.append(batch)
            known.last_sequence = batch.last_sequence
        known.written_ms = now_ms
        if is_transactional:
            self.transactions.begin(producer_id, batch.base_offset)

    def restore(self, producer_id: int, known: Producer) -> None:
        """Put back what `__iter__` yielded."""
        self._producers[producer_id] = known

    def check_marker(self, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> None:
        """Tell whether a coordinator may append a marker now.

        Raises:
            InvalidProducerEpoch: a newer producer has the id.
            TransactionCoordinatorFenced: a newer coordinator has written here before.
        """
        known = self._producers.get(producer_id)
        if known is None:
            return
        if producer_epoch < known.epoch:
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
        """Note that a marker was appended at `offset`."""
        known = self._producers.get(producer_id)
        if known is None:
            known = self._producers[producer_id] = Producer(producer_epoch, None)
        known.enter(producer_epoch)
        known.coordinator_epoch = marker.coordinator_epoch
        known.written_ms = now_ms
        self.transactions.end(producer_id, offset, is_commit=marker.is_commit)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that wrote nothing for `producer.id.expiration.ms`; return how many."""
        oldest_ms = now_ms - expiration_ms
        gone = [
            producer_id
            for producer_id, known in self._producers.items()
            if known.written_ms < oldest_ms and producer_id not in self.transactions
        ]
        for producer_id in gone:
            del self._producers[producer_id]
        return len(gone)


def _stale_epoch(producer_id: int, epoch: int, known_epoch: int) -> InvalidProducerEpoch:
    return InvalidProducerEpoch(
        "a newer producer has the producer id; stop, or get a new one. "
        f"producer_id={producer_id} producer_epoch={epoch} known_epoch={known_epoch}"
    )
