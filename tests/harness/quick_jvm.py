"""Java processes that start fast: tests start many for seconds each, too few to pay for compiling.

`JAVA_TOOL_OPTIONS` reaches every Java process that a test starts, however deep. They compile once
and simply, collect garbage in one thread, and Spark's map their classes from an archive instead of
loading and checking each, which halves what a session costs. The archive (150 MB, in the virtual
environment) is made at its first use. A process with another class path, or that finds none, does
without. Their temporary files are in one folder, which ends with the run: a Java that is killed,
as many are here, leaves behind its own and, if it is Spark's driver, those of its session.

As a program this starts the session whose classes are archived.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

OPTIONS = "JAVA_TOOL_OPTIONS"
SIMPLY = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
"""A JVM that compiles simply has room for 48 MiB of code, which a long session of Spark fills."""
SCRATCH = "-Djava.io.tmpdir="
SILENTLY = "-Xlog:cds*=off"
"""Whoever cannot use the archive would say so, in the midst of its output."""
REPOSITORY = Path(__file__).parents[2]
MADE_WITHIN_S = 200
"""Or else tests go on without: they are slower then, and right all the same."""


def archive() -> Path:
    """Return where the archive of this Java and this Spark is, once it is made."""
    spark = find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home) / "bin" / "java") if home else "java") or "java"
    kept = [path.resolve() for path in (Path(spark.origin).parent / "jars", Path(java))]
    parts = [(str(path), path.stat().st_mtime_ns if path.exists() else 0) for path in kept]
    digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:12]
    return Path(sys.prefix) / f"spark-classes-{digest}.jsa"


def start_java_quickly() -> None:
    """Have all Java processes that this one starts from now on start fast."""
    ours = f"{SIMPLY} {SILENTLY} -XX:SharedArchiveFile={archive()}"
    given = os.environ.get(OPTIONS, "")
    if ours not in given:
        given = f"{given} {ours}".strip()
    if SCRATCH not in given:  # else it is of the process that started this one, and ends with it
        scratch = tempfile.mkdtemp(prefix="sparklog-tests-")
        atexit.register(shutil.rmtree, scratch, ignore_errors=True)
        given = f"{given} {SCRATCH}{scratch}"
    os.environ[OPTIONS] = given


def make_archive() -> None:
    """Make the archive, if nobody has: whoever comes second waits."""
    wanted = archive()
    with wanted.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if wanted.exists():
            return
        draft = wanted.with_suffix(".draft")
        draft.unlink(missing_ok=True)
        with suppress(subprocess.SubprocessError):
            subprocess.run(
                [sys.executable, "-m", "tests.harness.quick_jvm"],
                cwd=REPOSITORY,
                env={**os.environ, OPTIONS: f"{SIMPLY} -XX:ArchiveClassesAtExit={draft}"},
                capture_output=True,
                check=True,
                timeout=MADE_WITHIN_S,
            )
            draft.rename(wanted)


def main() -> None:
    """Do a little of all that tests do with Spark."""
    # Imported here: every run of tests imports this module, and few need Spark.
    from pyspark.sql import SparkSession  # noqa: PLC0415

    from sparklog.spark.jobs.jars import delta_conf  # noqa: PLC0415
    from sparklog.spark.jobs.session import session_builder  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        settings = {"spark.ui.enabled": "false", **delta_conf()}
        spark: SparkSession = session_builder(settings).master("local[2]").getOrCreate()
        rows = spark.range(100).selectExpr("id % 3 AS key", "CAST(id AS STRING) AS value")
        rows.write.format("delta").save(f"{folder}/table")
        rows.groupBy("key").count().mapInArrow(lambda batches: batches, "key long").collect()
        stream = spark.readStream.format("delta").load(f"{folder}/table").writeStream
        stream = stream.option("checkpointLocation", f"{folder}/checkpoint").format("noop")
        stream.trigger(availableNow=True).start().awaitTermination()
        spark.stop()


if __name__ == "__main__":
    main()
