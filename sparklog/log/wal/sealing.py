"""Seals the write-ahead log of a broker to depose it, and reads the rest. Pure protocols.

The broker acknowledges in order. So a sealer that takes the first free name of its log stops the
broker for good. But a name may be free because it was trimmed. Hence a sealer never relies on its
own put. The log is sealed only when a look that began after the seal existed shows no boundary
beyond it. Any number of sealers may work at once, and all of them find the same seal.

After a power cut, a log that is not forced to the disk may have torn or missing objects. A torn
object is neither a mark nor one whose boundary allowed deletions, because the writer forces those.
So sealing skips it, and the log's windows end before it. In a forced log it is damage.

Each window says up to which sequence the broker had acknowledged. An object from the boundary up to
there that is missing in a forced log is damage (`missing_object`), not the end of the log. A sealer
takes a name above it, so that the object can be put back.

The broker may write and trim a log while it is read. A function that reads returns None if a listed
object has vanished: list again. It returns a `TornWindow` for an object that cannot be read.
`whole` decides if the log may have such objects.

Source: WAL.md 2, 4 and 5. `tests/model/test_wal.py` runs this code through every order of small
cases.
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
    UNKNOWN_SEQUENCE,
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
"""A larger object is a window, so its kind need not be read. A smaller one may also be a window:
older versions wrote small ones."""
FOOTERS_READ_AT_ONCE = 64
MARKS_READ_AHEAD = 16
"""Small objects that are read together with the newest one, before its boundary is known."""
OBJECTS_READ_AT_ONCE = 48
"""Whole objects. The result keeps their content, so reading many at once costs no more memory."""

Read = TypeVar("Read", WalHeader, WalObject)


@dataclass(frozen=True, slots=True)
class TornWindow:
    """An object that cannot be read: damage, unless its log was not forced to the disk."""

    sequence: int
    error: DataCorrupt


def whole(headers: Sequence[WalHeader | TornWindow], *, forced: bool = True) -> list[WalHeader]:
    """Return the headers that could be read, if the log may have torn objects or has none.

    Any header may say that the log was not forced to the disk.

    Args:
        headers: of one log.
        forced: False if the caller knows that the log was not forced to the disk.

    Raises:
        DataCorrupt: an object cannot be read, in a log whose objects were forced to the disk.
    """
    found = [one for one in headers if isinstance(one, WalHeader)]
    torn = [one for one in headers if isinstance(one, TornWindow)]
    if torn and forced and all(one.forced for one in found):
        raise torn[0].error
    return found


def _sequence(one: WalObject | TornWindow) -> int:
    return one.header.sequence if isinstance(one, WalObject) else one.sequence


def header_of(one: WalObject | TornWindow) -> WalHeader | TornWindow:
    """Return the header of an object that could be read."""
    return one.header if isinstance(one, WalObject) else one


def listed(layout: WalLayout) -> Program[list[int]]:
    """Return the existing sequences, ascending."""
    return list((yield from sizes_of(layout)))


def sizes_of(layout: WalLayout) -> Program[dict[int, int]]:
    """Return the sizes of the existing objects by their sequences, which ascend."""
    infos = yield from list_after(layout.folder, "")
    found = [(layout.sequence(info.key), info.size_bytes) for info in infos]
    return dict(sorted((s, size_bytes) for s, size_bytes in found if s is not None))


def read_headers(
    layout: WalLayout, sizes: Mapping[int, int], known: dict[int, WalHeader]
) -> Program[list[WalHeader | TornWindow] | None]:
    """Return the headers that are needed to judge the log; None if one of them has vanished.

    A boundary is valid in any object, so no object below the newest one's boundary need be read.
    Boundaries of windows never fall. So of the objects too large for a mark, only the newest is
    read.
    """
    marks = [s for s, size in sizes.items() if size <= MARK_BYTES_MAX][-MARKS_READ_AHEAD:]
    if (yield from _read_unknown(layout, [*marks, *list(sizes)[-1:]], known)) is None:
        return None
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
    """Return the newest header; if it is torn, also older ones down to a readable header."""
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
    """Return headers, and add those that it reads to `known`. None if one has vanished."""
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
    layout: WalLayout, sequences: Sequence[int], known: Mapping[int, WalObject] | None = None
) -> Program[list[WalObject | TornWindow] | None]:
    """Return whole objects, in the order of `sequences`; None if one of them has vanished.

    It reads none of those in `known`, which has objects by their sequences.
    """
    objects: dict[int, WalObject | TornWindow] = dict(known or {})
    unread = [s for s in sequences if s not in objects]
    for at in range(0, len(unread), OBJECTS_READ_AT_ONCE):
        some = unread[at : at + OBJECTS_READ_AT_ONCE]
        found = yield from get_many(tuple(Range(layout.key(s)) for s in some))
        for sequence, data in zip(some, found, strict=True):
            if data is None:
                return None
            objects[sequence] = _decoded(decode, data, layout, sequence)
    return [objects[s] for s in sequences]


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
"""Rounds lost to a busy broker, or to store errors. Barriers end a race after about ten."""
HOLE_LOOKS = 3
"""Looks in a row that must miss an object. A listing may show a window and miss one that was
written before it while the listing ran; a listing that begins later shows both."""
LOOKS_MAX = 100
"""Looks in a row during which objects vanished. A broker trims once per flush, not per look."""
BARRIER_DISTANCE_MAX = 1 << 10


@dataclass(frozen=True, slots=True)
class Sealed:
    """The final end of a log."""

    sequence: int
    """The seal's. The broker has acknowledged no object at or above it and never will."""
    boundary: int
    """The highest known trim boundary. Objects below it no longer matter."""
    forced: bool = True
    """True if all windows of the log were forced to the disk."""


