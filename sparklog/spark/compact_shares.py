"""Large partitions compacted by several tasks each: shares of one compaction, and one swap.

A partition whose compaction writes more than a task's share was left by its task; here every slot
that is free takes a part of the copying. If one of the shares fails, nothing of the partition is
published, and the next run begins anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from sparklog.spark.partition_tasks import PartitionAnswer, PartitionWork

SHARE_BYTES: Final = 1 << 30
"""What a task copies by itself before it is worth another one, which must read all keys, too."""
SHARES: Final = "shares"
SHARE: Final = "share"


def share_works(
    works: Iterable[PartitionWork], answers: Iterable[PartitionAnswer], slots: int
) -> list[PartitionWork]:
    """Return the shares of the partitions that were left, as many as there are slots for.

    Args:
        works: of all partitions.
        answers: to them; those left have `shares` in their result.
        slots: tasks that run at once.
    """
    left = {(a.topic, a.partition): a.result[SHARES] for a in answers if a.result.get(SHARES)}
    found = []
    for work in works:
        shares = left.get((work.topic, work.partition))
        if shares is None:
            continue
        count = max(1, min(-(-int(shares["bytes_left"]) // SHARE_BYTES), slots // len(left)))
        found += [
            replace(work, details={SHARES: shares, SHARE: [number, count]})
            for number in range(count)
        ]
    return found


def joined(
    first: PartitionAnswer, parts: Sequence[PartitionAnswer], result: Mapping[str, Any], error: str
) -> PartitionAnswer:
    """Return one answer for a partition that several tasks worked on."""
    requests: dict[str, int] = dict(first.requests)
    for part in parts:
        for kind, count in part.requests.items():
            requests[kind] = requests.get(kind, 0) + count
    return PartitionAnswer(first.topic, first.partition, result, error, requests)
