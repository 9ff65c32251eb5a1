"""The jars of a peer: resolved once by Spark's own resolver, then kept on this machine.

A `JarSet` is a named closure of Maven coordinates. The first use asks the repositories that Spark
is configured with; every later use finds the folder and needs no network. Only tests and benchmarks
need these jars, so set-up does not fetch them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyspark

RESOLVE_TIMEOUT_S = 1200
SPARK_HOME = Path(pyspark.__file__).parent
DEFAULT_CACHE = Path(sys.prefix) / "kafka-jars"

KAFKA_VERSION = "4.4.0"
KAFKA_APPLICATIONS_VERSION = "4.3.1"
# The newest for which Maven Central has the examples of Streams and the connectors of Connect.
LOG4J_VERSION = "2.25.4"
SPARK_KAFKA_VERSION = "4.2.0"
# The connector asks for a token provider of its own version, which is not published.
TOKEN_PROVIDER = "org.apache.spark:spark-token-provider-kafka-0-10_2.13"
TOKEN_PROVIDER_VERSION = "4.0.0"


@dataclass(frozen=True)
class Resolution:
    """One question to the resolver: coordinates with all they need, but for what is excluded."""

    coordinates: tuple[str, ...]
    excluded: tuple[str, ...] = ()
    only: str = ""
    """Keep only jars whose name holds this text; empty keeps all."""


@dataclass(frozen=True)
class JarSet:
    """A class path by name: what several resolutions find together."""

    name: str
    resolutions: tuple[Resolution, ...]
    spark_jars: tuple[str, ...] = ()
    """Patterns of jars taken from Spark's own, which its resolver always leaves out."""

    def folder(self, cache: Path = DEFAULT_CACHE) -> Path:
        """Return where the jars are kept; another set of coordinates has another folder."""
        digest = hashlib.sha256(repr(self).encode()).hexdigest()[:12]
        return cache / f"{self.name}-{digest}"

    def jars(self, cache: Path = DEFAULT_CACHE) -> list[Path]:
        """Return the jars, fetching them on the first use."""
        folder = self.folder(cache)
        if not folder.is_dir():
            self._fetch(folder)
        return [*sorted(folder.glob("*.jar")), *self._from_spark()]

    def class_path(self, cache: Path = DEFAULT_CACHE) -> str:
        """Return the jars as the argument of `java -cp`."""
        return os.pathsep.join(str(jar) for jar in self.jars(cache))

    def _from_spark(self) -> list[Path]:
        return [jar for p in self.spark_jars for jar in sorted((SPARK_HOME / "jars").glob(p))]

    def _fetch(self, folder: Path) -> None:
        """Make the folder, whole or not at all."""
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetching-") as scratch:
            found = Path(scratch) / "jars"
            found.mkdir()
            for number, resolution in enumerate(self.resolutions):
                for jar in _resolve(resolution, Path(scratch) / f"ivy-{number}"):
                    shutil.copyfile(jar, found / jar.name)
            try:
                found.rename(folder)
            except OSError:
                if not folder.is_dir():  # else another process was faster, with the same jars
                    raise


KAFKA_BROKER = JarSet(
    "kafka",
    (
        Resolution(
            (
                f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
                f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
                f"org.apache.logging.log4j:log4j-slf4j-impl:{LOG4J_VERSION}",
                f"org.apache.logging.log4j:log4j-core:{LOG4J_VERSION}",
            )
        ),
    ),
    spark_jars=("scala-library-2.13.*.jar",),
)
"""A broker and Kafka's own command-line tools."""

KAFKA_STREAMS = JarSet(
    "kafka-streams",
    (
        Resolution(
            (
                f"org.apache.kafka:kafka-streams-examples:{KAFKA_APPLICATIONS_VERSION}",
                f"org.apache.kafka:kafka-streams:{KAFKA_APPLICATIONS_VERSION}",
                f"org.apache.logging.log4j:log4j-slf4j-impl:{LOG4J_VERSION}",
                f"org.apache.logging.log4j:log4j-core:{LOG4J_VERSION}",
            )
        ),
    ),
)
"""Kafka Streams with its example applications."""

KAFKA_CONNECT = JarSet(
    "kafka-connect",
    (
        Resolution(
            (
                f"org.apache.kafka:connect-runtime:{KAFKA_APPLICATIONS_VERSION}",
                f"org.apache.kafka:connect-file:{KAFKA_APPLICATIONS_VERSION}",
                f"org.apache.kafka:connect-mirror:{KAFKA_APPLICATIONS_VERSION}",
                f"org.apache.logging.log4j:log4j-slf4j-impl:{LOG4J_VERSION}",
                f"org.apache.logging.log4j:log4j-core:{LOG4J_VERSION}",
            )
        ),
    ),
)
"""Kafka Connect with its connectors for files, and MirrorMaker."""

SPARK_KAFKA_CONNECTOR = JarSet(
    "spark-kafka-connector",
    (
        Resolution(
            (f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK_KAFKA_VERSION}",),
            excluded=(TOKEN_PROVIDER,),
        ),
        Resolution((f"{TOKEN_PROVIDER}:{TOKEN_PROVIDER_VERSION}",), only="token-provider"),
    ),
)
"""Spark's Kafka source and sink, for `spark.jars`."""


def _resolve(resolution: Resolution, ivy: Path) -> list[Path]:
    """Return the jars of one resolution, found by a spark-submit that then does nothing."""
    ivy.mkdir(parents=True)
    nothing = ivy / "nothing.py"
    nothing.write_text("")
    options = [f"spark.jars.ivy={ivy}"]
    if resolution.excluded:
        options.append(f"spark.jars.excludes={','.join(resolution.excluded)}")
    done = subprocess.run(
        [
            str(SPARK_HOME / "bin" / "spark-submit"),
            *(word for option in options for word in ("--conf", option)),
            *("--packages", ",".join(resolution.coordinates)),
            str(nothing),
        ],
        # Its Python is this one, not the `python3` of PATH.
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=RESOLVE_TIMEOUT_S,
        check=False,
    )
    jars = [j for j in sorted((ivy / "jars").glob("*.jar")) if resolution.only in j.name]
    if done.returncode != 0 or not jars:
        raise RuntimeError(_complaint(resolution.coordinates, done.stderr))
    return jars


def _complaint(coordinates: Sequence[str], stderr: str) -> str:
    # Spark's own repository of packages is not found from everywhere, and not needed.
    lines = [line.strip() for line in stderr.splitlines() if "module not found" in line]
    return (
        "Spark's resolver did not find the jars of a peer; check the network, then run this again. "
        f"coordinates={','.join(coordinates)} first_problems={lines[:5]}"
    )
