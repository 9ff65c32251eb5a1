"""The folder of a launcher goes with it, and what killed launchers left goes with the next one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.spark.jobs.class_archive import archive_option
from sparklog.spark.jobs.work_folder import conf_of_folder, serve_folder
from sparklog.spark.serve.arguments import ONE_MACHINE_CONF

LEAVE_ONE = """
import os, signal, sys
from pathlib import Path
from sparklog.spark.serve.arguments import ONE_MACHINE_CONF
from sparklog.spark.jobs.class_archive import archive_option
from sparklog.spark.jobs.work_folder import conf_of_folder, serve_folder
with serve_folder(Path(sys.argv[1])):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def folders(parent: Path) -> list[Path]:
    return sorted(parent.glob("serve-*"))


def test_a_folder_has_a_home_of_spark_with_a_work_of_its_own(tmp_path: Path) -> None:
    with serve_folder(tmp_path) as folder:
        assert (folder.spark_home / "bin" / "spark-submit").exists()
        assert (folder.spark_home / "jars").is_dir()
        work = folder.spark_home / "work"
        assert work.is_dir()
        assert not work.is_symlink()
        assert folder.scratch.is_dir()
    assert folders(tmp_path) == []


def test_sparks_and_javas_temporary_files_are_in_the_folder(tmp_path: Path) -> None:
    with serve_folder(tmp_path) as folder:
        conf = conf_of_folder(ONE_MACHINE_CONF, folder)
    assert conf["spark.local.dir"] == str(folder.scratch)
    for name in ("spark.driver.defaultJavaOptions", "spark.executor.extraJavaOptions"):
        own = f"-Djava.io.tmpdir={folder.scratch} {ONE_MACHINE_CONF[name]}"
        assert conf[name] == f"{archive_option()} {own}"
    assert conf_of_folder({"spark.local.dir": "/disk"}, folder)["spark.local.dir"] == "/disk"


def test_folder_of_a_failed_launcher_stays_until_the_next_start(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="failed"), serve_folder(tmp_path) as folder:
        raise RuntimeError("failed")
    assert folders(tmp_path) == [folder.path]
    with serve_folder(tmp_path) as another:
        assert folders(tmp_path) == [another.path]


def test_folder_of_a_killed_launcher_is_removed_by_the_next_start(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", LEAVE_ONE, str(tmp_path)], check=False)
    (left,) = folders(tmp_path)
    with serve_folder(tmp_path):
        assert not left.exists()


def test_a_folder_of_a_launcher_that_runs_is_left_alone(tmp_path: Path) -> None:
    with serve_folder(tmp_path) as one, serve_folder(tmp_path) as two:
        assert folders(tmp_path) == sorted([one.path, two.path])


def test_folder_stays_when_its_work_has_failed(tmp_path: Path) -> None:
    with serve_folder(tmp_path, failed=lambda: True) as folder:
        folder.log.write_text("the reason")
    assert folder.log.read_text() == "the reason"
    with serve_folder(tmp_path):
        assert not folder.path.exists()
