"""Deposing a broker by sealing its write-ahead log, and reading what it left. Pure protocols.

The broker acknowledges in order, so whoever takes the first free name of its log stops it for good.
But a name may be free because it was trimmed away; hence a sealer never believes its own put: only
a look begun when the seal was there, that shows no boundary beyond it, ends the matter.
Any number of sealers may work at once, and all of them find the same seal.

A log that is not forced to the disk may have torn objects, and miss some, once the machine with the
disk has lost its power. A torn one is no mark, and not one whose boundary let names go: these are
forced. So sealing passes over it, and the log's windows end before it. Elsewhere it is damage.
Source: WAL.md 4 and 5. `tests/model/test_wal.py` runs this code through every order of small cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparklog.core.errors import Unavailable
from sparklog.log.effects import Protocol, delete, put
from sparklog.log.layout import WalLayout
from sparklog.log.wal_look import (
    MARK_BYTES_MAX,
    Torn,
    header_of,
    listed,
    read_headers,
    read_newest,
    read_objects,
    sizes_of,
    whole,
)
from sparklog.log.wal_object import BROKERS_KINDS, WalHeader, WalKind, WalObject, encode
from sparklog.store.base import PutOutcome

SEAL_ROUNDS_MAX = 100
"""Rounds lost to a busy broker, or to the weather. Barriers end a race after about ten."""
LOOKS_MAX = 100
"""Looks in a row that objects vanished from. A broker trims once per flush, not once per look."""
BARRIER_DISTANCE_MAX = 1 << 10


@dataclass(frozen=True, slots=True)
class Sealed:
    """Where a log ends for good."""

    sequence: int
    """The seal's. The broker has acknowledged nothing at or above it and never will."""
    boundary: int
    """The highest trim boundary known. Nothing below it matters any more."""
    forced: bool = True
    """Whether the log is one whose windows were all forced to the disk."""


@dataclass(frozen=True, slots=True)
class LogTail:
    """What a sealed log may hold beyond the partitions' own logs."""

    windows: tuple[WalObject, ...]
    broken_at: int | None = None
    """Where a log that is not forced to the disk ends early: the first object that is torn or gone.
    A power cut took it, and records with it; or it was cleared by now, and none were."""


@dataclass(frozen=True, slots=True)
class _Look:
    """What one look at a log showed."""

    boundary: int
    gap: int
    """The first absent name at or above the boundary."""
    seal: int | None
    """The highest seal, if it is at or above the boundary."""
    forced: bool


def seal(layout: WalLayout, nonce: str) -> Protocol[Sealed]:
    """Make sure that the log is sealed, by whomever, and return where.

    Idempotent, and may be abandoned at any point. Two looks and one put when the broker is dead; a
    look is a listing and the footers of the newest window and of small objects from the boundary
    on, each read once.

    Raises:
        Unavailable: lost every round; try again.
        DataCorrupt: an object is damaged.
    """
    known: int | None = None
    headers: dict[int, WalHeader] = {}
    for lost in range(SEAL_ROUNDS_MAX):
        look = yield from _survey(layout, headers)
        if look.seal is not None and look.seal == known:
            return Sealed(look.seal, look.boundary, look.forced)
        known = look.seal
        if known is not None:
            # Its name may have been trimmed and taken by the seal between listing and reading.
            # Only a listing made when the seal was there shows what was acknowledged before it.
            continue
        outcome = yield from _put_mark(layout, WalKind.SEAL, look.gap, look, nonce)
        if outcome is PutOutcome.CREATED:
            known = look.gap
        elif outcome is PutOutcome.EXISTS:
            # The broker lives and was faster, and would be each time if it is busy. A barrier ahead
            # stops it; the next rounds then find a log that no longer moves.
            ahead = look.gap + min(1 << lost, BARRIER_DISTANCE_MAX)
            yield from _put_mark(layout, WalKind.BARRIER, ahead, look, nonce)
    raise Unavailable(
        "the log could not be sealed, it kept growing or the store did not answer; try again. "
        f"wal={layout.folder} rounds={SEAL_ROUNDS_MAX}"
    )


def read_tail(layout: WalLayout, sealed: Sealed) -> Protocol[LogTail]:
    """Return the windows of a sealed log that may hold more than the partitions' own logs.

    Every acknowledged window is returned or its batches were flushed, or a power cut took it or one
    before; so read the ends of the partitions' logs *after* this and leave out what they cover.
    Windows missing before or between those returned were flushed by a faster recovery. Needs the
    memory of the tail, which flushing bounds.

    Raises:
        Unavailable: objects vanished during every look; try again.
        DataCorrupt: an object is damaged.
    """
    for _ in range(LOOKS_MAX):
        sequences = yield from listed(layout)
        wanted = [s for s in sequences if sealed.boundary <= s < sealed.sequence]
        objects = yield from read_objects(layout, wanted)
        if objects is not None:
            return _tail(objects, sealed)
    raise _vanishing(layout)


