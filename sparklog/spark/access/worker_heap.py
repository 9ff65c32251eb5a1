"""Worker heap: the collector need not visit a Python worker's imports after every task.

Spark has a worker that it uses again collect its garbage when a task ends, before the next begins.
With pyarrow, numba and all of sparklog imported that takes 40 to 60 ms of a processor, more than a
small task does.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_kept: set[str] = set()


@contextmanager
def imports_kept(work: str) -> Iterator[None]:
    """Exempt from collection what there is at the end of this process's first task of a kind.

    Once for each kind of `work`, not after every task: what a task leaves in a cycle would stay.
    """
    try:
        yield
    finally:
        if work not in _kept:
            _kept.add(work)
            gc.freeze()
