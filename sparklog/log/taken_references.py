"""Which reference batches a leader has taken, so that one that is sent again is taken once.

In the log they are known by their commit keys and by the objects they name; those in the tail are
remembered here until they are flushed. Nothing has to be rebuilt: a leader's tail is empty when it
begins. Source: FORMAT.md 5 and 9.

  Y1  of one writer, no sequence is taken after it or a higher one was
  Y2  without a commit key, no batch is taken whose first object the log names (unless a rewrite
      has replaced that since)
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from sparklog.log.reference_batch import ReferenceBatch
from sparklog.log.view import PartitionView


class TakenReferences(NamedTuple):
    """A batch in the tail."""

    base_offset: int
    end_offset: int
    first_object: str
    writer: str | None
    sequence: int


class PendingReferences:
    """The reference batches in one leader's tail. Not thread-safe."""

    __slots__ = ("_taken",)

    def __init__(self) -> None:
        """Begin with none."""
        self._taken: deque[TakenReferences] = deque()

    def find(self, batch: ReferenceBatch, view: PartitionView) -> tuple[int, int] | None:
        """Return the base and end offset that the batch has already, or None.

        Cost: without a commit key, a look at every entry of the log.
        """
        name = batch.references[0].object
        if batch.commit is None:
            for one in self._taken:
                if one.first_object == name:
                    return one.base_offset, one.end_offset
            return _place_of(name, batch, view)
        key = batch.commit.key
        for one in reversed(self._taken):
            if one.writer == key.writer and one.sequence >= key.sequence:
                return one.base_offset, one.end_offset
        known = view.committed(key)
        return None if known is None else (known.base_offset, known.end_offset)

    def took(self, batch: ReferenceBatch, base_offset: int) -> None:
        """Note a batch that was appended to the tail."""
        key = batch.commit.key if batch.commit is not None else None
        self._taken.append(
            TakenReferences(
                base_offset,
                base_offset + batch.count,
                batch.references[0].object,
                key.writer if key is not None else None,
                key.sequence if key is not None else -1,
            )
        )

    def flushed(self, end_offset: int) -> bool:
        """Forget what the log has below `end_offset`; say whether there was any."""
        before = len(self._taken)
        while self._taken and self._taken[0].end_offset <= end_offset:
            self._taken.popleft()
        return len(self._taken) < before


def _place_of(name: str, batch: ReferenceBatch, view: PartitionView) -> tuple[int, int] | None:
    for entry in view.entries:
        if entry.object == name:
            return entry.object_base, entry.object_base + batch.count
    return None
