"""A broker that appends producers' batches without a look at their records, and its launcher.

It shows the cost of the check. Nothing else may run it: it acknowledges unreadable batches.

python -m tests.bench.broker.unchecked_broker …   as jobs/serve.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from sparklog.broker.main import run
from sparklog.broker.runtime.identity import Ready
from sparklog.log.tail import batch_validator
from sparklog.log.tail.batch_validator import BatchRules, CheckedBatch, LoopTime
from sparklog.protocol.records.header import BatchHeader, BytesLike
from sparklog.protocol.records.schema_check import KnownSchemas
from sparklog.spark.jobs.job import run_job
from sparklog.spark.serve.arguments import parse_serve
from sparklog.spark.serve.serve import serve_with
from tests.bench.broker import unchecked_broker


def accept(
    header: BatchHeader,
    records: BytesLike,
    rules: BatchRules,
    now_ms: int,
    loop_time: LoopTime | None,
    known: KnownSchemas,
) -> CheckedBatch:
    """Accept the records of a batch whose header and checksum are valid."""
    return CheckedBatch(header, records)


def run_unchecked(
    root: str,
    configs: Mapping[str, str],
    *,
    stop: Callable[[], bool],
    ready: Callable[[Ready], None],
    note: Callable[[str], None],
) -> None:
    """Run a broker that checks headers and checksums alone."""
    batch_validator._checked_records = accept
    run(root, configs, stop=stop, ready=ready, note=note)


if __name__ == "__main__":
    # By its importable name, not as `__main__`: executors have a `__main__` of their own.
    sys.exit(run_job("sparklog serve", parse_serve, serve_with(unchecked_broker.run_unchecked)))
