"""Makes the archive of Spark's classes: `python -m` this module is the session that is archived."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from sparklog.core.errors import Unavailable
from sparklog.protocol.kernel_folders import private_cache_folder
from sparklog.spark.jobs.class_archive import (
    ARCHIVE,
    SILENTLY,
    archive_folders,
    archive_name,
    java_program,
)
from sparklog.spark.jobs.session import QUICK_JVM, session_builder
from sparklog.spark.jobs.started_jvm import start_quiet_jvm
from sparklog.spark.jobs.work_folder import ServeFolder, conf_of_folder, link_spark_home

MADE_WITHIN_S: Final = 240.0


def make_archive() -> Path:
    """Make the archive unless it exists, in about 25 s; return its path.

    Beside it is the home of Spark with which it was made: Java wants its jars to stay there. A
    JVM that finds the same jars under another home can map it.

    Raises:
        Unavailable: no folder can keep it, or Spark does not start here.
    """
    folder = _folder_to_write() / archive_name()
    path = folder / ARCHIVE
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second process waits, and finds it made
        if not path.is_file():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            _make(folder)
    return path


def _make(folder: Path) -> None:
    draft = folder / "draft"
    # Agents and archives that these options name would keep Java from making one.
    environment = {k: v for k, v in os.environ.items() if k != "JAVA_TOOL_OPTIONS"}  # noqa: TID251 - a child's
    options = f"{QUICK_JVM} -XX:ArchiveClassesAtExit={shlex.quote(str(draft))} {SILENTLY}"
    try:
        done = subprocess.run(  # noqa: S603 - this module, with a path of ours
            [sys.executable, "-m", __name__, str(folder), options],
            capture_output=True,
            text=True,
            check=False,
            timeout=MADE_WITHIN_S,
            env=environment,
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(
            f"Spark did not end within {MADE_WITHIN_S:.0f} s, so its classes have no archive"
        ) from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1].strip()
        raise Unavailable(
            f"Spark's classes have no archive: {last} (Spark's log is {ServeFolder(folder).log})"
        )
    if not draft.is_file():
        raise Unavailable(f"this Java keeps no archive of classes. java={java_program()}")
    draft.rename(folder / ARCHIVE)


def _folder_to_write() -> Path:
    for folder in archive_folders():
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder
    try:
        return private_cache_folder()
    except OSError as error:
        raise Unavailable(
            "the archive of Spark's classes can be kept nowhere: set XDG_CACHE_HOME to a folder "
            "that can be written"
        ) from error


def main(path: str, java_options: str) -> None:
    """Use what brokers and jobs use of Spark, in a JVM that archives its classes when it ends.

    Args:
        path: the folder of the archive; Spark's home in it stays.
        java_options: of the JVM.
    """
    folder = ServeFolder(Path(path))
    folder.scratch.mkdir()
    link_spark_home(folder.spark_home)
    settings = {
        "spark.driver.defaultJavaOptions": java_options,
        "spark.executor.extraJavaOptions": QUICK_JVM,
        "spark.master": "local-cluster[1,1,1024]",
        "spark.ui.enabled": "false",
    }
    conf = conf_of_folder(settings, folder)
    start_quiet_jvm(conf, folder)
    # A cluster's classes first. Those of an executor follow in a session that is one itself.
    for master in (settings["spark.master"], "local[2]"):
        spark = session_builder({**conf, "spark.master": master}).getOrCreate()
        spark.sparkContext.parallelize([1], 1).mapPartitions(list).collect()
        if master == "local[2]":
            _query(spark, folder.scratch)
        spark.stop()
    # Java writes the archive when it ends, when its stdin does.
    jvm: Any = SparkContext._gateway.proc  # type: ignore[union-attr]  # noqa: SLF001 - Python has no other way
    jvm.stdin.close()
    jvm.wait()
    folder.log.unlink()
    for used in (folder.scratch, folder.spark_home / "work"):
        shutil.rmtree(used)


def _query(spark: SparkSession, scratch: Path) -> None:
    rows = spark.range(100).selectExpr("id % 3 AS key", "CAST(id AS STRING) AS value")
    rows.write.parquet(f"{scratch}/rows")
    rows.groupBy("key").count().mapInArrow(lambda batches: batches, "key long").collect()
    read = spark.readStream.schema("key long, value string").parquet(f"{scratch}/rows")
    stream = read.writeStream.format("noop").option("checkpointLocation", f"{scratch}/checkpoint")
    stream.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
