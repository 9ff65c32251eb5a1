"""Have Kafka's own Java client read what sparklog writes, every codec, and compare.

    python check_java_reads_ours.py FOLDER_OF_JARS

Ends with an error where the Java client finds anything else than sparklog wrote. See README.md.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from sparklog.core.types import TimestampType
from sparklog.protocol.records.columns import RECORDS_SCHEMA
from sparklog.protocol.records.control import EndTransactionMarker, encode_end_transaction
from sparklog.protocol.records.memory_records import split_batches
from sparklog.protocol.records.record_batch import (
    PLAIN,
    BatchSettings,
    Codec,
    decode,
    encode,
    encode_many,
)
from tests.harness.golden_batches import data_of, describe, expected


def ours() -> Iterator[tuple[str, bytes]]:
    """Yield names and buffers of batches that sparklog encodes."""
    for name in expected():
        for index, one in enumerate(split_batches(data_of(name))):
            batch = decode(one.data)
            for codec in Codec:
                settings = BatchSettings(
                    codec=codec,
                    timestamp_type=one.header.timestamp_type,
                    leader_epoch=8,
                    producer_id=one.header.producer_id,
                    producer_epoch=one.header.producer_epoch,
                    base_sequence=one.header.base_sequence,
                    is_transactional=one.header.is_transactional,
                    delete_horizon_ms=one.header.delete_horizon_ms,
                )
                if one.header.record_count == 0:
                    settings = replace(settings, codec=Codec.NONE)
                offsets = {"base_offset": one.header.base_offset}
                last_offset = one.header.last_offset
                data = encode(batch.records, settings, **offsets, last_offset=last_offset)
                yield f"{name}-{index}-{codec.name}", data
    many = pa.RecordBatch.from_pylist(
        [
            {
                "offset": 5 + 3 * i,
                "timestamp": 10**12 + i // 50,
                "key": b"%d" % i,
                "value": b"v" * i,
            }
            for i in range(2_000)
        ],
        RECORDS_SCHEMA,
    )
    append_time = replace(PLAIN, timestamp_type=TimestampType.LOG_APPEND_TIME)
    for codec in Codec:
        for kind, settings in (("create", PLAIN), ("append", append_time)):
            coded = replace(settings, codec=codec)
            batches = encode_many(many, coded, base_offset=2, max_batch_bytes=100_000)
            yield f"many-{kind}-{codec.name}", b"".join(batches)
    for is_commit in (True, False):
        yield (
            f"marker-{is_commit}",
            encode_end_transaction(
                EndTransactionMarker(is_commit, 3),
                base_offset=7,
                timestamp_ms=10**12,
                producer_id=9,
                producer_epoch=1,
                leader_epoch=2,
            ),
        )


def main(jars: Path) -> None:
    """Write the batches, have them read, compare."""
    generator = Path(__file__).with_name("JavaVectors.java")
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for name, data in ours():
            file = Path(folder) / name
            file.write_bytes(data)
            files[str(file)] = data
        command = ["java", "-cp", f"{jars}/*", str(generator), "read", *files]
        read = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    for path, data in files.items():
        assert read[path] == describe(data), path
    print(f"the Java client read {len(files)} buffers of ours as they were written")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
