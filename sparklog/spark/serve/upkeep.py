"""Upkeep jobs in the application that serves: started once brokers serve, ended before they drain.

A job's progress and outcome are reported as events, like everything about brokers.

The warm-up starts on executors what a first upkeep job would start, before any job waits for it.

Spark starts a Python on an executor when it has a task for one. That takes most of a second of a
processor, at ordinary priority and in the middle of what clients send. It stays there for all jobs
to come.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from threading import Thread
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from sparklog.broker.network.listener_sockets import EVERY_INTERFACE
from sparklog.broker.runtime.environment import Address
from sparklog.cluster.usage_reporter import UsageReporter
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.spark.access.log_access import shared_log
from sparklog.spark.jobs.addresses import outward_address
from sparklog.spark.jobs.low_priority import packed
from sparklog.spark.schedule.claims import ScheduleClaims
from sparklog.spark.schedule.history import JobRun
from sparklog.spark.schedule.job_kinds import kind_of
from sparklog.spark.schedule.listener import Listener
from sparklog.spark.schedule.metrics import JobMetrics, JobMetricsServer
from sparklog.spark.schedule.requests import application_name
from sparklog.spark.schedule.run import PoolSession
from sparklog.spark.schedule.runner import ScheduledJobs
from sparklog.spark.schedule.schedule import Schedule
from sparklog.spark.serve.job import JOBS_STOP_TIMEOUT_S

logger = logging.getLogger(__name__)

RUN_ID: Final = "sparklog-upkeep-warm-up"
LINGER_S: Final = 1.0


class WarmUp:
    """Imports the jobs of a schedule, and starts their Python on executors with a free place."""

    def __init__(self, spark: SparkSession, schedule: Schedule) -> None:
        """Prepare it; nothing happens before `start`."""
        self._session = PoolSession(spark, RUN_ID, "sparklog upkeep: Python on the executors")
        self._kinds = {job.kind for job in schedule.jobs}
        self._thread = Thread(target=self._run, name=RUN_ID, daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End it, if it still goes on."""
        if self._thread.is_alive():
            self._session.cancel()

    def _run(self) -> None:
        try:
            for kind in self._kinds:
                logger.debug("imported %s", kind_of(kind).body)
            context = self._session({}).sparkContext
            tasks = context.defaultParallelism
            context.parallelize(range(tasks), tasks).mapPartitions(packed(_lingering)).collect()
            _collect_garbage(context)
        except Exception as error:  # the first job is slower then, and says what is wrong
            logger.info("executors are not warm for jobs error=%s", error)


def _collect_garbage(context: SparkContext) -> None:
    """Have everybody forget what ended jobs have sent to the executors.

    Spark sees to that when the application's JVM collects its garbage. The first time, all JVMs
    load code for it: 50 ms of both processors of a small machine.
    """
    jvm: Any = context._jvm  # noqa: SLF001 - Python has no other way
    jvm.System.gc()


def _lingering(numbers: list[int]) -> list[int]:
    SYSTEM_CLOCK.sleep_s(LINGER_S)  # so that the tasks behind it go to other executors
    return numbers


BEGIN_AFTER_S: Final = 60.0
"""Jobs need no brokers, but their history may be led: they wait for brokers, and not for ever."""
GIVE_WAY_AFTER_S: Final = 10.0
"""An executor of this machine is back in less."""


class BrokerWait:
    """For how long brokers have waited for an executor without a break. Units: seconds."""

    def __init__(self) -> None:
        """No broker waits."""
        self._since_s: float | None = None

    def is_long(self, brokers_wait: bool, now_s: float) -> bool:
        """Return whether the wait is too long, once for each `GIVE_WAY_AFTER_S` of it."""
        if not brokers_wait or self._since_s is None:
            self._since_s = now_s if brokers_wait else None
            return False
        if now_s - self._since_s <= GIVE_WAY_AFTER_S:
            return False
        self._since_s = now_s
        return True


class Upkeep:
    """The scheduled jobs of a serving application."""

    def __init__(
        self,
        schedule: Schedule,
        root: str,
        spark: SparkSession,
        tell: Callable[[Mapping[str, Any]], None],
        page: tuple[str, int] | None = None,
        *,
        reports: bool = False,
    ) -> None:
        """Run `schedule`; nothing happens before it is begun.

        `page`: host and port of the page for Prometheus, which is there from now on; an empty
        host is every interface.
        `reports`: leave usage reports of this process.

        Raises:
            OSError: the page's address cannot be had.
        """

        def open_run(run: JobRun) -> PoolSession:
            return PoolSession(spark, run.run_id, f"sparklog {run.kind} ({run.job})")

        log = shared_log(root)
        looking = ScheduleClaims(log, application_name(), tell)
        metrics = JobMetrics(schedule)
        self._page = JobMetricsServer(metrics, *page) if page is not None else None
        if page is not None and self._page is not None:
            host = outward_address() if page[0] in EVERY_INTERFACE else page[0]
            url = f"http://{Address(host, self._page.port)}/metrics"
            tell({"event": "jobs", "metrics": url, "text": f"jobs: metrics at {url}"})
        self._jobs = ScheduledJobs(
            schedule, root, looking, open_run, began=metrics.began, ended=metrics.ended
        )
        self._usage = UsageReporter(log, "sparklog serve") if reports else None
        if self._usage is not None:
            self._usage.start()
        self._requests = Listener(log, application_name(), self._jobs)
        self._warm_up = WarmUp(spark, schedule)
        self._begun = False
        self._broker_wait = BrokerWait()
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

        A broker that has an executor of its own needs all of its slots. The tasks of a job may
        have come there in between.
        """
        if self._broker_wait.is_long(brokers_wait, SYSTEM_CLOCK.monotonic_s()):
            self._jobs.cut_short()

    def stop(self) -> bool:
        """End what runs; returns whether all has ended in time."""
        self._warm_up.stop()
        ended = not self._begun or self._jobs.stop(JOBS_STOP_TIMEOUT_S)
        # Last, so that the sender of a run that was taken meanwhile gets a record of its end. The
        # sender of a very recent request, not yet known to be ours, gives up by itself.
        self._requests.stop(0.0)
        if self._page is not None:
            self._page.close()
        if self._usage is not None:
            self._usage.end()
        return ended
