"""One open log per root and process, for Spark's tasks.

Spark reuses its Python workers, so what a log has learnt (topics, manifests, connections) serves
the next task too. A forked child starts afresh: threads and connections do not survive a fork.
"""

from __future__ import annotations

import os
from threading import Lock

from sparklog.cluster.log import Log, open_log

_lock = Lock()
_logs: dict[tuple[int, str], Log] = {}


def shared_log(root: str) -> Log:
    """Return this process's log under `root`; never close it.

    Raises:
        InvalidConfig: not a root sparklog knows. Unavailable: the store does not answer.
    """
    key = (os.getpid(), root)
    with _lock:
        log = _logs.get(key)
        if log is None:
            log = _logs[key] = open_log(root)
        return log


def _fresh_lock() -> None:
    global _lock  # noqa: PLW0603 - a lock that another thread held at the fork stays held for ever
    _lock = Lock()


os.register_at_fork(after_in_child=_fresh_lock)