def read_sealed(layout: WalLayout) -> Protocol[tuple[Sealed, LogTail] | None]:
    """Return where a log ends and what `read_tail` returns; None when no seal is seen.

    Only for a log that is known to be sealed, as are those that metadata names: a seal that `seal`
    has not settled may be one that stopped nobody. Every object is read once: a listing, the footer
    of the newest object and all from its boundary on.

    Raises:
        Unavailable: objects vanished during every look; try again.
        DataCorrupt: an object is damaged.
    """
    for _ in range(LOOKS_MAX):
        sequences = yield from listed(layout)
        newest = yield from read_newest(layout, sequences, {})
        if newest is None:
            continue
        boundary = max((h.boundary for h in whole(newest)), default=0)
        objects = yield from read_objects(layout, [s for s in sequences if s >= boundary])
        if objects is None:
            continue
        look = _judged(sequences, whole([header_of(one) for one in objects]))
        if look.seal is None:
            return None
        sealed = Sealed(look.seal, look.boundary, look.forced)
        return sealed, _tail(objects, sealed)
    raise _vanishing(layout)


def clear(layout: WalLayout, sealed: Sealed) -> Protocol[None]:
    """Delete a sealed log, once all that `read_tail` returned is in the partitions' own logs.

    The seal stays for ever: without it a paused broker would find its next name free.
    """
    for sequence in (yield from listed(layout)):
        if sequence != sealed.sequence:
            yield from delete(layout.key(sequence))


def _survey(layout: WalLayout, known: dict[int, WalHeader]) -> Protocol[_Look]:
    """Look at the log. Headers in `known` are not read again, those read are added.

    What a name held may have been trimmed since, and taken by a late seal. But a name is trimmed
    only below the boundary that a newer object carries, and that one stays: such a seal counts for
    nothing, whatever its name is taken for.
    """
    for _ in range(LOOKS_MAX):
        sizes = yield from sizes_of(layout)
        headers = yield from read_headers(layout, sizes, known)
        if headers is not None:
            return _judged(list(sizes), whole(headers))
    raise _vanishing(layout)


def _judged(sequences: Sequence[int], headers: Sequence[WalHeader]) -> _Look:
    boundary = max((h.boundary for h in headers), default=0)
    # A seal below the boundary took a name that had been trimmed away, and stopped nobody. So did
    # one below another: its name had been cleared away after the other was settled.
    seal_at = max((h.sequence for h in headers if h.kind is WalKind.SEAL), default=-1)
    counts = seal_at >= boundary
    return _Look(
        boundary,
        _first_gap(sequences, boundary),
        seal_at if counts else None,
        all(h.forced for h in headers),
    )


def _first_gap(sequences: Sequence[int], boundary: int) -> int:
    taken = set(sequences)
    gap = boundary
    while gap in taken:
        gap += 1
    return gap


def _tail(objects: Sequence[WalObject | Torn], sealed: Sealed) -> LogTail:
    """Leave out what is below the boundary, and what follows a barrier: none was acknowledged.

    In a log that is not forced to the disk so is what follows an object that is torn or missing: it
    would not join what is before. If all was cleared meanwhile, all is in the partitions' own logs.

    Raises:
        DataCorrupt: an object is torn, in a log whose objects were forced to the disk.
    """
    headers = whole([header_of(one) for one in objects], forced=sealed.forced)
    forced = sealed.forced and all(h.forced for h in headers)
    boundary = max([sealed.boundary, *(h.boundary for h in headers)])
    windows: list[WalObject] = []
    wanted = [o for o in objects if boundary <= header_of(o).sequence < sealed.sequence]
    for expected, one in enumerate(wanted, start=boundary):
        if isinstance(one, Torn) or (not forced and one.header.sequence != expected):
            return LogTail(tuple(windows), expected)
        if one.header.kind not in BROKERS_KINDS:
            break
        if one.header.kind is WalKind.WINDOW:
            windows.append(one)
    return LogTail(tuple(windows))


def _put_mark(
    layout: WalLayout, kind: WalKind, sequence: int, look: _Look, nonce: str
) -> Protocol[PutOutcome]:
    # It carries the boundary on: when all else is cleared away, it must still tell a seal that
    # counts from one that landed on a trimmed name.
    data = encode(layout, WalHeader(kind, sequence, look.boundary, nonce, look.forced))
    assert len(data) <= MARK_BYTES_MAX, len(data)
    return (yield from put(layout.key(sequence), data))


def _vanishing(layout: WalLayout) -> Unavailable:
    return Unavailable(
        "objects of the log vanished during every look at it; is something deleting in a loop? "
        f"Try again. wal={layout.folder} looks={LOOKS_MAX}"
    )
