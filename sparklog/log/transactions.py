"""Transactions in one partition: which are open, how far readers of committed records may read.

Knows offsets and producer ids only; `producer_state` feeds it. Nothing here is per record.

  X1  the last stable offset is at most the first offset of every transaction that is open, or
      whose end is not yet below the high watermark
  X2  it never moves back while the high watermark does not

Offsets: `first_offset` and `last_offset` are inclusive, the last one is the marker's. Source:
KIP-98; Kafka's ProducerStateManager and TransactionIndex.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple


class EndedTransaction(NamedTuple):
    """A transaction whose marker was appended."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_commit: bool


class AbortedTransaction(NamedTuple):
    """An aborted transaction: a reader drops the producer's records from its first offset on.

    It stops at the marker. `last_stable_offset` is what it became when this one ended.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class Transactions:
    """The transactions of one partition; see the module. Not thread-safe."""

    __slots__ = ("_open", "_unreplicated", "aborted")

    def __init__(self) -> None:
        """Begin with none."""
        self._open: dict[int, int] = {}
        """Producer id to the first offset of its transaction, in the order they began."""
        self._unreplicated: list[EndedTransaction] = []
        """Ended, the marker not below the high watermark yet; in the order they ended."""
        self.aborted: list[AbortedTransaction] = []
        """By last offset."""

    def __contains__(self, producer_id: int) -> bool:
        """Tell whether the producer has an open transaction."""
        return producer_id in self._open

    def open(self) -> list[tuple[int, int]]:
        """Return producer ids and the first offsets of their open transactions, oldest first."""
        return list(self._open.items())

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Note the first record of a transaction; those after it change nothing."""
        self._open.setdefault(producer_id, first_offset)

    def end(self, producer_id: int, last_offset: int, *, is_commit: bool) -> None:
        """Note a marker at `last_offset`. It may end a transaction that wrote nothing here."""
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return
        ended = EndedTransaction(producer_id, first_offset, last_offset, is_commit)
        self._unreplicated.append(ended)
        if not is_commit:
            stable = min(self._first_open(last_offset + 1), last_offset + 1)
            self.aborted.append(AbortedTransaction(producer_id, first_offset, last_offset, stable))

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the offset below which every transaction's end is committed.

        Args:
            high_watermark: not below one that was given before.
        """
        self._unreplicated = [t for t in self._unreplicated if t.last_offset >= high_watermark]
        first = min((t.first_offset for t in self._unreplicated), default=high_watermark)
        return min(first, self._first_open(high_watermark), high_watermark)

    def aborted_between(self, base_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that a reader of these offsets must know of."""
        at = bisect_left(self.aborted, base_offset, key=_last_offset_of)
        found = []
        for one in self.aborted[at:]:
            if one.first_offset < end_offset:
                found.append(one)
            if one.last_stable_offset >= end_offset:
                break
        return found

    def forget_below(self, offset: int) -> None:
        """Forget aborted transactions that ended below `offset`: nobody reads there from here."""
        del self.aborted[: bisect_left(self.aborted, offset, key=_last_offset_of)]

    def _first_open(self, otherwise: int) -> int:
        return next(iter(self._open.values()), otherwise)


def _last_offset_of(one: AbortedTransaction) -> int:
    return one.last_offset
