"""Java processes that start fast: tests start many for seconds each, too few to pay for compiling.

`JAVA_TOOL_OPTIONS` reaches every Java process that a test starts, however deep. They compile once
and simply, and collect garbage in one thread. Spark's map their classes from the archive that
set-up makes. Their temporary files are in one folder, which ends with the run. A killed Java leaves
its own behind, and a killed driver of Spark those of its session.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

from sparklog.spark.jobs.class_archive import archive_option

OPTIONS = "JAVA_TOOL_OPTIONS"
SIMPLY = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
"""By default simply compiled code has space for 48 MiB, which a long session of Spark fills."""
SCRATCH = "-Djava.io.tmpdir="


def start_java_quickly() -> None:
    """Have all Java processes that this one starts from now on start fast."""
    ours = f"{SIMPLY} {archive_option()}".strip()
    given = os.environ.get(OPTIONS, "")
    if ours not in given:
        given = f"{given} {ours}".strip()
    if SCRATCH not in given:  # else it is of the process that started this one, and ends with it
        scratch = tempfile.mkdtemp(prefix="sparklog-tests-")
        atexit.register(shutil.rmtree, scratch, ignore_errors=True)
        given = f"{given} {SCRATCH}{scratch}"
    os.environ[OPTIONS] = given
