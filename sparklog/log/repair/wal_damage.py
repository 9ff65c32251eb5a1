"""Damaged write-ahead logs: the records at stake, and what an operator's consent changes.

A partition that needs a sealed log waits while an acknowledged object of it is missing or cannot be
read. Its leader must not pass over that object: it would give out offsets again that acknowledged
records have.

An operator can give up those offsets. Then the partition's own log gets all batches that can be
read, and an object without rows for each range given up. So no offset is given out twice.
Last, the damaged object is copied aside, and an empty window takes its name:

WAL-DAMAGE-1: a partition's own log covers all offsets given up before the damaged object is
    replaced
WAL-DAMAGE-2: the bytes of a damaged object stay in the store, under its name with `.damaged` at its
    end
WAL-DAMAGE-3: nothing changes unless the operator names all ranges of all partitions that need the
    log

If later windows show the start of the partition's next batch, the range is known. Otherwise it
may be empty or long. The operator then names an end beyond all offsets that any consumer has seen.
Source: WAL.md 5.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sparklog.core.errors import InvalidRequest, Unavailable
from sparklog.core.types import OffsetRange, PartitionId
from sparklog.log.cleanup.rewriter import Encoding
from sparklog.log.effects import Program, create, delete, get, put
from sparklog.log.layout import PartitionLayout, WalLayout
from sparklog.log.manifest.refresh import refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.leader_append import flush_at
from sparklog.log.repair.drop_damaged import LeadNow, cover
from sparklog.log.tail.to_segment import build_flush
from sparklog.log.wal.objects import WalHeader, WalKind, WalObject, encode
from sparklog.log.wal.recovery import SealedTail, by_partition, recover_batches
from sparklog.log.wal.sealing import LOOKS_MAX, Sealed, TornWindow, listed, read_objects
from sparklog.protocol.records.header import parse_header
from sparklog.store.base import PutOutcome

ASIDE_SUFFIX = ".damaged"


@dataclass(frozen=True, slots=True)
class WaitingPartition:
    """A partition that needs write-ahead logs, by the metadata."""

    layout: PartitionLayout
    wals: tuple[WalLayout, ...]
    leader_epoch: int

    @property
    def where(self) -> PartitionId:
        """Return the partition's id."""
        return PartitionId(self.layout.topic_id, self.layout.partition)


@dataclass(frozen=True, slots=True)
class Stake:
    """Offsets of one partition that only a damaged object may hold."""

    waiting: WaitingPartition
    base_offset: int
    end_offset: int
    end_known: bool
    """False if no later window has a batch of the partition: perhaps nothing is lost."""


@dataclass(frozen=True, slots=True)
class DamagedWal:
    """A write-ahead log with objects that are missing or cannot be read."""

    layout: WalLayout
    sequences: tuple[int, ...]
    """Of the damaged objects."""
    why: str
    boundary: int
    acknowledged: int
    """The newest sequence that is known to be acknowledged."""
    stakes: tuple[Stake, ...]

    @property
    def objects(self) -> tuple[str, ...]:
        """Return the keys of the damaged objects."""
        return tuple(map(self.layout.key, self.sequences))


@dataclass(frozen=True, slots=True)
class _WalReadings:
    """The readable part of one log."""

    tail: SealedTail
    last: Mapping[PartitionId, int]
    """By partition, the newest sequence with a batch of it."""
    bad: tuple[int, ...]
    why: str
    acknowledged: int


def find_damage(waiting: Sequence[WaitingPartition]) -> Program[list[DamagedWal]]:
    """Return the damaged logs of those that these partitions need.

    Cost: per log a listing and a GET of each object; per partition of a damaged log a refresh.

    Raises:
        DataCorrupt: a partition's own log is damaged, too; repair that first.
        Unavailable: objects vanish during every look; try again.
    """
    logs: dict[WalLayout, _WalReadings] = {}
    for wal in dict.fromkeys(wal for one in waiting for wal in one.wals):
        found = yield from _read(wal)
        if found is not None:
            logs[wal] = found
    damaged = {wal: found for wal, found in logs.items() if found.bad}
    stakes: dict[WalLayout, list[Stake]] = {wal: [] for wal in damaged}
    for one in waiting:
        hurt = [wal for wal in one.wals if wal in damaged]
        if hurt:
            lost = yield from _stakes(one, logs)
            for wal in hurt:
                stakes[wal] += lost
    return [
        DamagedWal(wal, f.bad, f.why, f.tail.sealed.boundary, f.acknowledged, tuple(stakes[wal]))
        for wal, f in damaged.items()
    ]


def _read(wal: WalLayout) -> Program[_WalReadings | None]:
    """Read what can be read of a log; None if a power cut may have taken its objects."""
    for _ in range(LOOKS_MAX):
        sequences = yield from listed(wal)
        objects = yield from read_objects(wal, sequences)
        if objects is not None:
            break
    else:
        raise Unavailable(f"objects vanish while the log is read; try again. wal={wal.folder}")
    whole = [one for one in objects if isinstance(one, WalObject)]
    if not all(one.header.forced for one in whole):
        return None
    boundary = max((one.header.boundary for one in whole), default=0)
    acknowledged = max((one.header.acknowledged for one in whole), default=-1)
    seals = [o.header.sequence for o in whole if o.header.kind is WalKind.SEAL]
    seal = max((s for s in seals if s >= boundary), default=max(sequences, default=0) + 1)
    torn = {one.sequence: str(one.error) for one in objects if isinstance(one, TornWindow)}
    missing = set(range(boundary, acknowledged + 1)) - set(sequences)
    bad = sorted(s for s in {*torn, *missing} if boundary <= s < seal)
    windows = [o for o in whole if boundary <= o.header.sequence < seal]
    last = {
        PartitionId(batch.topic_id, batch.partition): one.header.sequence
        for one in windows
        for batch in one.batches
    }
    tail = SealedTail(wal, Sealed(seal, boundary), by_partition(windows))
    why = torn.get(bad[0], "it is missing") if bad else ""
    return _WalReadings(tail, last, tuple(bad), why, acknowledged)