@dataclass(frozen=True, slots=True)
class LogTail:
    """Windows that a sealed log may have beyond the partitions' own logs."""

    windows: tuple[WalObject, ...]
    broken_at: int | None = None
    """Sequence of the first torn or missing object, where an unforced log ends early. Either a
    power cut took it, with its records; or a recovery cleared the log, and no record is lost."""


@dataclass(frozen=True, slots=True)
class _Look:
    """The result of one look at a log."""

    boundary: int
    gap: int
    """The first absent name at or above the boundary, and above each acknowledged sequence."""
    seal: int | None
    """The highest seal, if it is at or above the boundary."""
    forced: bool


def seal(layout: WalLayout, nonce: str) -> Program[Sealed]:
    """Seal the log, unless another sealer has sealed it; return its end.

    Idempotent, and may be abandoned at any point. For a dead broker it costs two looks and one put.
    A look is a listing, and the footers of the newest window and of small objects from the boundary
    on. Each footer is read once.

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
            # Between listing and reading, its name may have been trimmed and taken by the seal.
            # Only a listing made after the seal existed shows all windows acknowledged before it.
            continue
        mark, outcome = yield from _put_mark(layout, WalKind.SEAL, look.gap, look, nonce)
        if outcome is PutOutcome.CREATED:
            known = look.gap
            headers[known] = mark  # as if it were read now
        elif outcome is PutOutcome.EXISTS:
            # The broker is alive and was faster; a busy broker would win every time. A barrier
            # ahead stops it. The next rounds then find a log that no longer grows.
            ahead = look.gap + min(1 << lost, BARRIER_DISTANCE_MAX)
            yield from _put_mark(layout, WalKind.BARRIER, ahead, look, nonce)
    raise Unavailable(
        "the log could not be sealed, it kept growing or the store did not answer; try again. "
        f"wal={layout.folder} rounds={SEAL_ROUNDS_MAX}"
    )


def read_tail(layout: WalLayout, sealed: Sealed) -> Program[LogTail]:
    """Return the windows of a sealed log that may have more than the partitions' own logs.

    The result has every acknowledged window, with two exceptions. Its batches were flushed, or a
    power cut took it or one before it. So read the ends of the partitions' logs *after* this call,
    and ignore batches that they cover. If windows are missing before or between those in the
    result, a faster recovery has flushed them. Memory: the tail, which flushes bound.

    Raises:
        Unavailable: objects vanished during every look; try again.
        DataCorrupt: an object is damaged.
    """
    holes = 0
    for _ in range(LOOKS_MAX):
        sequences = yield from listed(layout)
        wanted = [s for s in sequences if s >= sealed.boundary]
        objects = yield from read_objects(layout, wanted)
        if objects is None:
            continue
        headers = whole([header_of(one) for one in objects], forced=sealed.forced)
        missing = missing_object(layout, sequences, headers) if sealed.forced else None
        if missing is None:
            return _tail([one for one in objects if _sequence(one) < sealed.sequence], sealed)
        holes += 1
        if holes == HOLE_LOOKS:
            raise missing
    raise _vanishing(layout)


def read_sealed(
    layout: WalLayout, known: Mapping[int, WalObject] | None = None
) -> Program[tuple[Sealed, LogTail] | None]:
    """Return the end of a log and the result of `read_tail`; None if no seal is visible.

    Use it only for a log that is known to be sealed, as are those that the metadata names. A seal
    that `seal` has not confirmed may not have stopped the broker. Cost: a listing, the footer of
    the newest object, and all objects from its boundary on, each read once.

    The first look reads none of the objects in `known`, which may have been read before the log was
    sealed. They may be trimmed by now, for which the same holds as for headers in `_survey`. If the
    first look fails, for example as the log was cleared, the next ones read all objects again.

    Raises:
        Unavailable: objects vanished during every look; try again.
        DataCorrupt: an object is damaged.
    """
    holes = 0
    for look_number in range(LOOKS_MAX):
        early = known if look_number == 0 else None
        sequences = yield from listed(layout)
        boundary = 0
        if len(sequences) > OBJECTS_READ_AT_ONCE:  # else one round reads them all
            newest = yield from read_newest(layout, sequences, {})
            if newest is None:
                continue
            boundary = max((h.boundary for h in whole(newest)), default=0)
        objects = yield from read_objects(layout, [s for s in sequences if s >= boundary], early)
        if objects is None:
            continue
        found = [header_of(one) for one in objects]
        boundary = max((h.boundary for h in found if isinstance(h, WalHeader)), default=boundary)
        objects = [one for one in objects if _sequence(one) >= boundary]
        headers = whole([header_of(one) for one in objects])
        look = _judged(sequences, headers)
        if look.seal is None:
            return None
        missing = missing_object(layout, sequences, headers)
        if missing is not None:
            holes += 1
            if holes == HOLE_LOOKS:
                raise missing
            continue
        sealed = Sealed(look.seal, look.boundary, look.forced)
        return sealed, _tail(objects, sealed)
    raise _vanishing(layout)


def clear(layout: WalLayout, sealed: Sealed) -> Program[None]:
    """Delete a sealed log, after all batches of `read_tail` are in the partitions' own logs.

    The seal stays for ever: without it a paused broker would find its next name free. The newest
    object goes first, so that none of those that are left shows a missing one before it.
    """
    for sequence in reversed((yield from listed(layout))):
        if sequence != sealed.sequence:
            yield from delete(layout.key(sequence))


def _survey(layout: WalLayout, known: dict[int, WalHeader]) -> Program[_Look]:
    """Look at the log. It adds the headers that it reads to `known`, and reads none of those again.

    The object of a known header may have been trimmed since, and a late seal may have its name. But
    a name is trimmed only below the boundary of a newer object, and that object stays. So such a
    seal has no effect, even if this function takes it for the old object.
    """
    for _ in range(LOOKS_MAX):
        sizes = yield from sizes_of(layout)
        headers = yield from read_headers(layout, sizes, known)
        if headers is not None:
            return _judged(list(sizes), whole(headers))
    raise _vanishing(layout)


def _judged(sequences: Sequence[int], headers: Sequence[WalHeader]) -> _Look:
    boundary = max((h.boundary for h in headers), default=0)
    # A seal below the boundary took a trimmed name, and did not stop the broker. The same holds for
    # a seal below another one: its name was cleared after the other was confirmed.
    seal_at = max((h.sequence for h in headers if h.kind is WalKind.SEAL), default=-1)
    counts = seal_at >= boundary
    return _Look(
        boundary,
        _first_gap(sequences, max(boundary, _acknowledged(headers) + 1)),
        seal_at if counts else None,
        all(h.forced for h in headers),
    )


def _acknowledged(headers: Sequence[WalHeader]) -> int:
    """Return the highest sequence that some window shows to be acknowledged, or -1."""
    return max((h.acknowledged for h in headers), default=UNKNOWN_SEQUENCE)


def missing_object(
    layout: WalLayout, sequences: Sequence[int], headers: Sequence[WalHeader]
) -> DataCorrupt | None:
    """Return the error of the first acknowledged object that is missing, or None.

    Args:
        layout: of the log.
        sequences: of the objects that a listing showed.
        headers: of the objects from the boundary on. In a log that is not forced to the disk, a
            power cut may have taken objects.
    """
    if not all(one.forced for one in headers):
        return None
    boundary = max((one.boundary for one in headers), default=0)
    missing = _first_gap(sequences, boundary)
    acknowledged = _acknowledged(headers)
    if missing > acknowledged:
        return None
    return DataCorrupt(
        "an object of a write-ahead log is missing, and records that producers were acknowledged "
        "are in it: put it back, for example from an older version in the bucket. "
        f"object={layout.key(missing)} acknowledged_up_to={layout.key(acknowledged)}"
    )


def _first_gap(sequences: Sequence[int], boundary: int) -> int:
    taken = set(sequences)
    gap = boundary
    while gap in taken:
        gap += 1
    return gap


def _tail(objects: Sequence[WalObject | TornWindow], sealed: Sealed) -> LogTail:
    """Return the windows from the boundary up to a barrier: none after a barrier was acknowledged.

    In a log that is not forced, they also end at a torn or missing object: later ones would not
    join those before. If the log was cleared meanwhile, the partitions' own logs have all records.

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
) -> Program[tuple[WalHeader, PutOutcome]]:
    # The mark repeats the boundary. After all other objects are cleared, the boundary must still
    # distinguish a valid seal from one that took a trimmed name.
    mark = WalHeader(kind, sequence, look.boundary, nonce, look.forced)
    data = encode(layout, mark)
    assert len(data) <= MARK_BYTES_MAX, len(data)
    return mark, (yield from put(layout.key(sequence), data))


def _vanishing(layout: WalLayout) -> Unavailable:
    return Unavailable(
        "objects of the log vanished during every look at it; is something deleting in a loop? "
        f"Try again. wal={layout.folder} looks={LOOKS_MAX}"
    )
