"""A job run as a person runs it, in a process of its own, and what it took."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.common.process_memory import watched_workers
from tests.peers.sparklog import PROJECT, spark_environment

TIMEOUT_S = 1800


class JobFailed(RuntimeError):
    """A job ended with an error; its last words are in the message."""


@dataclass(frozen=True)
class Done:
    """A job's report, and what was seen from outside."""

    report: dict[str, Any]
    seconds: float
    """From the process's start to its end."""
    memory_bytes: int
    """Of the largest of its Python workers, at most."""


def run_job_process(name: str, folder: Path, *words: str) -> Done:
    """Run `jobs/<name>.py` with these words and `--json`.

    Raises:
        JobFailed: it did not end well.
    """
    command = [sys.executable, str(PROJECT / "jobs" / f"{name}.py"), *words, "--json"]
    environment = {**spark_environment(), "PYSPARK_SUBMIT_ARGS": _SUBMIT}
    start = time.perf_counter()
    with watched_workers() as peaks:
        done = subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True,
            timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    seconds = time.perf_counter() - start
    if done.returncode != 0:
        raise JobFailed(f"{name} ended with {done.returncode}: {done.stderr[-2000:]}")
    return Done(json.loads(done.stdout), seconds, peaks.highest)


_SUBMIT = "--conf spark.ui.enabled=false pyspark-shell"
