"""Write-ahead logs in the verification job: what partitions wait for, and an operator's consent.

The driver looks at these logs, and not a task: partitions share them. A healthy cluster needs no
sealed log for longer than a take-over takes, so usually there is nothing to read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from sparklog.cluster.log import Log, log_config
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.core.entropy import SYSTEM_ENTROPY, Entropy, new_nonce
from sparklog.core.types import OffsetRange, PartitionId
from sparklog.log.cleanup.rewriter import Encoding
from sparklog.log.effects import run
from sparklog.log.layout import WalLayout
from sparklog.log.repair.wal_damage import DamagedWal, Stake, WaitingPartition, find_damage, give_up
from sparklog.spark.jobs.partition_tasks import PartitionAnswer


def damaged_wals(log: Log, image: MetadataImage) -> list[DamagedWal]:
    """Return the damaged write-ahead logs that partitions wait for."""
    return run(find_damage(list(_waiting(image))), log.store)


def _waiting(image: MetadataImage) -> Iterator[WaitingPartition]:
    for topic in image.topics.values():
        for layout, state in zip(topic.layouts(), topic.partition_states, strict=True):
            if state.wals:
                wals = tuple(map(_wal_named, state.wals))
                yield WaitingPartition(layout, wals, state.leader_epoch)


def _wal_named(name: str) -> WalLayout:
    broker_id, _, incarnation = name.partition("-")
    return WalLayout(int(broker_id), incarnation)


def with_stakes(
    answers: Sequence[PartitionAnswer], damaged: Sequence[DamagedWal]
) -> list[PartitionAnswer]:
    """Return the answers; those of partitions that wait for a damaged log have failed."""
    lost: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
    for wal in damaged:
        for stake in wal.stakes:
            layout = stake.waiting.layout
            lost[layout.topic, layout.partition].append(_words(wal, stake))
    return [
        replace(one, error="; ".join((*((one.error,) if one.error else ()), *texts)))
        if (texts := lost.get((one.topic, one.partition)))
        else one
        for one in answers
    ]


def _words(wal: DamagedWal, stake: Stake) -> str:
    place = f"{stake.waiting.layout.topic}:{stake.waiting.layout.partition}"
    acknowledged = "were" if wal.sequences[0] <= wal.acknowledged else "may have been"
    base, end = stake.base_offset, stake.end_offset
    lost = (
        f"offsets {base:,} to {end:,} are lost"
        if stake.end_known
        else (f"offsets from {base:,} on may be lost; END is beyond all that a consumer has seen")
    )
    return (
        f"it waits for a damaged write-ahead log, {lost}; they {acknowledged} acknowledged. Bring "
        "the object back from a copy, or give up all such ranges of the log in one call: "
        f"--drop-damaged {place}:{base}-{end if stake.end_known else 'END'} "
        f"object={wal.objects[0]} problem={wal.why}"
    )


def drop_wal_ranges(
    log: Log,
    image: MetadataImage,
    ranges: Mapping[tuple[str, int], Sequence[OffsetRange]],
    *,
    dry_run: bool,
    entropy: Entropy = SYSTEM_ENTROPY,
) -> set[tuple[str, int]]:
    """Give up ranges of damaged write-ahead logs; return the partitions that are done.

    Args:
        log: the log.
        image: of its metadata.
        ranges: the operator's ranges, by topic and partition.
        dry_run: change nothing.
        entropy: for nonces.

    Raises:
        InvalidRequest: not all ranges at stake in a log are there. Unavailable: the store failed.
    """
    done: set[tuple[str, int]] = set()
    for wal in damaged_wals(log, image):
        places = {(s.waiting.layout.topic, s.waiting.layout.partition) for s in wal.stakes}
        if not places & ranges.keys():
            continue
        given = {
            PartitionId(image.topics[topic].topic_id, partition): some
            for (topic, partition), some in ranges.items()
        }
        config = log_config({})
        encoding = Encoding(config.codec, config.zstd_level, config.indexes_keys)
        if not dry_run:
            nonces = iter(lambda: new_nonce(entropy), "")
            run(give_up(wal, given, encoding, nonces), log.store)
        done |= places
    return done
