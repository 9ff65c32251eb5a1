"""A broker whose store takes its time for every put, as object storage does, and its launcher.

python -m tests.bench.broker.slow_broker …   as jobs/serve.py
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping

from sparklog.broker.main import run
from sparklog.broker.runtime.identity import Ready
from sparklog.core.counters import RequestCounters
from sparklog.log.layout import topic_of_key
from sparklog.spark.jobs.job import run_job
from sparklog.spark.serve.arguments import parse_serve
from sparklog.spark.serve.serve import serve_with
from sparklog.store.base import Data, ObjectStore, PutOutcome
from sparklog.store.delegating_store import DelegatingStore
from sparklog.store.open import open_store
from tests.bench.broker import slow_broker

PUT_DELAY_S = 0.1


class SlowStore(DelegatingStore):
    """Puts wait, everything else goes through."""

    def __init__(self, inner: ObjectStore, put_delay_s: float) -> None:
        """Delay the puts of `inner`."""
        super().__init__(inner)
        self.counters = getattr(inner, "counters", RequestCounters())
        self._put_delay_s = put_delay_s

    def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        self._take_its_time()
        return super().put_if_absent(key, data)

    def put(self, key: str, data: bytes) -> None:
        self._take_its_time()
        super().put(key, data)

    def _take_its_time(self) -> None:
        time.sleep(self._put_delay_s)  # the delay is what this store adds: a put takes it on S3


def run_slowly(
    root: str,
    configs: Mapping[str, str],
    *,
    stop: Callable[[], bool],
    ready: Callable[[Ready], None],
    note: Callable[[str], None],
) -> None:
    """Run a broker over a slow store."""

    def slow(url: str) -> ObjectStore:
        return SlowStore(open_store(url, label_of=topic_of_key), PUT_DELAY_S)

    run(root, configs, stop=stop, ready=ready, note=note, open_store=slow)


if __name__ == "__main__":
    # By its importable name, not as `__main__`: executors have a `__main__` of their own.
    sys.exit(run_job("sparklog serve", parse_serve, serve_with(slow_broker.run_slowly)))
