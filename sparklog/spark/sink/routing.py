"""Routing: the topic and partition of each row, a whole Arrow batch at a time.

An explicit partition comes first, then murmur2 of the key as every Kafka client computes it. Rows
without a key stick together and go to one partition after the other, batch by batch (KIP-480).
Rows of one partition keep their order. Knows no store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.core.entropy import SYSTEM_ENTROPY, Entropy
from sparklog.core.errors import InvalidPartitions, InvalidRequest
from sparklog.core.types import TopicPartition
from sparklog.log.schema import floored
from sparklog.protocol.partitioner.partitioner import partitions_for_keys

RECORD_COLUMNS = ("timestamp", "key", "value", "headers")
GATHERED_ROWS = 65_536
GATHERED_BYTES = 4 << 20
_MICROS_PER_SECOND = 1_000_000

Indices = npt.NDArray[Any]


class Router:
    """Splits batches of rows into batches of records, one per partition."""

    def __init__(
        self,
        topic: str | None,
        partitions_of: Callable[[str], int],
        *,
        entropy: Entropy = SYSTEM_ENTROPY,
    ) -> None:
        """Send every row to `topic`, or to what its `topic` column says when that is None.

        `partitions_of` returns a topic's number of partitions, or raises for an unknown topic.
        """
        self._topic = topic
        self._partitions_of = partitions_of
        self._entropy = entropy
        self._sticky: dict[str, int] = {}

    def route(self, batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        """Yield (partition, its records in order); every result owns its memory or all of `batch`.

        Raises:
            InvalidRequest: a null topic, a header without a key.
            InvalidPartitions: a partition the topic does not have.
            Others: what `partitions_of` raises.
        """
        if not batch.num_rows:
            return
        records = records_of(batch)
        chosen = batch.column("partition") if "partition" in batch.schema.names else None
        for topic, rows in self._topics(batch):
            part = records if rows is None else records.take(pa.array(rows))
            wanted = chosen if chosen is None or rows is None else chosen.take(pa.array(rows))
            yield from self._one_topic(topic, part, wanted)

    def _topics(self, batch: pa.RecordBatch) -> Iterator[tuple[str, Indices | None]]:
        """Yield (topic, its rows); None for the rows means all of them."""
        if self._topic is not None:
            yield self._topic, None
            return
        topics = batch.column("topic")
        if topics.null_count:
            raise InvalidRequest(
                "null topic present in the data. Use the topic option for setting a default topic."
            )
        encoded = topics.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        if len(names) == 1:
            yield names[0], None
            return
        for code, rows in _groups(encoded.indices.to_numpy(zero_copy_only=False)):
            yield names[code], rows

    def _one_topic(
        self, topic: str, records: pa.RecordBatch, chosen: pa.Array | None
    ) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        partitions = self._partitions_of(topic)
        numbers = self._partition_numbers(topic, partitions, records, chosen)
        if isinstance(numbers, int):
            yield TopicPartition(topic, numbers), records
            return
        first = int(numbers[0])
        if (numbers == first).all():
            yield TopicPartition(topic, first), records
            return
        for number, rows in _groups(numbers):
            # One take per partition. Slices of one common copy would keep all of it in memory
            # until the slowest partition's buffer is full.
            yield TopicPartition(topic, number), records.take(pa.array(rows))

    def _partition_numbers(
        self, topic: str, partitions: int, records: pa.RecordBatch, chosen: pa.Array | None
    ) -> Indices | int:
        """Return each row's partition, or one number when all rows go to the same."""
        if chosen is not None and chosen.null_count == len(chosen):
            chosen = None
        if chosen is not None and not chosen.null_count:
            return _checked(topic, partitions, chosen.to_numpy(zero_copy_only=False))
        keys = records.column("key") if "key" in records.schema.names else None
        keyed = keys is not None and keys.null_count < len(keys)
        if partitions == 1 and chosen is None:
            return 0
        has_keyless = keys is None or keys.null_count > 0
        sticky = self._next_sticky(topic, partitions) if has_keyless else 0
        if not keyed and chosen is None:
            return sticky
        if keyed:
            numbers: Indices = partitions_for_keys(keys, partitions, sticky_partition=sticky)
        else:
            numbers = np.full(records.num_rows, sticky, np.int32)
        if chosen is None:
            return numbers
        explicit = chosen.is_valid().to_numpy(zero_copy_only=False)
        asked = pc.fill_null(chosen, 0).to_numpy(zero_copy_only=False)
        return np.where(explicit, _checked(topic, partitions, asked), numbers)

    def _next_sticky(self, topic: str, partitions: int) -> int:
        last = self._sticky.get(topic)
        if last is None:
            last = int(self._entropy.random() * partitions)
        self._sticky[topic] = (last + 1) % partitions
        return self._sticky[topic]


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in larger batches, so that routing to many partitions costs little."""
    pending: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        pending.append(batch)
        rows += batch.num_rows
        size_bytes += batch.nbytes
        if rows >= GATHERED_ROWS or size_bytes >= GATHERED_BYTES:
            yield _joined(pending)
            pending, rows, size_bytes = [], 0, 0
    if rows:
        yield _joined(pending)


def records_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns of `batch` that a record has, in the types a log takes.

    Raises:
        InvalidRequest: a header without a key.
    """
    names = [name for name in RECORD_COLUMNS if name in batch.schema.names]
    arrays = []
    for name in names:
        array = batch.column(name)
        if name in ("key", "value") and pa.types.is_string(array.type):
            array = array.view(pa.binary())
        elif name == "timestamp":
            array = _milliseconds(array)
        elif name == "headers" and array.flatten().field("key").null_count:
            raise InvalidRequest("a header has no key; give it one or leave the header out")
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _milliseconds(array: pa.Array) -> pa.Array:
    """Return times in milliseconds, rounded down also before 1970."""
    if pa.types.is_floating(array.type):
        micros = pc.multiply(array, float(_MICROS_PER_SECOND)).cast(pa.int64(), safe=False)
        array = micros.cast(pa.timestamp("us", tz="UTC"))
    return floored(array)


def _checked(topic: str, partitions: int, numbers: Indices) -> Indices:
    low, high = int(numbers.min()), int(numbers.max())
    if low < 0 or high >= partitions:
        raise InvalidPartitions(
            "a row asks for a partition that the topic does not have; partitions count from 0. Add "
            f"some with `sparklog topics --alter --topic {topic} --partitions N`. topic={topic} "
            f"partition={low if low < 0 else high} partitions={partitions}"
        )
    return numbers


def _groups(numbers: Indices) -> Iterator[tuple[int, Indices]]:
    """Yield (number, the rows that have it, ascending) for every number there is."""
    narrow = numbers.astype(np.uint16) if numbers.max() < 1 << 16 else numbers
    order = np.argsort(narrow, kind="stable")  # radix sort for 16 bits
    ranked = narrow[order]
    starts = np.flatnonzero(np.diff(ranked)) + 1
    for rows in np.split(order, starts):
        yield int(numbers[rows[0]]), rows
