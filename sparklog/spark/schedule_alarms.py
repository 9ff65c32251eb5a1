"""An alarm clock for jobs: a thread that rings when a cron expression's next time comes."""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition, Thread
from typing import Final

from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.spark.schedule_cron import Cron

LOOK_S: Final = 30.0
"""The wall clock is read at least this often: it may be set, and a machine may sleep."""
MS_PER_S: Final = 1000.0


class Alarms:
    """Rings for jobs in a thread of its own: an alarm that is late rings once, however late."""

    def __init__(self, ring: Callable[[str], None], clock: Clock = SYSTEM_CLOCK) -> None:
        """Ring by calling `ring` with a job's name; nothing happens before `start`."""
        self._ring = ring
        self._clock = clock
        self._changed = Condition()
        self._crons: dict[str, Cron] = {}
        self._times: dict[str, int] = {}
        """When each job's own time comes next."""
        self._again: dict[str, int] = {}
        """When to ring once more, beside a job's own times."""
        self._seen_ms = 0
        self._stopped = False
        self._thread = Thread(target=self._run, name="sparklog-job-alarms", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Ring no more; an alarm that rings now is not waited for."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def ring_by(self, name: str, cron: Cron) -> None:
        """Ring for a job whenever its time comes."""
        with self._changed:
            self._crons[name] = cron
            self._plan(name, self._clock.now_ms())
            self._changed.notify()

    def ring_at(self, name: str, at_ms: int) -> None:
        """Ring for a job once more, and no more at what was said before."""
        with self._changed:
            self._again[name] = at_ms
            self._changed.notify()

    def due(self, now_ms: int) -> list[str]:
        """Return the jobs to ring for now, each once, and plan their next times."""
        with self._changed:
            if now_ms < self._seen_ms:  # the clock was set back
                for name in self._crons:
                    self._plan(name, now_ms)
            self._seen_ms = now_ms
            own = [name for name, at_ms in self._times.items() if at_ms <= now_ms]
            again = [name for name, at_ms in self._again.items() if at_ms <= now_ms]
            for name in again:
                del self._again[name]
            for name in own:
                self._plan(name, now_ms)
        return list(dict.fromkeys([*own, *again]))

    def _plan(self, name: str, now_ms: int) -> None:
        next_ms = self._crons[name].next_ms(now_ms)
        if next_ms is None:
            self._times.pop(name, None)
        else:
            self._times[name] = next_ms

    def _run(self) -> None:
        while True:
            for name in self.due(self._clock.now_ms()):
                self._ring(name)
            with self._changed:
                if self._stopped:
                    return
                self._changed.wait(self._wait_s(self._clock.now_ms()))

    def _wait_s(self, now_ms: int) -> float:
        times = [*self._times.values(), *self._again.values()]
        soonest_s = (min(times) - now_ms) / MS_PER_S if times else LOOK_S
        return min(max(soonest_s, 0.0), LOOK_S)
