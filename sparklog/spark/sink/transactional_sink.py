"""Transactional sink: the driver makes a batch of a streaming query one Kafka transaction.

The transaction has a reference batch for each partition. For a group of the query's own, it
commits how far it has written each of them. With that it commits the batch's number, by which a
later attempt sees that the batch is there.

  TRANSACTIONAL-SINK-1: an attempt reads the group's offsets after it has taken over the
      transactional id. Every earlier transaction has ended then, and no other attempt's can commit
  TRANSACTIONAL-SINK-2: a transaction that commits has all partitions and the number; one that does
      not has neither
  TRANSACTIONAL-SINK-3: the sink writes nothing if it knows neither the batch's number nor an
      earlier one, and the group may have expired since the batch

Source: FORMAT.md 7 and 9.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from sparklog.client.batch_producer import (
    OffsetAndMetadata,
    TransactionalProducer,
    append_batches,
    begin_producer,
    commit_offsets_in_transaction,
    end_transaction,
)
from sparklog.client.connections import BrokerConnections
from sparklog.client.offsets import read_group_offsets
from sparklog.client.security import SecuritySettings
from sparklog.cluster.log import Log
from sparklog.cluster.publication import LED_AGAIN_S, LED_PATIENCE_S, Publication
from sparklog.core.bounded_json import parse_json
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.errors import Fenced, NotServing, OutcomeUnknown, SparklogError, Unavailable
from sparklog.core.types import TopicPartition
from sparklog.log.partition.append import AppendResult
from sparklog.log.tail.references import ReferencedObject, encode_references, reference_batch
from sparklog.spark.access.leaders import connect_brokers, registered
from sparklog.spark.sink.leader_sink import NO_BROKERS, REQUEST_TIMEOUT_S
from sparklog.spark.sink.options import TRANSACTION_TIMEOUT_MS

SEND_SHARE: Final = 0.75
"""Share of the time-out for the search for leaders, so that there is time to abort."""
FORGOTTEN_MS: Final = 6 * 24 * 3600 * 1000
"""Below the seven days for which brokers keep a group's offsets (`offsets.retention.minutes`)."""


def group_of(query_id: str) -> str:
    """Return the group for which a query commits how far it has written."""
    return f"sparklog-sink-{query_id}"


class TransactionalAppends:
    """`AppendInTransaction` of `cluster.publication`."""

    def __init__(
        self,
        log: Log,
        bootstrap: str | None,
        transactional_id: str | None = None,
        timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        clock: Clock = SYSTEM_CLOCK,
        security: SecuritySettings | None = None,
    ) -> None:
        """Find brokers at `bootstrap`, or else where the cluster's metadata says they are.

        Args:
            log: the log.
            bootstrap: bootstrap servers.
            transactional_id: by default the name of the query's group.
            timeout_ms: limit for an open transaction.
            clock: for waits.
            security: TLS and SASL; None takes those of the process.
        """
        self._security = security
        self._log = log
        self._bootstrap = bootstrap
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._clock = clock

    def __call__(self, batch: Publication) -> Mapping[TopicPartition, AppendResult]:
        """Append the batch; see `AppendInTransaction`. Brokers that are away are waited for.

        Raises:
            Unavailable: they, or leaders, were away too long; call again.
            Fenced: another driver of the query has taken over.
            OutcomeUnknown: nothing shows whether the batch is there.
        """
        deadline_s = self._clock.monotonic_s() + LED_PATIENCE_S
        while True:
            try:
                return self._attempt(batch)
            except (Unavailable, NotServing) as error:
                if self._clock.monotonic_s() >= deadline_s:
                    raise _away(batch, error) from error
            self._clock.sleep_s(LED_AGAIN_S)

    def _attempt(self, batch: Publication) -> Mapping[TopicPartition, AppendResult]:
        addresses = self._bootstrap or registered(self._log.refresh(), self._security)
        if not addresses:
            raise NO_BROKERS
        brokers = connect_brokers(addresses, REQUEST_TIMEOUT_S, self._security)
        try:
            return _TransactionAttempt(self, brokers, batch, self._clock).run()
        finally:
            brokers.close()

    def begin(self, brokers: BrokerConnections, query_id: str) -> TransactionalProducer:
        """Take over the query's transactional id."""
        name = self._transactional_id or group_of(query_id)
        return begin_producer(brokers, name, self._timeout_ms, self._clock)

    def send(
        self, brokers: BrokerConnections, producer: TransactionalProducer, batch: Publication
    ) -> Mapping[TopicPartition, AppendResult]:
        """Send the leaders their reference batches; the first error is raised."""
        enlisted = ReferencedObject(producer.producer_id, producer.producer_epoch)
        batches = {part.place: reference_batch(part.staged, None) for part in batch.partitions}
        bases = append_batches(
            brokers,
            {place: encode_references(one, enlisted) for place, one in batches.items()},
            {part.topic: part.topic_id for part in batch.partitions},
            self._clock,
            patience_s=self._timeout_ms / 1000 * SEND_SHARE,
            transactional_id=producer.transactional_id,
        )
        appended: dict[TopicPartition, AppendResult] = {}
        for place, base in bases.items():
            if isinstance(base, SparklogError):
                raise base
            appended[place] = AppendResult(base, base + batches[place].count, repeated=False)
        return appended

    def tell(
        self,
        brokers: BrokerConnections,
        producer: TransactionalProducer,
        batch: Publication,
        appended: Mapping[TopicPartition, AppendResult],
    ) -> None:
        """Commit, if the transaction does, how far was written, with the batch's number."""
        number = {"query": batch.writer, "batch": batch.sequence}
        text = json.dumps(number, separators=(",", ":"))
        offsets = {p: OffsetAndMetadata(one.end_offset, text) for p, one in appended.items()}
        group = group_of(batch.writer)
        commit_offsets_in_transaction(brokers, producer, group, offsets, self._clock)

    def end(
        self, brokers: BrokerConnections, producer: TransactionalProducer, *, commit: bool
    ) -> None:
        """Commit or abort."""
        end_transaction(brokers, producer, self._clock, commit=commit)


