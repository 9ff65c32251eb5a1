"""Processor time of a process, seen from outside through /proc."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
OWN: Final = slice(11, 13)
WITH_ENDED_CHILDREN: Final = slice(11, 15)
"""Fields behind the command: time in user and system mode, then that of children that ended."""


def processor_seconds(pid: int, fields: slice = OWN) -> float:
    """Return the seconds that a process has used in user and system mode since it began.

    Raises:
        OSError: there is no such process.
    """
    _, _, found = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    return sum(map(int, found.split()[fields])) / TICKS_PER_S
