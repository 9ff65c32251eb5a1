"""A broker whose store answers as late as S3 does in one region.

python -m tests.bench.broker.distant_broker …   as sparklog.broker.main
python -m tests.bench.broker.distant_serve …    as jobs/serve.py

With SPARKLOG_TRACE=PREFIX each process writes a line for every request to a file of its own. A line
has begin and end in seconds of the monotonic clock, the operation and the key.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import TextIO, TypeVar

from sparklog.broker.main import main
from sparklog.core.counters import RequestCounters
from sparklog.log.layout import topic_of_key
from sparklog.store.base import Data, ObjectInfo, ObjectStore, PutOutcome
from sparklog.store.delegating_store import DelegatingStore
from sparklog.store.open import open_store

PUT_S = 0.030
OTHER_S = 0.026
"""S3's medians for small objects: github.com/sirupsen/napkin-math/issues/39, June 2026."""
PUT_SPREAD = 0.46
"""Of a log-normal distribution with that median. The figures there fit: nine of ten puts take less
than 54 ms, and 99 of 100 less than 88 ms."""
SPREAD_VARIABLE = "SPARKLOG_PUTS_SPREAD"
"""The spread of puts; without it all take the median."""
TRACE_VARIABLE = "SPARKLOG_TRACE"
Result = TypeVar("Result")


class DistantStore(DelegatingStore):
    """Requests wait before they are sent, puts longer than others."""

    def __init__(
        self, inner: ObjectStore, trace: TextIO | None = None, spread: float = 0.0
    ) -> None:
        """Delay the requests of `inner`, and write them to `trace`."""
        super().__init__(inner)
        self.counters = getattr(inner, "counters", RequestCounters())
        self._trace = trace
        self._spread = spread
        self._random = Random(os.getpid())

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        return self._late("get", key, lambda: self._store.get(key, start, end))

    def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        return self._late("put", key, lambda: self._store.put_if_absent(key, data))

    def put(self, key: str, data: bytes) -> None:
        self._late("put", key, lambda: self._store.put(key, data))

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        yield from self._late("list", prefix, lambda: [*self._store.list(prefix, start_after)])

    def delete(self, key: str) -> None:
        self._late("delete", key, lambda: self._store.delete(key))

    def retire(self, key: str) -> None:
        self._late("delete", key, lambda: self._store.retire(key))

    def head(self, key: str) -> ObjectInfo:
        return self._late("head", key, lambda: self._store.head(key))

    def _late(self, operation: str, key: str, send: Callable[[], Result]) -> Result:
        began = time.monotonic()
        delay_s = OTHER_S
        if operation == "put":
            delay_s = PUT_S * self._random.lognormvariate(0.0, self._spread)
        time.sleep(delay_s)  # the delay is what this store adds
        try:
            return send()
        finally:
            if self._trace is not None:
                self._trace.write(f"{began:.4f} {time.monotonic():.4f} {operation} {key}\n")
                self._trace.flush()


def open_distant(root: str) -> ObjectStore:
    """Open a store as brokers do, and delay it."""
    prefix = os.environ.get(TRACE_VARIABLE)
    trace = open(f"{prefix}-{os.getpid()}", "a") if prefix else None  # noqa: SIM115 - till the end
    spread = float(os.environ.get(SPREAD_VARIABLE, "0"))
    return DistantStore(open_store(root, label_of=topic_of_key), trace, spread)


if __name__ == "__main__":
    sys.exit(main(open_store=open_distant))