def _stakes(one: WaitingPartition, logs: Mapping[WalLayout, _WalReadings]) -> Program[list[Stake]]:
    view = yield from refresh(PartitionView(one.layout))
    gaps: list[OffsetRange] = []
    tails = [logs[wal].tail for wal in one.wals if wal in logs]
    batches = recover_batches(tails, view, gaps)
    found = [Stake(one, gap.base_offset, gap.end_offset, end_known=True) for gap in gaps]
    if any(_may_hold_more(logs[wal], one.where) for wal in one.wals if wal in logs):
        end = parse_header(batches[-1].data).end_offset if batches else view.end_offset
        found.append(Stake(one, end, end + 1, end_known=False))
    return found


def _may_hold_more(found: _WalReadings, where: PartitionId) -> bool:
    """Return True if a damaged object comes after all batches of a partition."""
    return bool(found.bad) and found.bad[-1] > found.last.get(where, -1)


def give_up(
    damaged: DamagedWal,
    ranges: Mapping[PartitionId, Collection[OffsetRange]],
    encoding: Encoding,
    nonces: Iterator[str],
) -> Program[None]:
    """Give up the offsets at stake in a log, and put its damaged objects aside (WAL-DAMAGE-1 to 3).

    Args:
        damaged: from `find_damage`.
        ranges: the operator's consent: for each partition all ranges that `find_damage` reported.
            The end of an unknown range is the operator's.
        encoding: of the segments that are written.
        nonces: for new objects.

    Raises:
        InvalidRequest: the ranges are not those at stake. Nothing was changed.
        Unavailable: the log changed meanwhile, or the store failed; verify it again.
    """
    _check_consent(damaged, ranges)
    for one in {stake.waiting.where: stake.waiting for stake in damaged.stakes}.values():
        yield from _settle(one, ranges[one.where], encoding, nonces)
    for sequence in damaged.sequences:
        yield from _replace(damaged, sequence, next(nonces))


def _check_consent(
    damaged: DamagedWal, ranges: Mapping[PartitionId, Collection[OffsetRange]]
) -> None:
    for stake in damaged.stakes:
        ends = [
            one.end_offset
            for one in ranges.get(stake.waiting.where, ())
            if one.base_offset == stake.base_offset
        ]
        wanted = str(stake.end_offset) if stake.end_known else "END"
        if (
            len(ends) != 1
            or ends[0] < stake.end_offset
            or (stake.end_known and ends[0] != stake.end_offset)
        ):
            layout = stake.waiting.layout
            raise InvalidRequest(
                "all offsets at stake in a write-ahead log are given up together; name this range, "
                "too. END is beyond all offsets that a consumer has seen. "
                f"range={layout.topic}:{layout.partition}:{stake.base_offset}-{wanted} "
                f"object={damaged.objects[0]}"
            )


def _settle(
    one: WaitingPartition,
    ranges: Collection[OffsetRange],
    encoding: Encoding,
    nonces: Iterator[str],
) -> Program[None]:
    """Flush all readable batches of a partition, and cover the ranges between and after them."""
    tails: list[SealedTail] = []
    for wal in one.wals:
        found = yield from _read(wal)
        tails += [found.tail] if found is not None else []
    view = yield from refresh(PartitionView(one.layout))
    gaps: list[OffsetRange] = []
    left = list(recover_batches(tails, view, gaps))
    wanted = {given.base_offset: given for given in ranges}
    while left or view.end_offset in wanted:
        if left and left[0].base_offset <= view.end_offset:
            joined = [batch.data for batch in left]
            for at, batch in enumerate(left):
                if at and batch.base_offset in {gap.end_offset for gap in gaps}:
                    joined = joined[:at]
                    break
            draft = build_flush(
                one.layout, joined, next(nonces),
                codec=encoding.codec, level=encoding.level, indexes_keys=encoding.indexes_keys,
            )  # fmt: skip
            view = yield from flush_at(view, draft, one.leader_epoch)
            left = [b for b in left if parse_header(b.data).end_offset > view.end_offset]
        elif view.end_offset in wanted:
            lead = LeadNow(led=True, leader_epoch=view.leader_epoch)
            yield from cover(view, wanted[view.end_offset], lead, encoding, nonces)
            view = yield from refresh(PartitionView(one.layout))
        else:
            raise Unavailable(f"the log changed meanwhile; verify it. object={one.layout.folder}")


def _replace(damaged: DamagedWal, sequence: int, nonce: str) -> Program[None]:
    """Copy a damaged object aside, and have an empty one take its name (WAL-DAMAGE-2)."""
    layout = damaged.layout
    key = layout.key(sequence)
    data = yield from get(key)
    if data is not None:
        yield from create(key + ASIDE_SUFFIX, data)
        yield from delete(key)
    header = WalHeader(WalKind.REGISTRATION, 0, 0, nonce)
    if sequence:
        boundary = min(damaged.boundary, sequence - 1)
        acknowledged = max(boundary, min(damaged.acknowledged, sequence - 1))
        header = WalHeader(WalKind.WINDOW, sequence, boundary, nonce, True, acknowledged)
    if (yield from put(key, encode(layout, header))) is PutOutcome.EXISTS:
        raise Unavailable(f"another process wrote the object; verify it again. object={key}")
