"""Makes a golden folder: `python -m tests.golden.log.make FOLDER`. Never over an existing one.

Everything is drawn from a seed and a clock that stands still, so the content is known. The bytes
may differ from library version to library version, so they are kept.
"""

from __future__ import annotations

import sys

from sparklog.cluster.log import Log
from sparklog.core.clock import ManualClock
from sparklog.core.entropy import SeededEntropy
from sparklog.log.segment.segment import CommitKey
from sparklog.store.file import FileStore
from tests.harness.log_records import batch


def make(folder: str) -> None:
    """Write a small log that uses every feature of the format."""
    clock, entropy = ManualClock(), SeededEntropy(1)
    log = Log(FileStore(folder, entropy=entropy), clock=clock, entropy=entropy)
    for codec in ("uncompressed", "lz4", "zstd"):
        log.create_topic(f"golden-{codec}", 2, {"compression.type": codec, "retention.ms": "-1"})
        partition = log.partition(f"golden-{codec}", 1)
        partition.append([batch([b"first", None, b""])])
        partition.append(
            [
                batch(
                    [b"fourth", b"fifth"],
                    keys=[b"k4", None],
                    timestamps_ms=[1_600_000_000_000, 1_500_000_000_000],
                    headers=[[("h", b"1"), ("h", None)], None],
                )
            ],
            key=CommitKey("query", 3),
        )
        partition.absorb_tail()
        staged = [partition.stage([batch([b"sixth"])]), partition.stage([batch([b"7", b"8"])])]
        partition.append_staged(staged, key=CommitKey("query", 4))
        partition.delete_records(1)
        partition.append([batch([b"ninth"])])
    log.alter_configs("golden-lz4", remove=["retention.ms"])
    log.create_topic("golden-gone", 1)
    log.delete_topic("golden-gone")
    log.close()


if __name__ == "__main__":
    make(sys.argv[1])
