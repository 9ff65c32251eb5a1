"""The jars that Spark needs beside its own: Delta Lake's and Avro's, kept here after set-up.

`make setup` fetches them once through Spark's own resolver into a folder of the virtual
environment, so that sessions start without asking any repository. Knows nothing of logs or topics.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyspark
from pyspark.conf import SparkConf
from pyspark.java_gateway import launch_gateway

from sparklog.core.errors import Unavailable

DELTA_COORDINATE = "io.delta:delta-spark_4.2_2.13:4.4.0"
"""Set here and not by delta's own helper: not every newer version of this jar resolves."""

AVRO_COORDINATE = "org.apache.spark:spark-avro_2.13:4.1.1"
"""`from_avro`. The newest that resolves; that of Spark 4.2.0 itself does not."""

COORDINATES = (DELTA_COORDINATE, AVRO_COORDINATE)

DELTA_EXTENSION = {"spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension"}
"""Settings with which a Spark application must start to write Delta tables."""

DELTA_CATALOG = {
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog"
}
"""Further settings of a session. It can be set for one session of many. A session that has it
knows no Python data sources in `CREATE TABLE … USING`, so that tables of a log need another.
"""

_VERSION = re.compile(r"-\d[^/]*\.jar$")


def jars_folder() -> Path:
    """Return the folder of fetched jars: `SPARKLOG_JARS`, else one in the virtual environment."""
    override = os.environ.get("SPARKLOG_JARS")  # noqa: TID251 - this is the edge
    return Path(override) if override else Path(sys.prefix) / "sparklog-jars"


def delta_conf(folder: Path | None = None, *, catalog: bool = True) -> dict[str, str]:
    """Return the Spark configuration that makes Delta tables (and Avro) work in a new application.

    Without the `catalog` its sessions have to set that (`DELTA_CATALOG`) to write such tables.
    With the jars on this machine it names them, and the session needs no network. Without them
    (sparklog installed by pip alone) it names the coordinate, which Spark then resolves itself.
    """
    return {**DELTA_EXTENSION, **(DELTA_CATALOG if catalog else {}), **jars_settings(folder)}


def jars_settings(folder: Path | None = None) -> dict[str, str]:
    """Return the setting that brings the jars: those of this machine, else their coordinates."""
    jars = sorted((folder or jars_folder()).glob("*.jar"))
    if not jars:
        return {"spark.jars.packages": ",".join(COORDINATES)}
    return {"spark.jars": ",".join(str(jar) for jar in jars)}


def fetch_jars(coordinates: Iterable[str], folder: Path) -> list[Path]:
    """Resolve `coordinates` with all they need, and leave what Spark itself lacks in `folder`.

    Spark's own resolver does it, with its configuration and its cache. An artifact that Spark ships
    in some version is left out: Spark's copy comes first on the class path anyway. The folder
    appears whole or not at all.

    Raises:
        Unavailable: a coordinate did not resolve; check the network and run the set-up again.
    """
    resolved = _resolve(list(coordinates))
    shipped = {artifact_name(jar.name) for jar in _spark_jars().glob("*.jar")}
    staging = folder.with_name(f"{folder.name}.{os.getpid()}")
    staging.mkdir(parents=True)
    for jar in resolved:
        # The resolver names a copy <organization>_<artifact>-<version>.jar.
        name = artifact_name(jar.name)
        if not any(name.endswith(f"_{artifact}") for artifact in shipped):
            shutil.copyfile(jar, staging / jar.name)
    shutil.rmtree(folder, ignore_errors=True)
    staging.rename(folder)
    return sorted(folder.glob("*.jar"))


def artifact_name(jar: str) -> str:
    """Return a jar's file name without its version: `snappy-java` for `snappy-java-1.1.jar`."""
    return _VERSION.sub("", jar)


def _spark_jars() -> Path:
    return Path(pyspark.__file__).parent / "jars"


def _resolve(coordinates: list[str]) -> list[Path]:
    """Return local copies of all that the coordinates need, by a JVM without a session."""
    conf = SparkConf(loadDefaults=False)
    conf.set("spark.jars.packages", ",".join(coordinates))
    try:
        gateway = launch_gateway(conf)  # type: ignore[no-untyped-call]
    except Exception as error:  # PySpark raises several kinds; its message holds no cause
        raise Unavailable(
            "Spark could not resolve its jars: check the network, then run the set-up again. "
            f"coordinates={','.join(coordinates)}"
        ) from error
    try:
        urls = str(gateway.jvm.java.lang.System.getProperty("spark.jars"))
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
    return [Path(unquote(urlsplit(url).path)) for url in urls.split(",")]


if __name__ == "__main__":
    for path in fetch_jars(COORDINATES, jars_folder()):
        sys.stdout.write(f"{path.name}\n")
