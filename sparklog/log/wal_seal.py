"""Deposing a broker by sealing its write-ahead log, and reading what it left. Pure protocols.

The broker acknowledges in order, so whoever takes the first free name of its log stops it for good.
But a name may be free because it was trimmed away; hence a sealer never believes its own put: only
a look begun when the seal was there, that shows no boundary beyond it, ends the matter.
Any number of sealers may work at once, and all of them find the same seal.
Source: WAL.md 4 and 5. `tests/model/test_wal.py` runs this code through every order of small cases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparklog.core.errors import Unavailable
from sparklog.log.effects import Protocol, Range, delete, get_many, list_after, put
from sparklog.log.layout import WalLayout
from sparklog.log.wal_object import (
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

SEAL_ROUNDS_MAX = 100
"""Rounds lost to a busy broker, or to the weather. Barriers end a race after about ten."""
LOOKS_MAX = 100
"""Looks in a row that objects vanished from. A broker trims once per flush, not once per look."""
BARRIER_DISTANCE_MAX = 1 << 10
MARK_BYTES_MAX = WINDOW_BYTES_MIN - 1
"""What is larger is a window, whose kind need not be read. What is not may be one as well: older
versions wrote small ones."""
FOOTERS_READ_AT_ONCE = 64
OBJECTS_READ_AT_ONCE = 32
"""Whole objects. What they hold is kept anyway, so reading many at once costs no more memory."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """Where a log ends for good."""

    sequence: int
    """The seal's. The broker has acknowledged nothing at or above it and never will."""
    boundary: int
    """The highest trim boundary known. Nothing below it matters any more."""


@dataclass(frozen=True, slots=True)
class _Look:
    """What one look at a log showed."""

    boundary: int
    gap: int
    """The first absent name at or above the boundary."""
    seal: int | None
    """The highest seal, if it is at or above the boundary."""


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
            return Sealed(look.seal, look.boundary)
        known = look.seal
        if known is not None:
            # Its name may have been trimmed and taken by the seal between listing and reading.
            # Only a listing made when the seal was there shows what was acknowledged before it.
            continue
        outcome = yield from _put_mark(layout, WalKind.SEAL, look.gap, look.boundary, nonce)
        if outcome is PutOutcome.CREATED:
            known = look.gap
        elif outcome is PutOutcome.EXISTS:
            # The broker lives and was faster, and would be each time if it is busy. A barrier ahead
            # stops it; the next rounds then find a log that no longer moves.
            ahead = look.gap + min(1 << lost, BARRIER_DISTANCE_MAX)
            yield from _put_mark(layout, WalKind.BARRIER, ahead, look.boundary, nonce)
    raise Unavailable(
        "the log could not be sealed, it kept growing or the store did not answer; try again. "
        f"wal={layout.folder} rounds={SEAL_ROUNDS_MAX}"
    )


def read_tail(layout: WalLayout, sealed: Sealed) -> Protocol[tuple[WalObject, ...]]:
    """Return the windows of a sealed log that may hold more than the partitions' own logs.

    Every acknowledged window is returned or its batches were flushed, so read the ends of the
    partitions' logs *after* this and leave out what they cover. Windows missing before or between
    those returned were flushed by a faster recovery. Needs the memory of the tail, which flushing
    bounds.

    Raises:
        Unavailable: objects vanished during every look; try again.
        DataCorrupt: an object is damaged.
    """
    for _ in range(LOOKS_MAX):
        listed = yield from _listed(layout)
        wanted = [s for s in listed if sealed.boundary <= s < sealed.sequence]
        objects = yield from _read_objects(layout, wanted)
        if objects is not None:
            return _windows(objects)
    raise _vanishing(layout)


def read_sealed(layout: WalLayout) -> Protocol[tuple[Sealed, tuple[WalObject, ...]] | None]:
    """Return where a log ends and what `read_tail` returns; None when no seal is seen.

    Only for a log that is known to be sealed, as are those that metadata names: a seal that `seal`
    has not settled may be one that stopped nobody. Every object is read once: a listing, the footer
    of the newest object and all from its boundary on.

    Raises:
        Unavailable: objects vanished during every look; try again.
        DataCorrupt: an object is damaged.
    """
    for _ in range(LOOKS_MAX):
        sequences = yield from _listed(layout)
        newest = yield from _footers(layout, sequences[-1:])
        if newest is None:
            continue
        boundary = newest[0].boundary if newest else 0
        objects = yield from _read_objects(layout, [s for s in sequences if s >= boundary])
        if objects is None:
            continue
        look = _judged(sequences, [one.header for one in objects])
        if look.seal is None:
            return None
        sealed = Sealed(look.seal, look.boundary)
        return sealed, _windows([o for o in objects if o.header.sequence < sealed.sequence])
    raise _vanishing(layout)


def clear(layout: WalLayout, sealed: Sealed) -> Protocol[None]:
    """Delete a sealed log, once all that `read_tail` returned is in the partitions' own logs.

    The seal stays for ever: without it a paused broker would find its next name free.
    """
    for sequence in (yield from _listed(layout)):
        if sequence != sealed.sequence:
            yield from delete(layout.key(sequence))


