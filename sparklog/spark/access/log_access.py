"""One open log per root and process, for Spark's tasks.

Spark reuses its Python workers, so what a log has learnt (topics, manifests, connections) serves
the next task too. A forked child starts afresh: threads and connections do not survive a fork.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from threading import Lock

from sparklog.cluster.log import Log, open_log
from sparklog.spark.access.request_files import FOLDER_VARIABLE, RequestFile, RequestsByRoot
from sparklog.spark.access.worker_usage import WorkerUsage, is_python_worker

_lock = Lock()
_logs: dict[tuple[int, str], Log] = {}
_job_logs: dict[tuple[int, str], Log] = {}
_files: dict[int, RequestFile] = {}
"""By process id: the file with the requests of `_logs`."""
_usage: dict[int, WorkerUsage] = {}
"""By process id: the usage reports of `_logs`."""


def shared_log(root: str) -> Log:
    """Return this process's log under `root` for a query; never close it.

    Raises:
        InvalidConfig: not a root sparklog knows. Unavailable: the store does not answer.
    """
    with _lock:
        is_new = (os.getpid(), root) not in _logs
        log = _opened(_logs, root)
        _report_requests(log, is_new=is_new)
        return log


def job_log(root: str) -> Log:
    """Return this process's log for tasks of jobs, which return their requests; never close it.

    Raises:
        InvalidConfig, Unavailable: as `shared_log`.
    """
    with _lock:
        return _opened(_job_logs, root)


def _opened(logs: dict[tuple[int, str], Log], root: str) -> Log:
    key = (os.getpid(), root)
    log = logs.get(key)
    if log is None:
        log = logs[key] = open_log(root)
    return log


def _report_requests(log: Log, *, is_new: bool) -> None:
    """Have a log's requests counted: in this process's file, if there is a folder for it.

    A worker without one leaves usage reports. Any other process counts by itself.
    """
    own = os.getpid()
    if folder := os.environ.get(FOLDER_VARIABLE):  # noqa: TID251 - this is the edge
        if own not in _files:
            file = _files[own] = RequestFile(Path(folder), _counters)
            file.start()
    elif is_python_worker():
        usage = _usage.setdefault(own, WorkerUsage())
        usage.report_at_exit(vars(sys.modules["__main__"]))
        if is_new:
            usage.add(log)


def _counters() -> RequestsByRoot:
    with _lock:
        own = os.getpid()
        return {root: log.requests for (process, root), log in _logs.items() if process == own}


def _fresh_lock() -> None:
    global _lock  # noqa: PLW0603 - a lock that another thread held at the fork stays held for ever
    _lock = Lock()


os.register_at_fork(after_in_child=_fresh_lock)
