"""ShareStateReader: reads `__share_group_state` for a view of the console, on a root or at brokers.

It reads on from where it stopped. One call reads a bounded number of bytes, so the states of a
large topic are complete after some calls; until then `is_behind` is True.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

import pyarrow as pa

from sparklog.client.values import EARLIEST
from sparklog.console.cluster_view import ClusterView, PartitionRange
from sparklog.console.share_states import StoredShareStates
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.errors import OffsetOutOfRange, UnknownTopicOrPartition
from sparklog.core.types import TopicPartition

STATE_TOPIC: Final = "__share_group_state"
READ_BYTES_MAX: Final = 64 * 1024 * 1024
READ_WITHIN_S: Final = 5.0
STATES_AGE_MAX_S: Final = 3.0
_END: Final = 2**63 - 1


class ShareStateReader:
    """The states of one log. Thread-safe."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        """Read nothing yet."""
        self.is_behind = False
        """More states are stored than those that were read."""
        self._clock = clock
        self._states = StoredShareStates()
        self._topic_id = ""
        self._read_s: float | None = None
        self._left_bytes = 0
        self._lock = Lock()

    @contextmanager
    def lend(self, view: ClusterView) -> Iterator[StoredShareStates]:
        """Lend the states, some seconds old at most. They are empty without the topic.

        Raises:
            SparklogError: the topic cannot be read; the error says why.
        """
        with self._lock:
            now_s = self._clock.monotonic_s()
            is_old = self._read_s is None or now_s - self._read_s > STATES_AGE_MAX_S
            if is_old or self.is_behind:
                self._read_on(view)
                self._read_s = now_s
            yield self._states

    def _read_on(self, view: ClusterView) -> None:
        try:
            topic = view.topic(STATE_TOPIC)
        except UnknownTopicOrPartition:
            self._states, self._topic_id, self.is_behind = StoredShareStates(), "", False
            return
        if topic.topic_id != self._topic_id:
            self._states, self._topic_id = StoredShareStates(), topic.topic_id
        try:
            self._read(view, topic.partitions)
        except OffsetOutOfRange:
            # The topic was trimmed meanwhile, and its start has newer records of each state.
            self._states = StoredShareStates()
            self._read(view, topic.partitions)

    def _read(self, view: ClusterView, partitions: int) -> None:
        self.is_behind = False
        self._left_bytes = READ_BYTES_MAX
        deadline_s = self._clock.monotonic_s() + READ_WITHIN_S
        states = self._states

        def take(tp: TopicPartition, batch: pa.RecordBatch) -> bool:
            if batch.num_rows:
                states.take(batch.column("key").to_pylist(), batch.column("value").to_pylist())
                states.ends[tp.partition] = batch.column("offset")[-1].as_py() + 1
            self._left_bytes -= batch.nbytes
            goes_on = self._left_bytes > 0 and self._clock.monotonic_s() < deadline_s
            self.is_behind = self.is_behind or not goes_on
            return goes_on

        starts = {
            TopicPartition(STATE_TOPIC, number): states.ends.get(number, EARLIEST)
            for number in range(partitions)
        }
        view.read([PartitionRange(tp, at, _END) for tp, at in starts.items()], take)
