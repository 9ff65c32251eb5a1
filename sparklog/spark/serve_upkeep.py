"""Upkeep jobs in the application that serves: started once brokers serve, ended before they drain.

What a job does and what becomes of it is told as events, like everything about brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark.sql import SparkSession

from sparklog.broker.environment import Address
from sparklog.broker.listening import EVERY_INTERFACE
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.spark.addresses import outward_address
from sparklog.spark.job_history import JobRun
from sparklog.spark.job_listening import Listener
from sparklog.spark.job_requests import application_name
from sparklog.spark.open_logs import shared_log
from sparklog.spark.schedule import Schedule
from sparklog.spark.schedule_looking import Looking
from sparklog.spark.schedule_loop import ScheduledJobs
from sparklog.spark.schedule_metrics import JobMetrics, MetricsPage
from sparklog.spark.schedule_run import PoolSession
from sparklog.spark.upkeep_warm_up import WarmUp

BEGIN_AFTER_S: Final = 60.0
"""Jobs need no brokers, but their history may be led: they wait for brokers, and not for ever."""
GIVE_WAY_AFTER_S: Final = 10.0
"""An executor of this machine is back in less."""
STOP_TIMEOUT_S: Final = 15.0
"""For jobs to end, and for brokers to take what their history says of that."""


class Upkeep:
    """The scheduled jobs of a serving application."""

    def __init__(
        self,
        schedule: Schedule,
        root: str,
        spark: SparkSession,
        tell: Callable[[Mapping[str, Any]], None],
        page: tuple[str, int] | None = None,
    ) -> None:
        """Run `schedule`; nothing happens before it is begun.

        `page`: host and port of the page for Prometheus, which is there from now on; an empty
        host is every interface.

        Raises:
            OSError: the page's address cannot be had.
        """

        def open_run(run: JobRun) -> PoolSession:
            return PoolSession(spark, run.run_id, f"sparklog {run.kind} ({run.job})")

        log = shared_log(root)
        looking = Looking(log, application_name(), tell)
        metrics = JobMetrics(schedule)
        self._page = MetricsPage(metrics, *page) if page is not None else None
        if page is not None and self._page is not None:
            told = outward_address() if page[0] in EVERY_INTERFACE else page[0]
            url = f"http://{Address(told, self._page.port)}/metrics"
            tell({"event": "jobs", "metrics": url, "text": f"jobs: metrics at {url}"})
        self._jobs = ScheduledJobs(
            schedule, root, looking, open_run, began=metrics.began, ended=metrics.ended
        )
        self._requests = Listener(log, application_name(), self._jobs)
        self._warm_up = WarmUp(spark, schedule)
        self._begun = False
        self._waits_since_s: float | None = None
        self._may_begin_s = SYSTEM_CLOCK.monotonic_s() + BEGIN_AFTER_S

    def begin(self, *, brokers_serve: bool) -> None:
        """Begin, if brokers serve or have had their time. Call it as often as you like."""
        late = SYSTEM_CLOCK.monotonic_s() > self._may_begin_s
        if not self._begun and (brokers_serve or late):
            self._begun = True
            self._warm_up.start()
            self._jobs.start()
            self._requests.start()

    def give_way(self, *, brokers_wait: bool) -> None:
        """Cut jobs short when brokers wait for an executor long. Call it as often as you like.

        A broker that has an executor of its own needs all of its slots, and the tasks of a job
        may have come there in between.
        """
        now_s = SYSTEM_CLOCK.monotonic_s()
        if not brokers_wait or self._waits_since_s is None:
            self._waits_since_s = now_s if brokers_wait else None
        elif now_s - self._waits_since_s > GIVE_WAY_AFTER_S:
            self._waits_since_s = now_s
            self._jobs.cut_short()

    def stop(self) -> bool:
        """End what runs; returns whether all has ended in time."""
        self._warm_up.stop()
        ended = not self._begun or self._jobs.stop(STOP_TIMEOUT_S)
        # Last, so that a run that was taken meanwhile is told as ended to whoever asked for it. Who
        # asked a moment ago, and whose run we have not heard to be ours, gives up by himself.
        self._requests.stop(0.0)
        if self._page is not None:
            self._page.close()
        return ended
