"""One open log per root and process, for Spark's tasks.

Spark reuses its Python workers, so what a log has learnt (topics, manifests, connections) serves
the next task too. A forked child starts afresh: threads and connections do not survive a fork.
"""

from __future__ import annotations

import os
from pathlib import Path
from threading import Lock

from sparklog.cluster.log import Log, open_log
from sparklog.spark.access.request_files import FOLDER_VARIABLE, RequestFile, RequestsByRoot

_lock = Lock()
_logs: dict[tuple[int, str], Log] = {}
_job_logs: dict[tuple[int, str], Log] = {}
_files: dict[int, RequestFile] = {}
"""By process id: the file with the requests of `_logs`."""


def shared_log(root: str) -> Log:
    """Return this process's log under `root` for a query; never close it.

    Raises:
        InvalidConfig: not a root sparklog knows. Unavailable: the store does not answer.
    """
    with _lock:
        log = _opened(_logs, root)
        _report_requests()
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


def _report_requests() -> None:
    """Begin this process's file of requests, if it has a folder for it and no file yet."""
    folder = os.environ.get(FOLDER_VARIABLE)  # noqa: TID251 - this is the edge
    if folder and os.getpid() not in _files:
        file = _files[os.getpid()] = RequestFile(Path(folder), _counters)
        file.start()


def _counters() -> RequestsByRoot:
    with _lock:
        own = os.getpid()
        return {root: log.requests for (process, root), log in _logs.items() if process == own}


def _fresh_lock() -> None:
    global _lock  # noqa: PLW0603 - a lock that another thread held at the fork stays held for ever
    _lock = Lock()


os.register_at_fork(after_in_child=_fresh_lock)
