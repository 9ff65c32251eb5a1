"""Speed of decoding and encoding record batches, on one core, beside kafka-python.

    .venv/bin/python -m tests.bench.bench_record_batch

Records of 100 bytes: a key of 10 and a value of 90 that does not compress. A figure is the best of
several rounds, in GB/s of uncompressed batch bytes; compiling is done before.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from random import Random

import numpy as np
import pyarrow as pa

from sparklog.protocol.partitioner.partitioner import partitions_for_keys
from sparklog.protocol.records.columns import TIMESTAMP_TYPE
from sparklog.protocol.records.memory_records import split_batches
from sparklog.protocol.records.record_batch import BatchSettings, Codec, decode, encode, encode_many

with warnings.catch_warnings():
    # kafka-python 3.0 reads its schemas by a function that Python 3.11 calls deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.memory_records import (  # type: ignore[import-untyped]
        MemoryRecords,
        MemoryRecordsBuilder,
    )

ROWS = 200_000
VALUE_BYTES = 90
ROUNDS = 7
T = 1_700_000_000_000


def records() -> pa.RecordBatch:
    """Build the rows."""
    data = Random(1).randbytes(ROWS * VALUE_BYTES)
    ends = np.arange(0, len(data) + 1, VALUE_BYTES, dtype=np.int32)
    values = pa.Array.from_buffers(
        pa.binary(), ROWS, [None, pa.py_buffer(ends), pa.py_buffer(data)]
    )
    keys = pa.array([b"key%07d" % i for i in range(ROWS)], pa.binary())
    times = pa.array(np.arange(ROWS) + T).view(TIMESTAMP_TYPE)
    return pa.RecordBatch.from_arrays([times, keys, values], ["timestamp", "key", "value"])


def best_s(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Return the seconds of the fastest round; the first, which compiles, does not count."""
    work()
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return min(taken)


def ours(rows: pa.RecordBatch, codec: Codec, batch_bytes: int) -> tuple[float, float]:
    """Return GB/s of encoding and of decoding with batches of a size."""
    settings = BatchSettings(codec)

    def batches() -> Iterator[bytes]:
        return encode_many(rows, settings, base_offset=0, max_batch_bytes=batch_bytes)

    def write() -> None:
        for _ in batches():
            pass

    data = b"".join(batches())
    assert sum(decode(one.data).records.num_rows for one in split_batches(data)) == ROWS
    size = len(encode(rows, base_offset=0))

    def read() -> None:
        for one in split_batches(data):
            decode(one.data)

    wrote, read_s = best_s(write), best_s(read)
    return size / wrote / 1e9, size / read_s / 1e9


def peers(rows: pa.RecordBatch) -> tuple[float, float]:
    """Return GB/s of kafka-python, over a tenth of the rows."""
    part = rows.slice(0, ROWS // 10).to_pylist()

    def write() -> bytes:
        builder = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1 << 30)
        for i, row in enumerate(part):
            builder.append(T + i, row["key"], row["value"])
        builder.close()
        return bytes(builder.buffer())

    data = write()
    wrote = best_s(write, 2)
    read = best_s(lambda: [record for batch in MemoryRecords(data) for record in batch], 2)
    return len(data) / wrote / 1e9, len(data) / read / 1e9


def main() -> None:
    """Measure and print."""
    rows = records()
    print(f"{'codec':<22}{'batch':>10}{'encode GB/s':>14}{'decode GB/s':>14}")
    sizes = [(Codec.NONE, size) for size in (16 << 10, 128 << 10, 1 << 20)]
    sizes += [(codec, 1 << 20) for codec in Codec if codec]
    for codec, batch_bytes in sizes:
        wrote, read = ours(rows, codec, batch_bytes)
        print(f"{codec.name.lower():<22}{batch_bytes:>10,}{wrote:>14.2f}{read:>14.2f}")
    wrote, read = peers(rows)
    print(f"{'kafka-python, none':<22}{'':>10}{wrote:>14.4f}{read:>14.4f}")
    keys = rows.column("key")
    hashed = best_s(lambda: partitions_for_keys(keys, 12, sticky_partition=0))
    print(f"partitions of keys: {ROWS / hashed / 1e6:.0f} million a second")


if __name__ == "__main__":
    main()
