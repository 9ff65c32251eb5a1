"""Measures a start of `sparklog serve` until all brokers serve: `make bench-start`.

A start is work of a dozen processes, so the seconds on the clock depend on what else the machine
does. The processor time of all these processes hardly does: it is printed beside, by kind.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from tests.bench.common.process_memory import descendants
from tests.harness.processor_time import WITH_ENDED_CHILDREN, processor_seconds

KINDS = (
    ("org.apache.spark.executor", "executors (JVM)"),
    ("org.apache.spark.deploy.SparkSubmit", "driver (JVM)"),
    ("pyspark.daemon", "brokers (Python)"),
    ("pyspark-daemon", "brokers (Python)"),
)
"""Words of a command line, and the kind of process they mark; others are of the driver's Python."""
DRIVER = "driver (Python)"
STOP_S = 60


@dataclass(frozen=True, slots=True)
class Start:
    """One start. Units: seconds since the command began, or of processors."""

    spark_s: float
    """Until Spark runs and brokers start."""
    serving_s: float
    """Until all brokers serve."""
    cpu_s: dict[str, float]
    """Processor time until all serve, by kind of process."""


def measured_start(brokers: int) -> Start:
    """Start brokers over an empty root in a temporary folder, and end them again."""
    with tempfile.TemporaryDirectory(prefix="sparklog-start-") as folder:
        command = [sys.executable, "-m", "sparklog.cli", "serve", "--root", f"{folder}/root"]
        command += ["--brokers", str(brokers), "--port", "0", "--json"]
        began_s, spark_s = monotonic(), 0.0
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    event = json.loads(line)["event"]
                    if event == "started":
                        spark_s = monotonic() - began_s
                    if event == "serving":
                        return Start(spark_s, monotonic() - began_s, _cpu_s(process.pid))
            finally:
                process.send_signal(signal.SIGTERM)
                process.stdout.read()
                process.wait(STOP_S)
    raise RuntimeError("the brokers did not come to serve: see the lines above")


def _cpu_s(ancestor: int) -> dict[str, float]:
    """Return the processor time of a process and all below it, by kind."""
    found: dict[str, float] = {}
    for pid in {ancestor, *descendants(ancestor)}:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_text()
            seconds = processor_seconds(pid, WITH_ENDED_CHILDREN)
        except OSError:
            continue
        kind = next((kind for word, kind in KINDS if word in command), DRIVER)
        found[kind] = found.get(kind, 0.0) + seconds
    return found


def _row(name: str, values: Sequence[float]) -> str:
    return f"{name:28}" + "".join(f"{value:8.2f}" for value in values) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="make bench-start", description=__doc__)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(argv)
    starts = [measured_start(given.brokers) for _ in range(given.rounds)]
    kinds = sorted({kind for start in starts for kind in start.cpu_s})
    rows = {
        "s until Spark runs": [start.spark_s for start in starts],
        "s until all brokers serve": [start.serving_s for start in starts],
        **{f"CPU s, {kind}": [start.cpu_s.get(kind, 0.0) for start in starts] for kind in kinds},
        "CPU s in all": [sum(start.cpu_s.values()) for start in starts],
    }
    for name, values in rows.items():
        sys.stdout.write(_row(name, [statistics.median(values), *values]))
    sys.stdout.write("The first column has the medians.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
