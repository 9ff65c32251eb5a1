"""What reading history keeps in memory: footers, and segments' blocks as wire batches. Bounded."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from sparklog.log.segment import Segment
from sparklog.log.wire_blocks import Stretches, WireBatch

_BATCH_OVERHEAD_BYTES: Final = 200
_FOOTER_ENTRY_BYTES: Final = 200
"""About what Python's objects take beside the bytes."""


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a segment as wire batches, which cover [base_offset, end_offset)."""

    base_offset: int
    end_offset: int
    batches: tuple[WireBatch, ...]

    @property
    def size_bytes(self) -> int:
        """Return what keeping it costs."""
        return sum(len(b.data) + _BATCH_OVERHEAD_BYTES for b in self.batches)


@dataclass(frozen=True, slots=True)
class Footer:
    """What a segment's footer says, sorted for reading its blocks."""

    segment: Segment
    stretches: Stretches
    bases: tuple[int, ...]
    """Where each block begins, relative; a block reaches to the next, the last to the end."""

    @property
    def size_bytes(self) -> int:
        """Return what keeping it costs, roughly."""
        segment = self.segment
        parts = len(segment.batches) * (2 + len(segment.column_names)) + len(segment.producers)
        return _FOOTER_ENTRY_BYTES * (1 + parts)


class HistoryCache:
    """Blocks and footers, least recently used out first. One per broker; an event loop's only."""

    def __init__(self, size_bytes_max: int) -> None:
        """Hold at most about `size_bytes_max`."""
        self._kept: OrderedDict[tuple[object, ...], Block | Footer] = OrderedDict()
        self._size_bytes_max = size_bytes_max
        self.size_bytes = 0
        self.hits = 0
        self.misses = 0

    def block(self, key: tuple[object, ...]) -> Block | None:
        """Return a block, if it is here."""
        found = self._find(key)
        return found if isinstance(found, Block) else None

    def footer(self, key: tuple[object, ...]) -> Footer | None:
        """Return a footer, if it is here."""
        found = self._find(key)
        return found if isinstance(found, Footer) else None

    def _find(self, key: tuple[object, ...]) -> Block | Footer | None:
        found = self._kept.get(key)
        if found is None:
            self.misses += 1
            return None
        self.hits += 1
        self._kept.move_to_end(key)
        return found

    def keep(self, key: tuple[object, ...], one: Block | Footer) -> None:
        """Keep a block or footer, and let go of others for it."""
        before = self._kept.pop(key, None)
        if before is not None:
            self.size_bytes -= before.size_bytes
        self._kept[key] = one
        self.size_bytes += one.size_bytes
        while self.size_bytes > self._size_bytes_max and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            self.size_bytes -= dropped.size_bytes
