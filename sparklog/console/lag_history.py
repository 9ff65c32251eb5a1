"""LagHistory: the lag of consumer groups over time, in the memory of the console.

A page that shows a group begins to watch it. A thread then notes its lag every `EVERY_S`. It keeps
`SAMPLES_MAX` values of `GROUPS_MAX` groups, and forgets a group that no page showed for `UNSEEN_S`.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Event, Lock, Thread
from typing import Final

from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.errors import SparklogError
from sparklog.core.types import Closeable

GROUPS_MAX: Final = 100
SAMPLES_MAX: Final = 720
EVERY_S: Final = 10.0
"""So the kept values reach back two hours."""
UNSEEN_S: Final = 3600.0


@dataclass(slots=True)
class WatchedGroup:
    """One group's samples: s since 1970, and the lag in records."""

    seen_s: float
    samples: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=SAMPLES_MAX))


class LagHistory(Closeable):
    """The lags of the watched groups. Thread-safe."""

    def __init__(self, lag_of: Callable[[str], int | None], clock: Clock = SYSTEM_CLOCK) -> None:
        """Ask `lag_of` for a group's lag in records; None if it has none."""
        self._lag_of = lag_of
        self._clock = clock
        self._groups: OrderedDict[str, WatchedGroup] = OrderedDict()
        self._lock = Lock()
        self._thread: Thread | None = None
        self._closed = Event()

    def close(self) -> None:
        """End the thread."""
        self._closed.set()

    def watch(self, group_id: str, lag: int | None) -> None:
        """Note a lag that a page shows, and go on noting the group's lag."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            found = self._groups.setdefault(group_id, WatchedGroup(now_s))
            found.seen_s = now_s
            self._groups.move_to_end(group_id)
            while len(self._groups) > GROUPS_MAX:
                self._groups.popitem(last=False)
            self._note(found, lag)
            if self._thread is None and not self._closed.is_set():
                self._thread = Thread(target=self._run, name="sparklog-lag", daemon=True)
                self._thread.start()

    def chart(self, group_id: str) -> dict[str, list[float]] | None:
        """Return times in s since 1970 and lags in records; None below two samples."""
        with self._lock:
            found = self._groups.get(group_id)
            samples = [] if found is None else list(found.samples)
        if len(samples) < 2:
            return None
        return {"times": [at for at, _ in samples], "rates": [lag for _, lag in samples]}

    def sample(self) -> None:
        """Note the lag of each watched group now; one that fails has no sample."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            for group_id in [g for g, w in self._groups.items() if now_s - w.seen_s > UNSEEN_S]:
                del self._groups[group_id]
            watched: Mapping[str, WatchedGroup] = dict(self._groups)
        for group_id, group in watched.items():
            if self._closed.is_set():
                return
            try:
                lag = self._lag_of(group_id)
            except SparklogError:
                continue
            with self._lock:
                self._note(group, lag)

    def _note(self, group: WatchedGroup, lag: int | None) -> None:
        if lag is not None:
            group.samples.append((self._clock.now_ms() / 1000, float(lag)))

    def _run(self) -> None:
        while not self._closed.wait(EVERY_S):
            self.sample()
            with self._lock:
                if not self._groups:
                    self._thread = None
                    return
