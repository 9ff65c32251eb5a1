"""An archive of Spark's classes, which `sparklog warm-up` makes: a JVM that maps it starts faster.

A JVM that starts Spark loads and checks 10,000 classes, one after the other. Java can keep them
in a file and map it (class data sharing). That halves what the driver and each executor need until
they are ready. The file has 120 MB. It fits one Java and one installation of Spark, which its name
states. A JVM for which it does not fit ignores it and starts as before.

Source: the `java` command's page, "-XX:ArchiveClassesAtExit" and "-XX:SharedArchiveFile".
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from pyspark.find_spark_home import _find_spark_home

from sparklog.protocol.kernel_folders import private_cache_folder, private_cache_path

ARCHIVE: Final = "classes.jsa"
SILENTLY: Final = "-Xlog:cds*=off"
"""Else a JVM for which the archive does not fit says so in the midst of its output."""


def archive_option() -> str:
    """Return the option of `java` that maps the archive, or nothing where there is none."""
    name = archive_name()
    for folder in archive_folders():
        path = folder / name / ARCHIVE
        if path.is_file():
            return f"-XX:SharedArchiveFile={shlex.quote(str(path))} {SILENTLY}"
    return ""


def with_archive(conf: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    """Return settings of Spark whose Java options of these names map the archive."""
    option = archive_option()
    mapped = {name: f"{option} {conf[name]}" for name in names if option and name in conf}
    return {**conf, **mapped}


def archive_name() -> str:
    """Return the name of the folder with the archive of this Java and this Spark."""
    kept = [path.resolve() for path in (Path(_find_spark_home()) / "jars", Path(java_program()))]
    parts = [(str(path), path.stat().st_mtime_ns if path.exists() else 0) for path in kept]
    digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:12]
    return f"sparklog-spark-{digest}"


def java_program() -> str:
    """Return the `java` that Spark starts."""
    home = os.environ.get("JAVA_HOME")  # noqa: TID251 - Spark reads it as well
    return shutil.which(str(Path(home) / "bin" / "java") if home else "java") or "java"


def archive_folders() -> Iterator[Path]:
    """Yield where archives are kept: the virtual environment, the user's cache, a private folder.

    Classes are code: each folder is one that only the user or the installer can write.
    """
    if sys.prefix != sys.base_prefix:
        yield Path(sys.prefix)
    environment = os.environ  # noqa: TID251 - this is the edge
    cache = environment.get("XDG_CACHE_HOME")
    if cache or environment.get("HOME"):
        yield (Path(cache) if cache else Path.home() / ".cache") / "sparklog"
    with suppress(OSError):
        if private_cache_path().exists():
            yield private_cache_folder()
