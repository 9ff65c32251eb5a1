"""Asks Spark how brokers and queries use the executors of an application."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark import SparkContext

from sparklog.spark.serve.shared_slots import ExecutorUse


def executor_use(context: SparkContext, broker_groups: Iterable[str]) -> ExecutorUse:
    """Return the executors of an application on a cluster, and whether a query waits.

    Cost: some ten calls of the JVM, and some forty while no executor is idle.

    Args:
        context: the application's.
        broker_groups: the job groups of the brokers.

    Raises:
        Py4JError, OSError: Spark has ended.
    """
    infos: Any = context._jsc.sc().statusTracker().getExecutorInfos()  # noqa: SLF001 - no other way
    running = [one.numRunningTasks() for one in infos]
    # The driver is in the list, too, and runs no task.
    idle = running.count(0) - 1
    # With an idle executor no query waits for a broker.
    waits = idle <= 0 and _query_waits(context, broker_groups)
    return ExecutorUse(len(running) - 1, idle, waits)


def _query_waits(context: SparkContext, broker_groups: Iterable[str]) -> bool:
    tracker = context.statusTracker()
    of_brokers: set[int] = set()
    for group in broker_groups:
        jobs = tracker.getJobIdsForGroup(group)
        info = tracker.getJobInfo(max(jobs)) if jobs else None
        of_brokers.update(info.stageIds if info is not None else ())
    for stage in tracker.getActiveStageIds():
        info_of_stage = None if stage in of_brokers else tracker.getStageInfo(stage)
        if info_of_stage is not None and not info_of_stage.numActiveTasks:
            return True
    return False
