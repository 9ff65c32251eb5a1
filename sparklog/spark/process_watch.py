"""A broker dies with its executor: a Python worker whose JVM is gone must not serve on.

Spark ends workers by SIGHUP when an executor's JVM goes, through a daemon between the two. When
that daemon dies first (the kernel's out-of-memory killer takes single processes), nobody tells the
worker, and Spark starts a second broker elsewhere. So the kernel is asked for a signal when the
daemon dies, and a thread looks whether the JVM is still the daemon's parent. Death is at once and
without a farewell: everything acknowledged is on storage, and a broken connection is what the
others notice first.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path
from threading import Thread

from sparklog.core.clock import SYSTEM_CLOCK, Clock

PR_SET_PDEATHSIG = 1
LOOK_INTERVAL_S = 0.5
ORPHANED = 86
"""Exit code of a broker that ends because its executor did."""


def die_with_parents(clock: Clock = SYSTEM_CLOCK) -> None:
    """End this process as soon as its parent, or its parent's parent, is gone."""
    parent = os.getppid()
    grandparent = parent_of(parent)
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(ORPHANED)  # it died before the kernel knew of our wish

    def watch() -> None:
        while os.getppid() == parent and parent_of(parent) == grandparent:
            clock.sleep_s(LOOK_INTERVAL_S)
        os._exit(ORPHANED)

    Thread(target=watch, name="sparklog-parents", daemon=True).start()


def parent_of(pid: int) -> int | None:
    """Return a process' parent; None where that is not to be found out, or it is gone."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name in parentheses may hold anything, so the fields are counted from its end.
    return int(status.rpartition(")")[2].split()[1])
