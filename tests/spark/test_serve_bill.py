"""The bill of `sparklog serve` has what Spark's workers request, and agrees with the S3 server."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pyarrow as pa
import pytest

from sparklog.cluster.log import open_log
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.counters import by_kind
from sparklog.log.effects import run
from sparklog.spark.schedule.claims import RunClaim, take
from sparklog.spark.schedule.history import DONE
from sparklog.spark.schedule.schedule import SEEN
from tests.harness.fault_proxy import counted_store
from tests.harness.store_servers import free_port
from tests.harness.waiting import eventually
from tests.peers.sparklog import SparklogCluster

ROOT = "s3://billed/log"
DAY_MS = 86_400_000
SERVE = (str(Path(sys.executable).with_name("sparklog")), "serve")
SCHEDULE = """
[jobs.table]
kind = "materialize"
cron = "0 3 * * *"
arguments = ["--topic", "flights", "--table", "{table}"]
"""


def test_bill_has_the_requests_of_a_materialization(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    schedule = tmp_path / "jobs.toml"
    schedule.write_text(SCHEDULE.format(table=tmp_path / "table"))
    with ExitStack() as stack:
        proxy = stack.enter_context(counted_store(tmp_path / "s3", monkeypatch.setenv))
        log = stack.enter_context(open_log(ROOT))
        log.create_topic("flights", 2)
        rows = pa.record_batch({"value": [b'{"carrier": "UA"}' for _ in range(1000)]})
        for number in range(60):
            log.partition("flights", number % 2).append([rows])
        seen_ms = SYSTEM_CLOCK.now_ms() - 2 * DAY_MS
        assert run(take(RunClaim("table", seen_ms, SEEN, claimed_ms=seen_ms)), log.store)
        own = by_kind(log.requests())
        before = {kind: n for kind, (n, _) in proxy.billed().items()}
        assert before == {kind: count.requests for kind, count in own.items()}
        words = ("--brokers", "1", "--jobs", str(schedule), "--console-port", str(port))
        cluster = stack.enter_context(
            SparklogCluster(tmp_path / "run", *words, program=SERVE, root=ROOT)
        )
        assert cluster.until("job", outcome=DONE)["job"] == "table"

        def agreed() -> dict[str, Any] | None:
            """Return the bill at a moment when it agrees with the proxy."""
            served = {kind: n - before.get(kind, 0) for kind, (n, _) in proxy.billed().items()}
            with urlopen(f"http://127.0.0.1:{port}/api/v1/bill") as answer:
                bill: dict[str, Any] = json.load(answer)
            found = {kind: n for kind, n in bill["requests"].items() if n}
            print(f"bill of serve: served={served} billed={found}")
            same = all(
                found.get(kind, 0) == pytest.approx(n, rel=0.01) for kind, n in served.items()
            )
            return bill if same else None

        bill = eventually(agreed, "the bill is that of the server", 60)
        assert "Spark's queries" in {one["name"] for one in bill["sources"]}
        (row,) = [one for one in bill["topics"] if one["topic"] == "flights"]
        assert row["requests"]["get"] >= 60, "a segment is one request at least"
