"""Deposing a broker by sealing its write-ahead log, and reading what it left. Pure protocols.

The broker acknowledges in order, so whoever takes the first free name of its log stops it for good.
But a name may be free because it was trimmed away; hence a sealer never believes its own put: only
a look begun when the seal was there, that shows no boundary beyond it, ends the matter.
Any number of sealers may work at once, and all of them find the same seal.

A log that is not forced to the disk may have torn objects, and miss some, once the machine with the
disk has lost its power. A torn one is no mark, and not one whose boundary let names go: these are
forced. So sealing passes over it, and the log's windows end before it. Elsewhere it is damage.
Source: WAL.md 4 and 5. `tests/model/test_wal.py` runs this code through every order of small cases.

Reading a write-ahead log that may be written and trimmed meanwhile. Pure protocols.

Everything here answers None if an object that was listed has vanished: list again. What cannot be
read comes back as `TornWindow`; `whole` says whether the log may have such. Source: WAL.md 2 and 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sparklog.core.errors import DataCorrupt, Unavailable
from sparklog.log.effects import Program, Range, delete, get_many, list_after, put
from sparklog.log.layout import WalLayout
from sparklog.log.wal.objects import (
    BROKERS_KINDS,
    FOOTER_READ_BYTES,
    WINDOW_BYTES_MIN,
    WalHeader,
    WalKind,
    WalObject,
    decode,
    decode_header,
    encode,
)
from sparklog.store.base import PutOutcome

MARK_BYTES_MAX = WINDOW_BYTES_MIN - 1
"""What is larger is a window, whose kind need not be read. What is not may be one as well: older
versions wrote small ones."""
FOOTERS_READ_AT_ONCE = 64
OBJECTS_READ_AT_ONCE = 32
"""Whole objects. What they hold is kept anyway, so reading many at once costs no more memory."""

Read = TypeVar("Read", WalHeader, WalObject)


@dataclass(frozen=True, slots=True)
class TornWindow:
    """An object that cannot be read: damage, unless its log was not forced to the disk."""

    sequence: int
    error: DataCorrupt


def whole(headers: Sequence[WalHeader | TornWindow], *, forced: bool = True) -> list[WalHeader]:
    """Return the headers that could be read; any of them may say that others may be torn.

    Args:
        headers: of one log.
        forced: whether nothing else is known to say so.

    Raises:
        DataCorrupt: an object cannot be read, in a log whose objects were forced to the disk.
    """
    found = [one for one in headers if isinstance(one, WalHeader)]
    torn = [one for one in headers if isinstance(one, TornWindow)]
    if torn and forced and all(one.forced for one in found):
        raise torn[0].error
    return found


def header_of(one: WalObject | TornWindow) -> WalHeader | TornWindow:
    """Return the header of an object that could be read."""
    return one.header if isinstance(one, WalObject) else one


def listed(layout: WalLayout) -> Program[list[int]]:
    """Return the sequences there are, ascending."""
    return list((yield from sizes_of(layout)))


def sizes_of(layout: WalLayout) -> Program[dict[int, int]]:
    """Return the sizes of the objects there are by their sequences, which ascend."""
    infos = yield from list_after(layout.folder, "")
    found = [(layout.sequence(info.key), info.size_bytes) for info in infos]
    return dict(sorted((s, size_bytes) for s, size_bytes in found if s is not None))


def read_headers(
    layout: WalLayout, sizes: Mapping[int, int], known: dict[int, WalHeader]
) -> Program[list[WalHeader | TornWindow] | None]:
    """Return the headers that tell all there is to know; None if one of them has vanished.

    Boundaries are true whoever carries them, so nothing below the newest object's need be read.
    Windows' never fall, so of those that are too large for a mark only the newest need be.
    """
    newest = yield from read_newest(layout, list(sizes), known)
    if newest is None:
        return None
    boundary = max((h.boundary for h in newest if isinstance(h, WalHeader)), default=0)
    windows = [s for s, size in sizes.items() if size > MARK_BYTES_MAX and s >= boundary]
    small = [s for s, size in sizes.items() if size <= MARK_BYTES_MAX and s >= boundary]
    some = yield from _read_unknown(layout, [*small, *windows[-1:]], known)
    if some is None:
        return None
    found = [*newest, *some]
    if windows and windows[-1] not in known:
        older = yield from read_newest(layout, windows[:-1], known)
        if older is None:
            return None
        found += older
    torn = {one.sequence: one for one in found if isinstance(one, TornWindow)}
    return [*torn.values(), *(known[s] for s in sizes if s in known)]


def read_newest(
    layout: WalLayout, sequences: Sequence[int], known: dict[int, WalHeader]
) -> Program[list[WalHeader | TornWindow] | None]:
    """Return the newest header, or the newest that can be read and those that cannot be."""
    found: list[WalHeader | TornWindow] = []
    end, step = len(sequences), 1
    while end > 0 and all(isinstance(one, TornWindow) for one in found):
        some = yield from _read_unknown(layout, sequences[max(0, end - step) : end], known)
        if some is None:
            return None
        found += some
        end, step = end - step, FOOTERS_READ_AT_ONCE
    return found


def _read_unknown(
    layout: WalLayout, sequences: Sequence[int], known: dict[int, WalHeader]
) -> Program[list[WalHeader | TornWindow] | None]:
    """Return headers; those that were read are added to `known`. None if one has vanished."""
    unread = [s for s in sequences if s not in known]
    found: list[WalHeader | TornWindow] = [known[s] for s in sequences if s in known]
    for at in range(0, len(unread), FOOTERS_READ_AT_ONCE):
        some = unread[at : at + FOOTERS_READ_AT_ONCE]
        wanted = tuple(Range(layout.key(s), -FOOTER_READ_BYTES) for s in some)
        for sequence, tail in zip(some, (yield from get_many(wanted)), strict=True):
            if tail is None:
                return None
            header = _decoded(decode_header, tail, layout, sequence)
            found.append(header)
            if isinstance(header, WalHeader):
                known[sequence] = header
    return found


def read_objects(
    layout: WalLayout, sequences: Sequence[int]
) -> Program[list[WalObject | TornWindow] | None]:
    """Return whole objects, in the order of `sequences`; None if one of them has vanished."""
    objects: list[WalObject | TornWindow] = []
    for at in range(0, len(sequences), OBJECTS_READ_AT_ONCE):
        some = sequences[at : at + OBJECTS_READ_AT_ONCE]
        found = yield from get_many(tuple(Range(layout.key(s)) for s in some))
        for sequence, data in zip(some, found, strict=True):
            if data is None:
                return None
            objects.append(_decoded(decode, data, layout, sequence))
    return objects


def _decoded(
    decode_as: Callable[[bytes, WalLayout, int], Read],
    data: bytes,
    layout: WalLayout,
    sequence: int,
) -> Read | TornWindow:
    try:
        return decode_as(data, layout, sequence)
    except DataCorrupt as error:
        return TornWindow(sequence, error)


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


def seal(layout: WalLayout, nonce: str) -> Program[Sealed]:
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


def read_tail(layout: WalLayout, sealed: Sealed) -> Program[LogTail]:
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


def read_sealed(layout: WalLayout) -> Program[tuple[Sealed, LogTail] | None]:
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


def clear(layout: WalLayout, sealed: Sealed) -> Program[None]:
    """Delete a sealed log, once all that `read_tail` returned is in the partitions' own logs.

    The seal stays for ever: without it a paused broker would find its next name free.
    """
    for sequence in (yield from listed(layout)):
        if sequence != sealed.sequence:
            yield from delete(layout.key(sequence))


def _survey(layout: WalLayout, known: dict[int, WalHeader]) -> Program[_Look]:
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


def _tail(objects: Sequence[WalObject | TornWindow], sealed: Sealed) -> LogTail:
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
        if isinstance(one, TornWindow) or (not forced and one.header.sequence != expected):
            return LogTail(tuple(windows), expected)
        if one.header.kind not in BROKERS_KINDS:
            break
        if one.header.kind is WalKind.WINDOW:
            windows.append(one)
    return LogTail(tuple(windows))


def _put_mark(
    layout: WalLayout, kind: WalKind, sequence: int, look: _Look, nonce: str
) -> Program[PutOutcome]:
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
