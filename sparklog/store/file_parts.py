"""The bytes of a file, read and written in parts, so that others get at the disk in between.

A broker forces a small object to the disk before it acknowledges records, and waits for all that is
on its way there already. Sizes are bytes.
"""

from __future__ import annotations

import os
from functools import partial

from sparklog.core.clock import Clock
from sparklog.store.base import Data
from sparklog.store.making_way import Turns
from sparklog.store.pacing import is_paced, part_written

FORCED_AT_ONCE_BYTES = 2 << 20
"""A part of a large object, such as a segment that a broker flushes: on a journalling file system
whoever forces a small object waits for what is there of large ones, too."""
GENTLE_WRITE_BYTES = 256 * 1024
"""The same for who makes way or goes at a pace: who is behind it waits less."""
GENTLE_READ_BYTES = 128 * 1024
"""As much as Linux reads ahead by default. Where it is set to read megabytes ahead, all of them are
asked for at once, and a write waits behind them."""


def read_bytes(descriptor: int, size_bytes: int, clock: Clock) -> bytes:
    """Return the next bytes of a file, at most `size_bytes`; one read gives up to 2 GiB."""
    turns = Turns(clock)
    part_bytes = size_bytes
    if turns.gentle and size_bytes > GENTLE_READ_BYTES:
        part_bytes = GENTLE_READ_BYTES
        _read_nothing_ahead(descriptor)
    parts = []
    while size_bytes > 0:
        part = turns.take(partial(os.read, descriptor, min(part_bytes, size_bytes)))
        if not part:
            break
        parts.append(part)
        size_bytes -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def write_bytes(descriptor: int, data: Data, clock: Clock, *, fsync: bool) -> None:
    """Write all of `data` to a new file; with `fsync`, force it to the disk."""
    turns = Turns(clock)
    part_bytes = GENTLE_WRITE_BYTES if turns.gentle or is_paced() else FORCED_AT_ONCE_BYTES
    view = memoryview(data)
    while view:
        part, view = view[:part_bytes], view[part_bytes:]
        turns.take(partial(_write_part, descriptor, part, force=fsync and bool(view)))
        part_written(len(part))
    if fsync:
        os.fsync(descriptor)


def _write_part(descriptor: int, part: memoryview, *, force: bool) -> None:
    while part:
        part = part[os.write(descriptor, part) :]
    if force:
        # Nobody needs the file's metadata yet. macOS has only the other.
        getattr(os, "fdatasync", os.fsync)(descriptor)


def _read_nothing_ahead(descriptor: int) -> None:
    if hasattr(os, "posix_fadvise"):  # macOS has none
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
