"""Starts brokers on Spark whose store answers as late as S3: see `distant_broker`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from sparklog.broker.main import run
from sparklog.broker.runtime.identity import Ready
from sparklog.spark.jobs.job import run_job
from sparklog.spark.serve.arguments import parse_serve
from sparklog.spark.serve.serve import serve_with
from tests.bench.broker import distant_serve
from tests.bench.broker.distant_broker import open_distant


def run_distant(
    root: str,
    configs: Mapping[str, str],
    *,
    stop: Callable[[], bool],
    ready: Callable[[Ready], None],
    note: Callable[[str], None],
) -> None:
    """Run a broker over a distant store."""
    run(root, configs, stop=stop, ready=ready, note=note, open_store=open_distant)


if __name__ == "__main__":
    # By its importable name, not as `__main__`: executors have a `__main__` of their own.
    sys.exit(run_job("sparklog serve", parse_serve, serve_with(distant_serve.run_distant)))
