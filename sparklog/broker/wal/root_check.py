"""Looks now and then whether the store still has a broker's write-ahead log.

A bucket may be emptied, or replaced by an older copy, while brokers serve. Puts succeed there as
before, so a broker would acknowledge records whose topics and history are gone. The registration
of its log is on the store as long as the broker lives (WAL-WRITER-3). So a put of batches also
reads one byte of that object, at most once in `CHECK_EVERY_S`. Newer objects prove nothing: a busy
broker puts them after the root was emptied. The read runs beside the put and costs no time. An idle
broker sends nothing.

Times are seconds of the loop's clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sparklog.broker.runtime.environment import AsyncStore
from sparklog.core.errors import DataCorrupt, RootEmptied, Unavailable
from sparklog.log.layout import WalLayout
from sparklog.log.wal.sealing import read_sealed
from sparklog.store.base import ObjectNotFound

CHECK_EVERY_S: Final = 10.0


class RootCheck:
    """Checks for one write-ahead log."""

    def __init__(self, store: AsyncStore, layout: WalLayout, now_s: Callable[[], float]) -> None:
        """Check `layout`; the first check is due `CHECK_EVERY_S` later."""
        self._store = store
        self._layout = layout
        self._now_s = now_s
        self._next_s = now_s() + CHECK_EVERY_S

    def is_due(self) -> bool:
        """Return True once per `CHECK_EVERY_S`: the caller then runs `check`."""
        now_s = self._now_s()
        if now_s < self._next_s:
            return False
        self._next_s = now_s + CHECK_EVERY_S
        return True

    async def check(self) -> None:
        """Look for the registration of the log. A store that does not answer is no finding.

        Raises:
            RootEmptied: it is gone, and no sealer took it.
        """
        key = self._layout.key(0)
        try:
            await self._store.get(key, 0, 1)
        except ObjectNotFound:
            if await self._is_sealed():
                return  # and cleared; the seal stays
        except Unavailable:
            return  # the puts report it
        else:
            return
        raise RootEmptied(
            "the store lost the registration of this broker's write-ahead log: the root was "
            "emptied, or an older copy has replaced it. This broker stops; bring the root's "
            f"objects back, run verify, then start the brokers again. object={key}"
        )

    async def _is_sealed(self) -> bool:
        try:
            return await self._store.run(read_sealed(self._layout)) is not None
        except Unavailable:
            return True  # unknown: the next check looks again
        except DataCorrupt:
            return False  # later objects show that this one is missing
