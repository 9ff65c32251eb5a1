"""What a first upkeep job would start on executors, started before anybody waits for it.

Spark starts a Python on an executor when it has a task for one, and for tasks of jobs another than
for brokers, which are rows of a table. That takes most of a second of a processor, at ordinary
priority and in the middle of what clients send. It stays there for all jobs to come.
"""

from __future__ import annotations

import logging
from threading import Thread
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.spark.jobs_table import kind_of
from sparklog.spark.low_priority import packed
from sparklog.spark.schedule import Schedule
from sparklog.spark.schedule_run import PoolSession

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
            _let_go(context)
        except Exception as error:  # the first job is slower then, and says what is wrong
            logger.info("executors are not warm for jobs error=%s", error)


def _let_go(context: SparkContext) -> None:
    """Have everybody forget what ended jobs have sent to the executors.

    Spark sees to that when the application's JVM collects its garbage. The first time, all JVMs
    load code for it: 50 ms of both processors of a small machine.
    """
    jvm: Any = context._jvm  # noqa: SLF001 - Python has no other way
    jvm.System.gc()


def _lingering(numbers: list[int]) -> list[int]:
    SYSTEM_CLOCK.sleep_s(LINGER_S)  # so that the tasks behind it go to other executors
    return numbers