def _survey(layout: WalLayout, known: dict[int, WalHeader]) -> Protocol[_Look]:
    """Look at the log. Headers in `known` are not read again, those read are added.

    What a name held may have been trimmed since, and taken by a late seal. But a name is trimmed
    only below the boundary that a newer object carries, and that one stays: such a seal counts for
    nothing, whatever its name is taken for.
    """
    for _ in range(LOOKS_MAX):
        sizes = yield from _sizes(layout)
        headers = yield from _read_headers(layout, sizes, known)
        if headers is not None:
            return _judged(list(sizes), headers)
    raise _vanishing(layout)


def _judged(sequences: Sequence[int], headers: Sequence[WalHeader]) -> _Look:
    boundary = max((h.boundary for h in headers), default=0)
    # A seal below the boundary took a name that had been trimmed away, and stopped nobody. So did
    # one below another: its name had been cleared away after the other was settled.
    seal_at = max((h.sequence for h in headers if h.kind is WalKind.SEAL), default=-1)
    counts = seal_at >= boundary
    return _Look(boundary, _first_gap(sequences, boundary), seal_at if counts else None)


def _first_gap(sequences: Sequence[int], boundary: int) -> int:
    taken = set(sequences)
    gap = boundary
    while gap in taken:
        gap += 1
    return gap


def _windows(objects: Sequence[WalObject]) -> tuple[WalObject, ...]:
    """Leave out what is below the boundary, and what follows a barrier: none was acknowledged."""
    boundary = max((o.header.boundary for o in objects), default=0)
    windows: list[WalObject] = []
    for one in objects:
        if one.header.sequence < boundary:
            continue
        if one.header.kind not in BROKERS_KINDS:
            break
        if one.header.kind is WalKind.WINDOW:
            windows.append(one)
    return tuple(windows)


def _put_mark(
    layout: WalLayout, kind: WalKind, sequence: int, boundary: int, nonce: str
) -> Protocol[PutOutcome]:
    # It carries the boundary on: when all else is cleared away, it must still tell a seal that
    # counts from one that landed on a trimmed name.
    data = encode(layout, WalHeader(kind, sequence, boundary, nonce))
    assert len(data) <= MARK_BYTES_MAX, len(data)
    return (yield from put(layout.key(sequence), data))


def _listed(layout: WalLayout) -> Protocol[list[int]]:
    """Return the sequences there are, ascending."""
    return list((yield from _sizes(layout)))


def _sizes(layout: WalLayout) -> Protocol[dict[int, int]]:
    """Return the sizes of the objects there are by their sequences, which ascend."""
    infos = yield from list_after(layout.folder, "")
    found = [(layout.sequence(info.key), info.size_bytes) for info in infos]
    return dict(sorted((s, size_bytes) for s, size_bytes in found if s is not None))


def _read_headers(
    layout: WalLayout, sizes: Mapping[int, int], known: dict[int, WalHeader]
) -> Protocol[list[WalHeader] | None]:
    """Return the headers that tell all there is to know; None if one of them has vanished.

    Boundaries are true whoever carries them, so nothing below the newest object's need be read.
    Windows' never fall, so of those that are too large for a mark only the newest need be.
    """
    newest = list(sizes)[-1:]
    windows = [s for s, size_bytes in sizes.items() if size_bytes > MARK_BYTES_MAX]
    small = [s for s, size_bytes in sizes.items() if size_bytes <= MARK_BYTES_MAX]
    boundary = 0
    for wanted in (newest, [*small, *windows[-1:]]):
        unread = [s for s in wanted if s >= boundary and s not in known]
        some = yield from _footers(layout, unread)
        if some is None:
            return None
        known.update(zip(unread, some, strict=True))
        boundary = known[newest[0]].boundary if newest else 0
    return [known[s] for s in sizes if s in known]


def _footers(layout: WalLayout, sequences: Sequence[int]) -> Protocol[list[WalHeader] | None]:
    headers: list[WalHeader] = []
    for at in range(0, len(sequences), FOOTERS_READ_AT_ONCE):
        some = sequences[at : at + FOOTERS_READ_AT_ONCE]
        tails = yield from get_many(tuple(Range(layout.key(s), -FOOTER_READ_BYTES) for s in some))
        for sequence, tail in zip(some, tails, strict=True):
            if tail is None:
                return None
            headers.append(decode_header(tail, layout, sequence))
    return headers


def _read_objects(layout: WalLayout, sequences: Sequence[int]) -> Protocol[list[WalObject] | None]:
    objects: list[WalObject] = []
    for at in range(0, len(sequences), OBJECTS_READ_AT_ONCE):
        some = sequences[at : at + OBJECTS_READ_AT_ONCE]
        found = yield from get_many(tuple(Range(layout.key(s)) for s in some))
        for sequence, data in zip(some, found, strict=True):
            if data is None:
                return None
            objects.append(decode(data, layout, sequence))
    return objects


def _vanishing(layout: WalLayout) -> Unavailable:
    return Unavailable(
        "objects of the log vanished during every look at it; is something deleting in a loop? "
        f"Try again. wal={layout.folder} looks={LOOKS_MAX}"
    )
