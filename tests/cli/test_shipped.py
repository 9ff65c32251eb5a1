"""Jobs and presets that come with sparklog. tests/docs/test_serving.py does the same in a wheel."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.core.shipped_files import JOB_NAMES
from sparklog.spark.jobs.jars import COORDINATES
from tests.cli.conftest import Cli

PROJECT = Path(__file__).parents[2]


def test_every_job_of_the_repository_has_a_path_and_a_name_to_run(file_cli: Cli) -> None:
    assert sorted(path.stem for path in (PROJECT / "jobs").glob("*.py")) == list(JOB_NAMES)
    for name in JOB_NAMES:
        assert file_cli.ok("jobs", "--path", name).lines == [str(PROJECT / "jobs" / f"{name}.py")]
    assert "invalid choice" in file_cli.misused("jobs", "--path", "nothing")


def test_run_hands_options_to_the_job_and_returns_its_exit_code(file_cli: Cli) -> None:
    assert "usage: verify.py" in file_cli.ok("run", "verify", "--help").text
    refused = file_cli("run", "verify", "--nope")
    assert (refused.code, refused.errors.splitlines()[-1]) == (
        2, "verify.py: error: unrecognized arguments: --nope",
    )  # fmt: skip
    assert "invalid choice" in file_cli.misused("run", "nothing")


def test_conf_copies_presets_and_refuses_to_write_over_a_changed_one(
    file_cli: Cli, tmp_path: Path
) -> None:
    folder = tmp_path / "conf"
    copied = file_cli.ok("conf", "--copy", str(folder)).lines
    assert len(copied) == len(file_cli.ok("conf", "--list").lines)
    assert sorted(map(Path, copied)) == sorted(p for p in folder.rglob("*") if p.is_file())
    assert (folder / "jobs.toml").read_bytes() == (PROJECT / "conf/jobs.toml").read_bytes()
    assert not (folder / "constraints.txt").exists()
    file_cli.ok("conf", "--copy", str(folder))
    (folder / "jobs.toml").write_text("# mine\n")
    (folder / "serve-yarn.conf").unlink()
    assert "jobs.toml is there, and differs" in file_cli.fails("conf", "--copy", str(folder))
    assert (folder / "jobs.toml").read_text() == "# mine\n"
    assert not (folder / "serve-yarn.conf").exists(), "nothing is copied then"


def test_shipped_spark_defaults_name_jars_that_are_found(
    file_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in (("empty", None), ("full", b"")):
        jars = tmp_path / name
        jars.mkdir()
        if content is not None:
            (jars / "delta.jar").write_bytes(content)
        monkeypatch.setenv("SPARKLOG_JARS", str(jars))
        file_cli.ok("conf", "--copy", str(tmp_path / f"conf-{name}"))
    without = (tmp_path / "conf-empty" / "spark-defaults.conf").read_text().splitlines()
    assert ["spark.jars.packages", ",".join(COORDINATES)] in [line.split() for line in without]
    found = (tmp_path / "conf-full" / "spark-defaults.conf").read_text().splitlines()
    assert ["spark.jars", str(tmp_path / "full" / "delta.jar")] in [line.split() for line in found]
    assert not [line for line in (*without, *found) if ".venv" in line and line[0] != "#"]
