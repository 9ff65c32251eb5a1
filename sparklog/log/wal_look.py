"""Reading a write-ahead log that may be written and trimmed meanwhile. Pure protocols.

Everything here answers None if an object that was listed has vanished: list again. What cannot be
read comes back as `Torn`; `whole` says whether the log may have such. Source: WAL.md 2 and 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sparklog.core.errors import DataCorrupt
from sparklog.log.effects import Protocol, Range, get_many, list_after
from sparklog.log.layout import WalLayout
from sparklog.log.wal_object import (
    FOOTER_READ_BYTES,
    WINDOW_BYTES_MIN,
    WalHeader,
    WalObject,
    decode,
    decode_header,
)

MARK_BYTES_MAX = WINDOW_BYTES_MIN - 1
"""What is larger is a window, whose kind need not be read. What is not may be one as well: older
versions wrote small ones."""
FOOTERS_READ_AT_ONCE = 64
OBJECTS_READ_AT_ONCE = 32
"""Whole objects. What they hold is kept anyway, so reading many at once costs no more memory."""

Read = TypeVar("Read", WalHeader, WalObject)


@dataclass(frozen=True, slots=True)
class Torn:
    """An object that cannot be read: damage, unless its log was not forced to the disk."""

    sequence: int
    error: DataCorrupt


def whole(headers: Sequence[WalHeader | Torn], *, forced: bool = True) -> list[WalHeader]:
    """Return the headers that could be read; any of them may say that others may be torn.

    Args:
        headers: of one log.
        forced: whether nothing else is known to say so.

    Raises:
        DataCorrupt: an object cannot be read, in a log whose objects were forced to the disk.
    """
    found = [one for one in headers if isinstance(one, WalHeader)]
    torn = [one for one in headers if isinstance(one, Torn)]
    if torn and forced and all(one.forced for one in found):
        raise torn[0].error
    return found


def header_of(one: WalObject | Torn) -> WalHeader | Torn:
    """Return the header of an object that could be read."""
    return one.header if isinstance(one, WalObject) else one


def listed(layout: WalLayout) -> Protocol[list[int]]:
    """Return the sequences there are, ascending."""
    return list((yield from sizes_of(layout)))


def sizes_of(layout: WalLayout) -> Protocol[dict[int, int]]:
    """Return the sizes of the objects there are by their sequences, which ascend."""
    infos = yield from list_after(layout.folder, "")
    found = [(layout.sequence(info.key), info.size_bytes) for info in infos]
    return dict(sorted((s, size_bytes) for s, size_bytes in found if s is not None))


def read_headers(
    layout: WalLayout, sizes: Mapping[int, int], known: dict[int, WalHeader]
) -> Protocol[list[WalHeader | Torn] | None]:
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
    torn = {one.sequence: one for one in found if isinstance(one, Torn)}
    return [*torn.values(), *(known[s] for s in sizes if s in known)]


def read_newest(
    layout: WalLayout, sequences: Sequence[int], known: dict[int, WalHeader]
) -> Protocol[list[WalHeader | Torn] | None]:
    """Return the newest header, or the newest that can be read and those that cannot be."""
    found: list[WalHeader | Torn] = []
    end, step = len(sequences), 1
    while end > 0 and all(isinstance(one, Torn) for one in found):
        some = yield from _read_unknown(layout, sequences[max(0, end - step) : end], known)
        if some is None:
            return None
        found += some
        end, step = end - step, FOOTERS_READ_AT_ONCE
    return found


def _read_unknown(
    layout: WalLayout, sequences: Sequence[int], known: dict[int, WalHeader]
) -> Protocol[list[WalHeader | Torn] | None]:
    """Return headers; those that were read are added to `known`. None if one has vanished."""
    unread = [s for s in sequences if s not in known]
    found: list[WalHeader | Torn] = [known[s] for s in sequences if s in known]
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
) -> Protocol[list[WalObject | Torn] | None]:
    """Return whole objects, in the order of `sequences`; None if one of them has vanished."""
    objects: list[WalObject | Torn] = []
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
) -> Read | Torn:
    try:
        return decode_as(data, layout, sequence)
    except DataCorrupt as error:
        return Torn(sequence, error)
