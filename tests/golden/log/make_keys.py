"""Adds a partition with an index of its keys: `python -m tests.golden.log.make_keys FOLDER`.

Never over an existing one. The partition is in no registry: it is read by its place.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from sparklog.core.clock import ManualClock
from sparklog.core.config.topic import parse_topic_configs
from sparklog.core.entropy import SeededEntropy
from sparklog.log.cleanup.compaction_policy import CompactionPolicy
from sparklog.log.cleanup.compactor import Compactor
from sparklog.log.cleanup.rewriter import Encoding
from sparklog.log.layout import PartitionLayout
from sparklog.log.partition.partition_log import LogConfig, PartitionLog
from sparklog.store.file import FileStore
from tests.harness.log_records import batch

KEYED = PartitionLayout("golden-keys", "R29sZGVuS2V5UGFydGl0aQ", 0)
KEYS = [b"key-%d" % n for n in range(6000)]


def make(folder: str) -> None:
    """Write compacted rows, then a segment as appended, and one without an index."""
    clock, entropy = ManualClock(), SeededEntropy(2)
    store = FileStore(folder, entropy=entropy)
    config = LogConfig(indexes_keys=True)
    log = PartitionLog(store, KEYED, config, clock=clock, entropy=entropy)
    log.append([batch([b"old"] * len(KEYS), keys=KEYS)])
    log.append([batch([b"%d" % n for n in range(len(KEYS))], keys=KEYS)])
    policy = CompactionPolicy.of(parse_topic_configs({"cleanup.policy": "compact"}))
    with ThreadPoolExecutor(1) as pool:
        encoding = Encoding("zstd", 19, indexes_keys=True)
        Compactor(store, KEYED, policy, encoding, pool, clock=clock, entropy=entropy).compact(
            force=True
        )
    for base in (0, len(KEYS)):  # as retention does, later
        store.delete(KEYED.key(KEYED.chain_name(base)))
    log.append([batch([b"long", None], keys=[b"k" * 100, None])])
    plain = PartitionLog(store, KEYED, clock=clock, entropy=entropy)
    plain.append([batch([b"last"], keys=[b"key-7"])])


if __name__ == "__main__":
    make(sys.argv[1])
