"""The archive of Spark's classes is mapped where it fits, and Java starts without it elsewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.spark.jobs import class_archive
from sparklog.spark.jobs.class_archive import archive_name, archive_option, with_archive
from sparklog.spark.jobs.work_folder import link_spark_home

NAMES = ("spark.driver.defaultJavaOptions",)


def class_path(home: Path) -> str:
    """Return the class path with which Spark's launcher starts a JVM of a home."""
    jars = home / "jars"
    first = next(jars.glob("slf4j-api-*.jar"))
    return f"{home / 'conf'}:{first}:{jars}/*"


def java(class_path: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Return what a JVM said that ends when it cannot map its archive."""
    command = ["java", "-XX:+UseSerialGC", *options, "-Xshare:on", "-cp", class_path, "-version"]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={}, executable=program()
    )


def program() -> str:
    """Return the path of the Java that Spark starts."""
    return class_archive.java_program()


def test_java_maps_the_archive_when_spark_has_another_home(tmp_path: Path) -> None:
    option, _ = archive_option().split()  # without the one that keeps Java silent
    link_spark_home(tmp_path / "home")
    fits = java(class_path(tmp_path / "home"), option)
    assert fits.returncode == 0, fits.stdout + fits.stderr
    other = java(str(tmp_path), option)
    assert "shared class paths mismatch" in other.stdout + other.stderr


def test_java_starts_without_a_word_when_the_archive_does_not_fit(tmp_path: Path) -> None:
    command = [program(), *archive_option().split(), "-cp", str(tmp_path), "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={})
    assert done.stdout == ""
    assert "archive" not in done.stderr


def test_settings_name_the_archive_before_the_options_they_had() -> None:
    conf = {NAMES[0]: "-Xss4m", "spark.executor.extraJavaOptions": "-Xss2m"}
    mapped = with_archive(conf, NAMES)
    assert mapped == {**conf, NAMES[0]: f"{archive_option()} -Xss4m"}
    assert with_archive({}, NAMES) == {}, "Spark's own default options stay in force"


def test_jvm_gets_no_option_without_an_archive(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(class_archive, "private_cache_path", lambda: tmp_path / "none")
    assert archive_option() == ""
    assert with_archive({NAMES[0]: "-Xss4m"}, NAMES) == {NAMES[0]: "-Xss4m"}


def test_another_java_has_an_archive_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ours = archive_name()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert archive_name() != ours
