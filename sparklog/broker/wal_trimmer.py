"""Deletes the names of a write-ahead log that nobody needs any more, so that no client notices.

All that a flush sets free is due at once, every few seconds: a thousand names take a disk and a
processor a quarter of a second, and one acknowledgement in forty would wait for that. Nobody waits
for the space, so where deleting is cheap there are pauses. At a distance it costs this machine
nothing but patience: many names are deleted at the same time there. Names are retired: a folder
keeps some of the files for windows to come. Times are seconds of the loop's clock.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from sparklog.broker.task_scope import TaskScope
from sparklog.log.layout import WalLayout

CHEAP_DELETE_S: Final = 0.02
"""A store that deletes a name in less is a disk or near one."""
FEW: Final = 8
"""Names that are deleted between two pauses: handing over each of them costs more than that."""
PAUSE_PER_WORK: Final = 4
"""How many times as long as the names took nothing is deleted then."""
BEHIND: Final = 4096
"""With more names than this left there are no pauses: objects come faster than they go."""
LANES: Final = 4
"""As many as there are threads for the log beside those for puts: no put waits for a delete."""
LANE_NAMES: Final = 64
"""Names that one thread deletes at a distance, one after the other."""


class Retires(Protocol):
    """What a trimmer needs of a store."""

    async def retire_in_turn(self, keys: Sequence[str]) -> int:
        """Retire objects in this order; see `environment.AsyncStore`."""
        ...


class WalTrimmer:
    """Deletes what a log's writer says may go; what the store does not answer for stays."""

    def __init__(self, store: Retires, layout: WalLayout, tasks: TaskScope) -> None:
        """Delete names of `layout`, in a task of `tasks`."""
        self._store = store
        self._layout = layout
        self._tasks = tasks
        self._names: deque[int] = deque()
        self._running = False
        self._cheap = True

    def trim(self, sequences: range) -> None:
        """Have the names of windows deleted, some time."""
        self._names.extend(sequences)
        if not self._running:
            self._running = True
            self._tasks.start(self._run(), "trim")

    async def _run(self) -> None:
        clock = asyncio.get_running_loop()
        try:
            while self._names:
                lanes = self._next_lanes()
                began_s = clock.time()
                left = [s for some in await asyncio.gather(*map(self._gone, lanes)) for s in some]
                took_s = clock.time() - began_s
                if left:
                    # Nothing depends on it; the next trim tries again.
                    self._names.extendleft(reversed(left))
                    return
                self._cheap = took_s < CHEAP_DELETE_S * len(lanes[0])
                if self._cheap and len(self._names) <= BEHIND:
                    await asyncio.sleep(PAUSE_PER_WORK * took_s)
        finally:
            self._running = False

    def _next_lanes(self) -> list[list[int]]:
        """Take the names that are deleted next, at the same time in each lane."""
        lanes, each = (1, FEW) if self._cheap else (LANES, LANE_NAMES)
        names = [self._names.popleft() for _ in range(min(lanes * each, len(self._names)))]
        return [names[at : at + each] for at in range(0, len(names), each)]

    async def _gone(self, names: Sequence[int]) -> Sequence[int]:
        """Delete names, one after the other; return those that the store did not answer for."""
        keys = [self._layout.key(sequence) for sequence in names]
        return names[await self._store.retire_in_turn(keys) :]