class _TransactionAttempt:
    """One attempt at one batch."""

    def __init__(
        self,
        steps: TransactionalAppends,
        brokers: BrokerConnections,
        batch: Publication,
        clock: Clock,
    ) -> None:
        self._steps = steps
        self._brokers = brokers
        self._batch = batch
        self._clock = clock
        self._group = group_of(batch.writer)

    def run(self) -> Mapping[TopicPartition, AppendResult]:
        # Before anybody is fenced for it. It does not wait for transactions that a dead attempt
        # has left open: the take-over ends these.
        done = self._committed(require_stable=False)
        if done is not None:
            return done
        producer = self._steps.begin(self._brokers, self._batch.writer)
        done = self._committed()
        if done is not None:
            return done
        try:
            return self._write(producer)
        except Fenced as error:
            done = self._committed()
            if done is not None:  # by this attempt, whose answer was lost, or by its successor
                return done
            raise self._fenced(producer, error) from error

    def _write(self, producer: TransactionalProducer) -> Mapping[TopicPartition, AppendResult]:
        try:
            appended = self._steps.send(self._brokers, producer, self._batch)
            self._steps.tell(self._brokers, producer, self._batch, appended)
        except Fenced:
            raise
        except SparklogError:
            self._abort(producer)
            raise
        # Without an answer it may be committed: the next attempt finds its number then.
        self._steps.end(self._brokers, producer, commit=True)
        return appended

    def _abort(self, producer: TransactionalProducer) -> None:
        """End the transaction, so that readers need not wait until it times out."""
        try:
            self._steps.end(self._brokers, producer, commit=False)
        except SparklogError:
            return  # its time-out does it, or the next attempt

    def _committed(
        self, *, require_stable: bool = True
    ) -> Mapping[TopicPartition, AppendResult] | None:
        """Return where the batch is, if it is there: nowhere, if a later one is the newest."""
        outcome = read_group_offsets(
            self._brokers, [self._group], self._clock, require_stable=require_stable
        )[self._group]
        if isinstance(outcome, SparklogError):
            raise outcome
        numbers = {tp: _number(one.metadata, self._batch.writer) for tp, one in outcome.items()}
        newest = max(numbers.values(), default=-1)
        if newest < self._batch.sequence:
            self._refuse_forgotten(newest)
            return None
        counts = {
            part.place: reference_batch(part.staged, None).count for part in self._batch.partitions
        }
        return {
            tp: AppendResult(outcome[tp].offset - count, outcome[tp].offset, repeated=True)
            for tp, count in counts.items()
            if numbers.get(tp) == self._batch.sequence
        }

    def _refuse_forgotten(self, newest: int) -> None:
        """Keep TRANSACTIONAL-SINK-3. Offsets are forgotten in the order they were committed in."""
        age_ms = self._clock.now_ms() - self._batch.timestamp_ms
        if newest >= 0 or age_ms < FORGOTTEN_MS:
            return
        raise OutcomeUnknown(
            "the batch was decided so long ago that nothing tells any more whether it was "
            "committed; compare the log with the source, then start the query with a new "
            f"checkpoint. group={self._group} batch={self._batch.sequence}"
        )

    def _fenced(self, producer: TransactionalProducer, error: Fenced) -> Fenced:
        return Fenced(
            "another driver of this query has taken over, or the transaction was open for longer "
            "than its time-out; nothing of this attempt is in the log. See that the query runs "
            f"once, then start it again. transactional_id={producer.transactional_id} "
            f"producer_epoch={producer.producer_epoch} query={self._batch.writer} "
            f"batch={self._batch.sequence} reason={error}"
        )


def _away(batch: Publication, error: SparklogError) -> Unavailable:
    return Unavailable(
        "brokers were away for too long, so it is not known whether the batch was written; see "
        "that they run and can be reached, then start the query again with its checkpoint: it "
        "finds out, and writes the batch if need be. "
        f"query={batch.writer} batch={batch.sequence} waited_s={LED_PATIENCE_S:g} reason={error}"
    )


def _number(metadata: str, query_id: str) -> int:
    """Return the number of the batch in a committed offset's metadata, or -1."""
    try:
        stored = parse_json(metadata, "metadata of an offset")
        return int(stored["batch"]) if stored["query"] == query_id else -1
    except (ValueError, TypeError, LookupError):
        return -1
