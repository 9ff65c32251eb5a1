"""Brokers as tasks of a Spark application: `jobs/serve.py` and `sparklog serve`.

The driver submits one job per broker, reports their state, and drains them when it is asked to
end. It is no part of the log. When it dies its brokers die within a second. Every acknowledged
record is on storage, and the next application goes on from there.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.resource import ResourceProfile
from pyspark.sql import SparkSession

from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.entropy import SYSTEM_ENTROPY, new_nonce
from sparklog.core.errors import InvalidRequest, Unavailable
from sparklog.log.kernels import compile_kernels, kernels_are_kept
from sparklog.spark.access.request_files import FOLDER_VARIABLE, RequestFolder
from sparklog.spark.jobs.addresses import ALL, LOOPBACK, is_local
from sparklog.spark.jobs.jars import delta_conf
from sparklog.spark.jobs.job import SparkStart, submitted, submitted_conf, tell_report
from sparklog.spark.jobs.jvm_shutdown import JvmShutdown, spare_executors
from sparklog.spark.jobs.progress import JobProgress
from sparklog.spark.jobs.session import DRIVER_BIND_ADDRESS, DRIVER_HOST, use_this_python
from sparklog.spark.jobs.started_jvm import start_quiet_jvm
from sparklog.spark.jobs.streaming import StopRequest
from sparklog.spark.jobs.work_folder import ServeFolder, conf_of_folder, serve_folder
from sparklog.spark.serve.arguments import SERVE_CONF, connect_conf, one_machine_conf, pools_conf
from sparklog.spark.serve.broker_jobs import BrokerJob, profile_of
from sparklog.spark.serve.broker_plan import BrokerEntry, ControlPoint
from sparklog.spark.serve.broker_slots import (
    Slots,
    StartPatience,
    advice,
    claim_of,
    cluster_in_one_machine,
    executors_of,
    sharing_claim,
    slots_each,
)
from sparklog.spark.serve.console_lines import (
    Telling,
    brokers_text,
    compiling,
    sharing_text,
    started,
    starting,
)
from sparklog.spark.serve.control_channel import ControlServer
from sparklog.spark.serve.executor_use import executor_use
from sparklog.spark.serve.job import JOBS_STOP_TIMEOUT_S, ServeJob, ServeReport
from sparklog.spark.serve.shared_slots import SlotSharing
from sparklog.spark.serve.spark_secrets import (
    CONNECT_TOKEN,
    CONNECT_VARIABLE,
    authenticated_conf,
    connect_address,
    connect_token,
)
from sparklog.spark.serve.state import WAITING, MetricsPages, Notice, Serving

if TYPE_CHECKING:
    from sparklog.spark.schedule.schedule import Schedule
    from sparklog.spark.serve.upkeep import Upkeep

LOOK_INTERVAL_S = 0.5
ADVICE_AFTER_S = 60.0
"""Executors take a while to come: advice about missing ones waits until none has come for so long.
On a busy machine of two cores the first one of four took more than 30 s."""
CANCEL_TIMEOUT_S = 5.0
SHARED_LOOK_INTERVAL_S = 2.0
"""Between two looks at the executors: each asks Spark some ten times."""
OF_JOBS = -1
"""In place of a broker's id, in events about upkeep jobs."""


