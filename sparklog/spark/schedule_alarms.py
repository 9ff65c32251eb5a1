"""An alarm clock for jobs: the scheduler library, which knows when a cron expression comes next."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from apscheduler.schedulers.background import BackgroundScheduler

from sparklog.spark.schedule_cron import Cron


class Alarms:
    """Rings for jobs in a thread of its own: an alarm that is late rings once, however late."""

    def __init__(self, ring: Callable[[str], None]) -> None:
        """Ring by calling `ring` with a job's name; nothing happens before `start`."""
        self._ring = ring
        self._library: Any = BackgroundScheduler(
            daemon=True,
            timezone=UTC,
            executors={"default": {"type": "threadpool", "max_workers": 1}},
            job_defaults={"coalesce": True, "misfire_grace_time": None, "max_instances": 1},
        )

    def start(self) -> None:
        """Begin; returns at once."""
        self._library.start()

    def stop(self) -> None:
        """Ring no more."""
        if self._library.running:
            self._library.shutdown(wait=False)

    def ring_by(self, name: str, cron: Cron) -> None:
        """Ring for a job whenever its time comes."""
        self._library.add_job(self._ring, cron.trigger, args=(name,), id=name)

    def ring_at(self, name: str, at_ms: int) -> None:
        """Ring for a job once more, and no more at what was said before."""
        moment = datetime.fromtimestamp(at_ms / 1000, UTC)
        self._library.add_job(
            self._ring, "date", run_date=moment, args=(name,), id=f"{name} again",
            replace_existing=True,
        )  # fmt: skip
