"""Leader sink: the sink's driver appends staged objects to partitions that brokers lead.

It sends reference batches: a leader gets a few hundred bytes per partition, independent of the
tasks' uploads. The leader appends each batch once however often it is sent. Source: FORMAT.md 9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sparklog.client.batch_producer import append_batches
from sparklog.client.security import SecuritySettings
from sparklog.cluster.log import Log
from sparklog.cluster.publication import StagedPartition
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.errors import SparklogError, Unavailable
from sparklog.core.types import TopicPartition
from sparklog.log.partition.append import AppendResult
from sparklog.log.segment.segment import CommitStamp
from sparklog.log.tail.references import encode_references, reference_batch
from sparklog.spark.access.leaders import connect_brokers, registered

REQUEST_TIMEOUT_S: Final = 30.0
"""Above the time a leader takes to answer that replicas or the store did not."""
ROUND_S: Final = 5.0
"""Time of the search for leaders before the sink checks whether brokers lead at all."""
NO_BROKERS: Final = Unavailable(
    "brokers lead the topic, and none is registered; start brokers, or name one that can be "
    "reached with the option kafka.bootstrap.servers"
)


class LeaderAppends:
    """`AppendLed` of `cluster.publication`."""

    def __init__(
        self,
        log: Log,
        bootstrap: str | None,
        clock: Clock = SYSTEM_CLOCK,
        security: SecuritySettings | None = None,
    ) -> None:
        """Find brokers at `bootstrap`, or else where the cluster's metadata says they are.

        `security`: TLS and SASL; None takes those of the process.
        """
        self._security = security
        self._log = log
        self._bootstrap = bootstrap
        self._clock = clock

    def __call__(
        self, parts: Sequence[StagedPartition], commit: CommitStamp | None
    ) -> Mapping[TopicPartition, AppendResult | SparklogError]:
        """Send every partition's batch to its leader; see `AppendLed`.

        Raises:
            InvalidRequest: more records for one partition than a batch can stand for.
        """
        batches = {part.place: reference_batch(part.staged, commit) for part in parts}
        data = {place: encode_references(batch) for place, batch in batches.items()}
        ids = {part.topic: part.topic_id for part in parts}
        addresses = self._bootstrap or registered(self._log.refresh(), self._security)
        if not addresses:
            return dict.fromkeys(batches, NO_BROKERS)
        brokers = connect_brokers(addresses, REQUEST_TIMEOUT_S, self._security)
        try:
            bases = append_batches(brokers, data, ids, self._clock, patience_s=ROUND_S)
        except Unavailable as error:
            return dict.fromkeys(batches, error)
        finally:
            brokers.close()
        return {
            place: base
            if isinstance(base, SparklogError)
            else AppendResult(base, base + batches[place].count, repeated=False)
            for place, base in bases.items()
        }