def serve_with(
    entry: BrokerEntry, pages: MetricsPages | None = None
) -> Callable[[ServeJob, SparkStart, JobProgress], ServeReport]:
    """Return the job's body.

    Args:
        entry: what a broker's task runs.
        pages: gets the brokers' pages, for a console in this process. Without it, this process and
            Spark's workers leave usage reports.
    """

    def serve(job: ServeJob, spark: SparkStart, progress: JobProgress) -> ServeReport:
        job = job.with_ids_of_log()
        master = master_of(job)
        with ExitStack() as stack:
            local_cluster = cluster_in_one_machine(master) is not None
            own = stack.enter_context(serve_folder()) if local_cluster and not submitted() else None
            folder = own.path if own else Path(stack.enter_context(_temporary_folder()))
            conf = {"spark.master": master, **SERVE_CONF, **pools_conf(folder, job.broker_ids)}
            if local_cluster:
                conf |= one_machine_conf(folder)
                if submitted():
                    spare_executors()
            if job.connect_port is not None:
                conf |= connect_conf(job.connect_port, job.place(master).listen_host)
            if job.schedule is not None and job.schedule.has("materialize"):
                conf |= delta_conf(catalog=False)
            telling = Telling(progress, as_json=job.json)
            progress.start()
            token: dict[str, str] = {}
            late: dict[str, str] = {}
            if own is not None:
                conf = conf_of_folder(conf, own)
                if job.connect_port is not None:
                    token = connect_token(SYSTEM_ENTROPY)
                variables = {} if pages is None else {FOLDER_VARIABLE: str(own.requests)}
                _start_spark(conf, own, telling, {**token, **variables})
                if pages is not None:
                    pages.task_requests = RequestFolder(own.requests, job.root).requests
                conf |= authenticated_conf(SYSTEM_ENTROPY)
            elif job.connect_port is not None:
                token = connect_token(SYSTEM_ENTROPY)
                late = {CONNECT_TOKEN: token[CONNECT_VARIABLE]} if token else {}
            context = spark.context(conf, late)
            # Before the folder goes that its executors work in.
            stack.callback(spark.stop)
            telling.say(started(progress.elapsed_s(), job.broker_ids))
            if job.connect_port is not None:
                telling.say(_connect_notice(context, job.connect_port, master, token))
            server = _Launcher(job, entry, context, master, telling)
            server.pages = pages or server.pages
            jvm_end = stack.enter_context(JvmShutdown(context, _end_timeout_s(job)))
            with StopRequest() as request:
                server.start()
                if job.schedule is not None:
                    server.schedule_jobs(job.schedule, spark(conf), reports=pages is None)
                server.run(lambda: request.exit_code is not None or jvm_end.came)
                drained = server.drain()
                report = ServeReport(
                    progress.elapsed_s(), job.brokers, drained, request.exit_code,
                    printed=jvm_end.came and submitted(),
                )  # fmt: skip
                if report.printed:  # later it would not be read
                    progress.close()
                    tell_report(report, as_json=job.json)
        return report

    return serve


def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="sparklog-")


def _start_spark(
    conf: Mapping[str, str], folder: ServeFolder, telling: Telling, variables: Mapping[str, str]
) -> None:
    """Start Spark's JVM for executors on this machine, once kernels are compiled.

    The JVM itself asks Python for data sources, by what its environment names. It gets `variables`,
    which may be secrets.
    """
    use_this_python()
    if not kernels_are_kept():
        telling.say(compiling())
        compile_kernels()
    telling.say(starting(conf["spark.master"], folder.log))
    start_quiet_jvm(conf, folder, variables)


def _connect_notice(
    context: SparkContext, port: int, master: str, secrets: Mapping[str, str]
) -> Notice:
    """Return the notice about Spark Connect. The user's own token goes before ours."""
    conf, token = context.getConf(), secrets.get(CONNECT_VARIABLE)
    is_ours = conf.get(CONNECT_TOKEN, token) == token
    host = "localhost"
    if cluster_in_one_machine(master) is None:
        host = conf.get(DRIVER_HOST, host) or host
    return connect_address(port, token if is_ours else None, host)


def _end_timeout_s(job: ServeJob) -> int:
    jobs_s = round(JOBS_STOP_TIMEOUT_S) if job.schedule is not None else 0
    return job.drain_timeout_s + jobs_s + 5


def master_of(job: ServeJob) -> str:
    """Return where Spark runs: spark-submit's choice, else the job's."""
    if submitted():
        return submitted_conf().get("spark.master", None) or job.default_master
    return job.master or job.default_master


