"""One long-lived Spark job per broker, submitted again whenever it ends.

A broker's job has one task and a thread, a job group and a FAIR pool of its own. So brokers start
and end without regard to each other and to queries. Spark repeats no task (`SERVE_CONF`), so that
a task that ends its executor does not go on to the next. The outcome of a broker's task comes back
here and is reported as an event. The driver then tries again: at once, or after a while that grows
while the broker does not get to serve.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Event, Thread
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import RDD, SparkContext
from pyspark.errors import PySparkException
from pyspark.resource import ResourceProfile, ResourceProfileBuilder, TaskResourceRequests

from sparklog.core.backoff import Backoff
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.spark.jobs.job import failure_line
from sparklog.spark.serve.broker_plan import BrokerPlan
from sparklog.spark.serve.broker_slots import RESOURCE, SlotClaim
from sparklog.spark.serve.broker_task import FAILED, KILLED, REFUSED, task_of

BACK_OFF_FIRST_S = 0.5
BACK_OFF_MAX_S = 30.0
KILLED_WAIT_MAX_S = 1.0
"""A broker that others kill is back soon, however often that happens."""
STEADY_S = 60.0
"""A broker that ran this long was well: its next start is not delayed."""

Tell = Callable[[int, Mapping[str, Any]], None]
"""Takes a broker's id and an event about it; called from the broker's thread."""


class BrokerJob:
    """Keeps one broker running until the driver asks it to stop."""

    def __init__(
        self,
        context: SparkContext,
        plan: BrokerPlan,
        profile: Callable[[int], ResourceProfile | None],
        tell: Tell,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Run `plan`; nothing starts before `start`.

        `profile` returns the profile of a broker's next task; it is called from other threads.
        """
        self._context = context
        self._plan = plan
        self._profile = profile
        self._tell = tell
        self._clock = clock
        self._stopping = Event()
        self._thread: Thread | None = None
        self._generation = 0
        self.group = group_of(plan.broker_id)

    def start(self) -> None:
        """Submit the job, in a thread of its own.

        The job of an earlier call is not submitted again. While it runs, the new one waits for
        slots, and goes before queries when the earlier one ends.
        """
        self._generation += 1
        words = (self._generation,)
        self._thread = Thread(target=self._run, args=words, name=self.group, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Submit it no more; the broker that runs is asked to drain by other means."""
        self._stopping.set()

    def cancel(self) -> None:
        """End what still runs. Spark kills the process some two seconds later."""
        try:
            self._context.cancelJobGroup(self.group)
        except (Py4JError, PySparkException, OSError):
            pass  # Spark is gone, and the job with it

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread's end; returns whether it has ended."""
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self, generation: int) -> None:
        backoff = Backoff(BACK_OFF_FIRST_S, BACK_OFF_MAX_S, starts_at_once=True)
        while not self._stopping.is_set():
            self._tell(self._plan.broker_id, {"event": "submitted"})
            started_s = self._clock.monotonic_s()
            outcome, message = self._submit()
            if generation != self._generation:
                return  # another thread has its successor
            ran_s = self._clock.monotonic_s() - started_s
            ended = {"event": "ended", "outcome": outcome, "message": message}
            if self._stopping.is_set():
                self._tell(self._plan.broker_id, ended)
                return
            if ran_s >= STEADY_S:
                backoff.reset()
            wait_s = backoff.next_s()
            if outcome == KILLED:
                wait_s = min(wait_s, KILLED_WAIT_MAX_S)
            self._tell(self._plan.broker_id, {**ended, "again_in_s": wait_s})
            if outcome == REFUSED:
                return
            self._stopping.wait(wait_s)

    def _submit(self) -> tuple[str, str]:
        name = f"sparklog broker {self._plan.broker_id}"
        try:
            context = self._context
            context.setJobGroup(self.group, name, interruptOnCancel=True)
            context.setLocalProperty("spark.scheduler.pool", self.group)
            outcomes: list[tuple[str, str]] = self._task().collect()
        except (Py4JError, PySparkException, OSError) as error:
            return KILLED, failure_line(error)
        except AttributeError:  # PySpark's way to say so
            return FAILED, "Spark has ended"
        return outcomes[0]

    def _task(self) -> RDD[tuple[str, str]]:
        """Return the broker as a partition of an RDD.

        As rows of a table, each JVM would load Spark SQL first, and compile a loop for one row.
        """
        one = self._context.parallelize([self._plan.broker_id], 1)
        task = one.mapPartitions(task_of(self._plan))
        profile = self._profile(self._plan.broker_id)
        return task if profile is None else task.withResources(profile)


def group_of(broker_id: int) -> str:
    """Return the name of a broker's job group, its FAIR pool and its thread."""
    return f"sparklog-broker-{broker_id}"


def profile_of(claim: SlotClaim) -> ResourceProfile | None:
    """Return the profile of a broker's task; None for Spark's default."""
    if not claim.exclusive:
        return None
    requests = TaskResourceRequests().cpus(claim.cores or 1)
    if claim.resource:
        requests = requests.resource(RESOURCE, 1)
    return ResourceProfileBuilder().require(requests).build
