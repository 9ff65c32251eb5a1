"""A broker whose store takes its time for every put, as object storage does, and its launcher.

python -m tests.bench.broker.slow_broker …   as jobs/serve.py
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping

from sparklog.broker.main import run
from sparklog.broker.ready import Ready
from sparklog.core.telemetry import RequestCounters
from sparklog.log.layout import topic_of_key
from sparklog.spark.job import run_job
from sparklog.spark.serve import serve_with
from sparklog.spark.serve_arguments import parse_serve
from sparklog.store.base import ObjectInfo, ObjectStore, PutOutcome
from sparklog.store.open import open_store
from tests.bench.broker import slow_broker

PUT_DELAY_S = 0.1


class SlowStore(ObjectStore):
    """A store in front of another one: puts wait, everything else goes through."""

    def __init__(self, inner: ObjectStore, put_delay_s: float) -> None:
        """Delay the puts of `inner`."""
        self.url = inner.url
        self.counters = getattr(inner, "counters", RequestCounters())
        self._inner = inner
        self._put_delay_s = put_delay_s

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        return self._inner.get(key, start, end)

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        time.sleep(self._put_delay_s)  # a put takes as long as on S3
        return self._inner.put_if_absent(key, data)

    def put(self, key: str, data: bytes) -> None:
        time.sleep(self._put_delay_s)  # likewise
        self._inner.put(key, data)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        return self._inner.list(prefix, start_after)

    def delete(self, key: str) -> None:
        self._inner.delete(key)

    def head(self, key: str) -> ObjectInfo:
        return self._inner.head(key)

    def close(self) -> None:
        self._inner.close()


def run_slowly(
    root: str,
    configs: Mapping[str, str],
    *,
    stop: Callable[[], bool],
    ready: Callable[[Ready], None],
) -> None:
    """Run a broker over a slow store."""

    def slow(url: str) -> ObjectStore:
        return SlowStore(open_store(url, label_of=topic_of_key), PUT_DELAY_S)

    run(root, configs, stop=stop, ready=ready, open_store=slow)


if __name__ == "__main__":
    # By its importable name, not as `__main__`: executors have a `__main__` of their own.
    sys.exit(run_job("sparklog serve", parse_serve, serve_with(slow_broker.run_slowly)))