class _Launcher:
    """The driver's part while brokers run."""

    def __init__(
        self,
        job: ServeJob,
        entry: BrokerEntry,
        context: SparkContext,
        master: str,
        telling: Telling,
    ) -> None:
        self._job = job
        self._say = telling.say
        self._say_waiting = telling.say_waiting
        self._context = context
        self._events: SimpleQueue[tuple[int, Mapping[str, Any]]] = SimpleQueue()
        self._conf = dict(context.getConf().getAll())
        self._claim = claim_of(master, self._conf, job.brokers)
        self._slots_each = slots_each(master, self._conf)
        self._executors = executors_of(master, self._conf) or 0
        token = new_nonce(SYSTEM_ENTROPY)
        self._control = ControlServer(self._tell, token)
        point = self._open_control(token, master)
        plans = job.plans(entry, point, master)
        self._serving = Serving(plan.broker_id for plan in plans)
        self._advised = False
        self._patience = StartPatience(ADVICE_AFTER_S)
        self._jobs = {
            plan.broker_id: BrokerJob(context, plan, self._profile, self._tell) for plan in plans
        }
        self._profiles = {False: profile_of(self._claim)}
        self._sharing: SlotSharing | None = None
        self._shared_look_s = 0.0
        if (smaller := sharing_claim(self._claim, self._slots_each)) is not None:
            self._profiles[True] = profile_of(smaller)
            self._sharing = SlotSharing(job.brokers)
        self._jobs_host = job.place(master).listen_host
        self._upkeep: Upkeep | None = None
        self.pages = MetricsPages()

    def start(self) -> None:
        """Submit the brokers."""
        for one in self._jobs.values():
            one.start()

    def schedule_jobs(self, schedule: Schedule, spark: SparkSession, *, reports: bool) -> None:
        """Have upkeep jobs run once the brokers serve.

        `reports`: leave usage reports of this process, which no console reads.

        Raises:
            OSError: the address of the jobs' metrics page cannot be had.
        """
        from sparklog.spark.serve.upkeep import Upkeep  # noqa: PLC0415 - others start faster

        port = self._job.jobs_metrics_port
        page = (self._jobs_host, port) if port >= 0 else None
        self._upkeep = Upkeep(
            schedule, self._job.root, spark, self._tell_of_jobs, page, reports=reports
        )

    def run(self, asked_to_end: Callable[[], bool]) -> None:
        """Report events until the end is asked for.

        Raises:
            InvalidRequest: a broker refuses its settings. Unavailable: Spark has ended.
        """
        while not asked_to_end():
            self._look(LOOK_INTERVAL_S)
            if waiting := self._serving.never_ready:
                self._say_waiting(brokers_text(waiting))
            self._advise()
            self._share_slots()
            if self._upkeep is not None:
                self._upkeep.begin(brokers_serve=self._serving.all_ready)
                self._upkeep.give_way(brokers_wait=self._serving.waits)
            if self._serving.refused:
                self.drain()
                raise InvalidRequest(
                    "a broker refuses its settings, or its root was emptied: see its line above"
                )
            if not _alive(self._context):
                raise Unavailable("Spark has ended, and its brokers with it; see Spark's log")

    def drain(self) -> int:
        """Let every broker drain, and return how many have."""
        if self._upkeep is not None and not self._upkeep.stop():  # their history needs brokers
            text = "a job did not end in time"
            self._say(Notice(f"note: {text}", {"event": "note", "text": text}))
        self._serving.stopping = True
        for one in self._jobs.values():
            one.stop()
        self._control.stop_brokers()
        deadline_s = SYSTEM_CLOCK.monotonic_s() + self._job.drain_timeout_s
        while SYSTEM_CLOCK.monotonic_s() < deadline_s and not self._all_ended():
            self._look(LOOK_INTERVAL_S / 5)
        for one in self._jobs.values():
            if not one.join(0.0):
                one.cancel()
        deadline_s = SYSTEM_CLOCK.monotonic_s() + CANCEL_TIMEOUT_S
        for one in self._jobs.values():
            one.join(max(0.0, deadline_s - SYSTEM_CLOCK.monotonic_s()))
        while self._look(0.0):
            pass
        self._control.close()
        return sum(broker.drained for broker in self._serving.brokers.values())

    def _advise(self) -> None:
        """Give the operator advice once, when all brokers serve or the start does not advance."""
        if self._advised:
            return
        try:
            slots, expected = self._slots(), self._executors
        except (Py4JError, PySparkException, OSError, AttributeError):
            return  # Spark is gone, as the caller will see
        ready = len(self._serving.ids_in("ready"))
        late = self._patience.is_over(SYSTEM_CLOCK.monotonic_s(), slots.executors, ready)
        if not late and (not self._serving.all_ready or slots.executors < expected):
            return
        self._advised = True
        for text in advice(self._job.brokers, slots, self._claim, self._conf, expected):
            self._say(Notice(f"note: {text}", {"event": "note", "text": text}))

    def _all_ended(self) -> bool:
        return all(one.join(0.0) for one in self._jobs.values())

    def _profile(self, broker_id: int) -> ResourceProfile | None:
        """Return the profile of a broker's next task."""
        return self._profiles[self._sharing is not None and self._sharing.shared_by == broker_id]

    def _share_slots(self) -> None:
        """Have a broker start again if queries or it need that (`shared_slots`)."""
        now_s = SYSTEM_CLOCK.monotonic_s()
        if self._sharing is None or now_s - self._shared_look_s < SHARED_LOOK_INTERVAL_S:
            return
        self._shared_look_s = now_s
        try:
            use = executor_use(self._context, (one.group for one in self._jobs.values()))
        except (Py4JError, PySparkException, OSError, AttributeError):
            return  # Spark is gone, as the caller will see
        ready, waiting = self._serving.ids_in("ready"), self._serving.ids_in(*WAITING)
        due = self._sharing.look(now_s, use, ready, waiting)
        if due is None:
            return
        text = sharing_text(due, use)
        self._say(Notice(f"note: {text}", {"event": "note", "text": text}))
        job = self._jobs[due.broker_id]
        if due.broker_id in waiting:
            job.cancel()  # and its thread submits it with the new claim
            return
        if due.shares:
            job.start()  # so that it goes before queries to the slots that come free
        self._control.stop_broker(due.broker_id)

    def _look(self, timeout_s: float) -> bool:
        """Take one event, if there is one in time."""
        try:
            broker_id, event = self._events.get(timeout=timeout_s)
        except Empty:
            return False
        if broker_id == OF_JOBS:
            self._say(Notice(str(event.get("text", "")), event))
            return True
        notices = self._serving.handle(broker_id, event)
        self.pages.by_broker = self._serving.metrics_pages
        if event.get("event") == "ready" and self._serving.all_ready:
            self._write_ready_file()
        for notice in notices:
            self._say(notice)
        return True

    def _tell(self, broker_id: int, event: Mapping[str, Any]) -> None:
        self._events.put((broker_id, event))

    def _tell_of_jobs(self, event: Mapping[str, Any]) -> None:
        self._tell(OF_JOBS, event)

    def _write_ready_file(self) -> None:
        path = self._job.ready_file
        if path is not None:
            draft = path.with_name(f"{path.name}.{os.getpid()}")
            draft.write_text(json.dumps(self._serving.document(), indent=1) + "\n")
            draft.replace(path)

    def _open_control(self, token: str, master: str) -> ControlPoint:
        if is_local(master):
            host = bind = LOOPBACK
        else:
            host = self._conf[DRIVER_HOST]  # Spark has set it by now
            # The name may lead to loopback on this machine alone; the token keeps strangers out.
            bind = self._conf.get(DRIVER_BIND_ADDRESS, ALL)
        return ControlPoint(host, self._control.start(bind, self._job.control_port), token)

    def _slots(self) -> Slots:
        context: Any = self._context
        known = context._jsc.sc().getExecutorMemoryStatus().size() - 1  # noqa: SLF001 - as above
        executors = max(1, known)  # the driver counts as one, and is the only one in local mode.
        # Spark's parallelism is 2 at least, however few slots there are.
        each = self._slots_each or max(1, context.defaultParallelism // executors)
        return Slots(executors, each)


def _alive(context: Any) -> bool:
    try:
        return not context._jsc.sc().isStopped()  # noqa: SLF001 - Python has no other way
    except (Py4JError, PySparkException, OSError, AttributeError):
        return False
