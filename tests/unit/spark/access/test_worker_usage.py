"""WorkerUsage: a Python worker of Spark reports at its end, also when Spark ends it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.cluster.log import open_log
from sparklog.cluster.usage_reports import UsageReport, read_usage, usage_listing
from sparklog.core.counters import by_kind
from sparklog.log.effects import run
from sparklog.spark.access.worker_usage import SPARK_QUERY, is_python_worker

WORKER = """
import json, os, signal, sys
from sparklog.cluster.log import open_log
from sparklog.core.counters import by_kind
from sparklog.spark.access.worker_usage import WorkerUsage

usage = WorkerUsage()
log = open_log(sys.argv[1])
usage.report_at_exit(globals())
usage.add(log)
log.topic("t")
print(json.dumps({kind: one.requests for kind, one in by_kind(log.requests()).items()}), flush=True)
end = sys.argv[2]
if end == "hangup":
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as Spark's worker does for each task
    os.kill(os.getpid(), signal.SIGHUP)
    signal.pause()
elif end == "exit":
    os._exit(0)
elif end == "both":
    os.kill(os.getpid(), signal.SIGHUP)
    os._exit(129)
"""


@pytest.mark.parametrize(
    ("end", "code"), [("hangup", 129), ("exit", 0), ("both", 129), ("return", 0)]
)
def test_worker_reports_before_it_ends(tmp_path: Path, end: str, code: int) -> None:
    root = (tmp_path / "log").as_uri()
    with open_log(root) as log:
        log.create_topic("t")
        words = [sys.executable, "-c", WORKER, root, end]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == code, done.stderr
        keys = [info.key for info in run(usage_listing(""), log.store)]
        ((_, report),) = run(read_usage(keys), log.store)
    assert isinstance(report, UsageReport)
    counts = {k: one.requests for k, one in by_kind(report.programs[SPARK_QUERY]).items()}
    assert counts.pop("put") == 1  # the report itself
    assert counts == json.loads(done.stdout)
    assert counts["list"] > 0


def test_this_process_is_no_worker() -> None:
    assert not is_python_worker()
