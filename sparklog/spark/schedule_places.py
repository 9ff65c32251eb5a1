"""How many jobs of one application go on at once: as many as there are places.

A job that is looked at has a place, so that it can begin if it is due. A run that somebody asked
for has one from before we say that we take it (`job_listening`): so it begins at once, and a job
whose time comes meanwhile waits. Pure but for a lock.
"""

from __future__ import annotations

from threading import Lock


class Places:
    """Who has a place, and which jobs wait for one. For threads."""

    def __init__(self, count: int) -> None:
        """Begin with `count` places, all free."""
        self._count = count
        self._lock = Lock()
        self._jobs: set[str] = set()
        self._runs: set[str] = set()
        self._waiting: list[str] = []

    def take(self, job: str) -> bool:
        """Give a job a place; returns False if it has to wait until one is free."""
        with self._lock:
            if not self._has_room():
                self._waiting.append(job)
                return False
            self._jobs.add(job)
            return True

    def reserve(self, run_id: str) -> bool:
        """Keep a place for a run that somebody asked for; returns False if none is free."""
        with self._lock:
            if not self._has_room():
                return False
            self._runs.add(run_id)
            return True

    def leave(self, job: str) -> list[str]:
        """Free a job's place; returns the jobs that waited for one: let them try again."""
        return self._freed(self._jobs, job)

    def let_go(self, run_id: str) -> list[str]:
        """Free a run's place; returns as `leave`."""
        return self._freed(self._runs, run_id)

    def _has_room(self) -> bool:
        return len(self._jobs) + len(self._runs) < self._count

    def _freed(self, places: set[str], who: str) -> list[str]:
        with self._lock:
            places.discard(who)
            waited, self._waiting = self._waiting, []
            return waited
