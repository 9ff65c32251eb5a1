"""Compacting more keys than fit memory: how much a task takes, and how fast it is."""

from __future__ import annotations

from tests.bench.common.command import Run
from tests.bench.common.plan import MIB
from tests.bench.common.results import Measure
from tests.bench.common.targets import CostAtMost
from tests.bench.jobs.job_process import run_job_process
from tests.bench.jobs.keyed_rows import TOPIC, fill
from tests.bench.jobs.plan import JobsPlan

LIMIT_MIB = 768
"""Of one task, for any number of keys."""


def measure_distinct(run: Run[JobsPlan]) -> None:
    """Compact records of which nearly all have a key of their own."""
    shape = run.plan.distinct
    folder = run.work / "distinct"
    root = (folder / "log").as_uri()
    fill(root, shape)
    done = run_job_process("compact", folder, "--root", root, "--topic", TOPIC, "--force")
    compacted = done.report["compacted"]
    kept = compacted["rows_after"]
    run.results.check_equal("every distinct key is kept once", kept, shape.keys)
    [partition] = done.report["partitions"]
    what = f"{shape.records / 1e6:g} M records of {shape.keys / 1e6:g} M keys"
    memory = Measure(f"memory of a task, {what}", "MiB", (CostAtMost(LIMIT_MIB, "MiB"),))
    run.results.add(memory, "sparklog", done.memory_bytes / MIB)
    speed = Measure(f"compact {what}, in the task", "records/s")
    run.results.add(speed, "sparklog", compacted["rows_before"] / partition["seconds"])
