"""Runs one server for another process, and ends it when that process ends in any way.

    python -m tests.peers.guard SCRATCH_FOLDER COMMAND...

The other end of standard input gives the orders: `T` ends the server politely, `K` at once. When
the other end is closed without an order, or the parent process is gone, it kills the server and
removes the scratch folder. So nothing outlives a crashed test.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys

POLL_S = 0.5
POLITE_S = 20
PR_SET_PDEATHSIG = 1


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Ask the kernel to send this process a signal when who started it is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def _await_order(server: subprocess.Popen[bytes], parent: int) -> bytes:
    """Return the order, or nothing when the parent is gone; `x` when the server ended by itself."""
    while True:
        if select.select([0], [], [], POLL_S)[0]:
            return os.read(0, 1)
        if server.poll() is not None:
            return b"x"
        if os.getppid() != parent:  # a forked child of the parent may still hold the pipe open
            return b""


def main(arguments: list[str]) -> int:
    """Run the server until an order comes; returns the server's exit code."""
    scratch, *command = arguments
    parent = os.getppid()
    # A Ctrl-C reaches the whole terminal group; the parent decides what it means for the server.
    # By a handler that does nothing: what is ignored would be ignored by the server, too.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: None)
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - the guard has one thread
        start_new_session=True,
    ) as server:
        order = _await_order(server, parent)
        if order == b"T":
            server.terminate()
            try:
                server.wait(POLITE_S)
            except subprocess.TimeoutExpired:
                server.kill()
        else:
            server.kill()
        code = server.wait()
    if not order:
        shutil.rmtree(scratch, ignore_errors=True)
    return abs(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
