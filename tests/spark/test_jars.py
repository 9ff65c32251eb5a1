"""Jars are resolved once by Spark's own resolver, and sessions then need no network."""

from __future__ import annotations

import gc
import zipfile
from pathlib import Path

import pytest

from sparklog.core.errors import Unavailable
from sparklog.spark.jobs.jars import (
    AVRO_COORDINATE,
    DELTA_COORDINATE,
    artifact_name,
    delta_conf,
    fetch_jars,
    jars_folder,
)

POM = """<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId>
<artifactId>{name}</artifactId><version>{version}</version><dependencies>{needs}</dependencies>
</project>"""
NEED = """<dependency><groupId>org.example</groupId><artifactId>{name}</artifactId>
<version>{version}</version></dependency>"""
SETTINGS = """<ivysettings><settings defaultResolver="folder"/>
<caches defaultCacheDir="{folder}/cache"/>
<resolvers><filesystem name="folder" m2compatible="true">
<ivy pattern="{pattern}.pom"/><artifact pattern="{pattern}.[ext]"/>
</filesystem></resolvers></ivysettings>"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository in a folder, made the only one that Spark's resolver asks."""
    folder = tmp_path / "repository"
    pattern = f"{folder}/[organisation]/[module]/[revision]/[module]-[revision]"
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(SETTINGS.format(folder=tmp_path, pattern=pattern))
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(
        f"spark.jars.ivySettings {settings}\nspark.jars.ivy {tmp_path}/ivy\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(conf))
    # One that Spark ships in another version, and one that it does not have.
    _publish(folder, "snappy-java", "0.1", needs="")
    _publish(folder, "own", "2.0", needs=NEED.format(name="snappy-java", version="0.1"))
    return folder


def _publish(repository: Path, name: str, version: str, needs: str) -> None:
    folder = repository / "org" / "example" / name / version
    folder.mkdir(parents=True)
    pom = POM.format(name=name, version=version, needs=needs)
    (folder / f"{name}-{version}.pom").write_text(pom)
    with zipfile.ZipFile(folder / f"{name}-{version}.jar", "w") as jar:
        jar.writestr("content", name)


def test_jars_that_spark_lacks_are_fetched_and_its_own_left_out(
    repository: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "jars"
    folder.mkdir()
    (folder / "left-from-before-1.0.jar").touch()
    fetched = fetch_jars(["org.example:own:2.0"], folder)
    assert [jar.name for jar in fetched] == ["org.example_own-2.0.jar"]
    assert [path.name for path in tmp_path.glob("jars*")] == ["jars"]


# PySpark leaves the pipe to a JVM that did not start open, for the collector to find.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_unresolvable_coordinate_leaves_the_folder_unchanged(
    repository: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "jars"
    folder.mkdir()
    (folder / "left-from-before-1.0.jar").touch()
    with pytest.raises(Unavailable, match=r"check the network.* coordinates=org.example:gone:1.0"):
        fetch_jars(["org.example:gone:1.0"], folder)
    gc.collect()
    assert [path.name for path in folder.iterdir()] == ["left-from-before-1.0.jar"]


def test_session_with_fetched_jars_uses_no_repository(tmp_path: Path) -> None:
    (tmp_path / "b-1.jar").touch()
    (tmp_path / "a-1.jar").touch()
    conf = delta_conf(tmp_path)
    assert conf["spark.jars"] == f"{tmp_path}/a-1.jar,{tmp_path}/b-1.jar"
    assert "spark.jars.packages" not in conf
    assert "DeltaCatalog" in conf["spark.sql.catalog.spark_catalog"]
    without = delta_conf(tmp_path, catalog=False)
    assert conf.keys() - without.keys() == {"spark.sql.catalog.spark_catalog"}


def test_a_session_without_fetched_jars_lets_spark_resolve_them(tmp_path: Path) -> None:
    conf = delta_conf(tmp_path / "never-made")
    assert conf["spark.jars.packages"] == f"{DELTA_COORDINATE},{AVRO_COORDINATE}"
    assert "spark.jars" not in conf


def test_the_folder_of_jars_can_be_named_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARKLOG_JARS", str(tmp_path))
    assert jars_folder() == tmp_path
    monkeypatch.delenv("SPARKLOG_JARS")
    assert jars_folder().name == "sparklog-jars"


@pytest.mark.parametrize(
    ("jar", "artifact"),
    [
        ("snappy-java-1.1.10.7.jar", "snappy-java"),
        ("io.delta_delta-spark_4.2_2.13-4.4.0.jar", "io.delta_delta-spark_4.2_2.13"),
        ("hadoop-client-api-3.5.0.jar", "hadoop-client-api"),
        ("listenablefuture-9999.0-empty-to-avoid-conflict.jar", "listenablefuture"),
        ("noversion.jar", "noversion.jar"),
    ],
)
def test_an_artifact_is_the_file_name_without_its_version(jar: str, artifact: str) -> None:
    assert artifact_name(jar) == artifact
