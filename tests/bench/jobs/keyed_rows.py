"""Records with keys that come again, the same in every run, made as fast as they can be stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.cluster.log import open_log
from sparklog.log.schema import COLUMN_TYPES
from tests.bench.common.plan import SEED
from tests.bench.jobs.plan import KeyedShape

TOPIC = "keyed"
CHUNK_RECORDS = 500_000
FIRST_TIMESTAMP_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Chunk:
    """Neighbouring records: keys and values, each of one size, one after the other."""

    first: int
    """Number of the first record."""
    records: int
    keys: bytes
    values: bytes

    def rows(self) -> pa.RecordBatch:
        """Return them as a log takes them."""
        numbers = np.arange(self.first, self.first + self.records, dtype=np.int64)
        stamps = pa.array(FIRST_TIMESTAMP_MS + numbers).view(COLUMN_TYPES["timestamp"])
        columns = [stamps, _fixed(self.keys, self.records), _fixed(self.values, self.records)]
        return pa.RecordBatch.from_arrays(columns, names=["timestamp", "key", "value"])

    def pairs(self) -> Iterator[tuple[bytes, bytes, int]]:
        """Yield key, value and timestamp of each."""
        key, value = len(self.keys) // self.records, len(self.values) // self.records
        for n in range(self.records):
            stamp = FIRST_TIMESTAMP_MS + self.first + n
            yield (
                self.keys[n * key : n * key + key],
                self.values[n * value : n * value + value],
                stamp,
            )


def chunks(shape: KeyedShape) -> Iterator[Chunk]:
    """Yield the records of a shape. Every key comes once before any does again, as far as any can.

    Memory: one chunk, and eight bytes per key.
    """
    random = np.random.default_rng(SEED)
    first_time = random.permutation(shape.keys)
    for first in range(0, shape.records, CHUNK_RECORDS):
        count = min(CHUNK_RECORDS, shape.records - first)
        numbers = first_time[first : first + count]
        again = random.integers(0, shape.keys, count - len(numbers))
        keys = _spelled(np.concatenate([numbers, again]), shape.key_bytes)
        yield Chunk(first, count, keys, random.bytes(count * shape.value_bytes))


def fill(root: str, shape: KeyedShape, topic: str = TOPIC) -> None:
    """Make a topic of one partition that holds the records of a shape."""
    with open_log(root) as log:
        log.create_topic(topic, 1, {"cleanup.policy": "compact"})
        partition = log.partition(topic, 0)
        for chunk in chunks(shape):
            partition.append([chunk.rows()])


def _spelled(numbers: npt.NDArray[np.int64], key_bytes: int) -> bytes:
    """Return keys that have these numbers, scattered by a multiplication, in eight of the bytes."""
    words = np.zeros((len(numbers), key_bytes // 8), ">u8")
    words[:, 0] = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    words[:, -1] ^= numbers.astype(np.uint64)
    return words.tobytes()


def _fixed(data: bytes, count: int) -> pa.Array:
    width = len(data) // count
    ends = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    return pa.BinaryArray.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(data)]
    )
