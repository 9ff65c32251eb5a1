"""The files for other schedulers in conf/upkeep: each is understood, and so is each call in it."""

from __future__ import annotations

import ast
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

from sparklog.spark.schedule.cron import parse_cron, zone_of
from sparklog.spark.schedule.job_kinds import kind_of

FOLDER = Path(__file__).parents[4] / "conf" / "upkeep"
JOBS = FOLDER.parents[1] / "jobs"
KINDS = ["compact", "retain", "verify"]


@pytest.fixture(autouse=True)
def _log_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARKLOG_ROOT", "s3://bucket/log")


def accepted(program: str, words: Sequence[str]) -> str:
    """Return the kind of the job that a call runs; its own parser takes the words."""
    path = PurePosixPath(program)
    assert (JOBS / path.name).exists()
    job = kind_of(path.stem).parsed(words)
    assert job.root == "s3://bucket/log"
    return path.stem


def call_in(words: Sequence[str]) -> str:
    """Return the kind of the job in a call of spark-submit with options that take a value."""
    at = next(n for n, word in enumerate(words) if word.endswith("spark-submit")) + 1
    while words[at].startswith("--"):
        assert words[at] in ("--master", "--conf", "--properties-file")
        at += 2
    return accepted(words[at], words[at + 1 :])


def test_every_file_is_tested() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == [
        "airflow_dag.py", "crontab", "kubernetes.yaml", "sparklog@.service",
        "sparklog@compact.timer", "sparklog@retain.timer", "sparklog@verify.timer",
    ]  # fmt: skip


def test_crontab_of_the_presets_is_valid() -> None:
    kinds = []
    for line in (FOLDER / "crontab").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        words = shlex.split(line)
        if "=" in words[0]:
            assert words[0].partition("=")[0].isupper()
            continue
        assert "%" not in line, "cron takes it for the end of the line"
        parse_cron(" ".join(words[:5]))
        kinds.append(call_in(words[5:]))
    assert sorted(set(kinds)) == KINDS


@pytest.mark.parametrize("session", ["/dev/full", "/dev/null", "/dev/none"])
def test_crontab_job_runs_though_its_session_keeps_its_priority(session: str) -> None:
    env = {"PATH": os.defpath, "SPARKLOG": "/", "LAST": "echo called:", "SESSION": session}
    lines = [line for line in (FOLDER / "crontab").read_text().splitlines() if "$LAST" in line]
    assert len(lines) >= len(KINDS)
    for line in lines:
        command = line.split(maxsplit=5)[5]
        done = subprocess.run(
            ["/bin/sh", "-c", command], env=env, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout[:13]) == (0, "called: flock"), done.stderr


def test_the_units_of_systemd(tmp_path: Path) -> None:
    service = (FOLDER / "sparklog@.service").read_text()
    (start,) = [line for line in service.splitlines() if line.startswith("ExecStart=")]
    timers = sorted(path.stem.partition("@")[2] for path in FOLDER.glob("*.timer"))
    assert timers == KINDS
    for kind in timers:
        assert call_in(shlex.split(start.removeprefix("ExecStart=").replace("%i", kind))) == kind
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        return  # the calls are checked all the same
    program = shlex.split(start.removeprefix("ExecStart="))[0]
    here = service.replace(program, str(shutil.which("true"))).replace("User=sparklog", "User=root")
    (tmp_path / "sparklog@.service").write_text(here)
    for path in FOLDER.glob("*.timer"):
        shutil.copy(path, tmp_path)
    units = [str(tmp_path / f"sparklog@{kind}.{what}") for kind in timers
             for what in ("service", "timer")]  # fmt: skip
    done = subprocess.run([analyze, "verify", *units], capture_output=True, text=True, check=False)
    ours = [line for line in done.stderr.splitlines() if "sparklog@" in line]
    assert (done.returncode, ours) == (0, []), done.stderr


def test_the_jobs_of_kubernetes() -> None:
    kinds = []
    for document in yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()):
        assert (document["apiVersion"], document["kind"]) == ("batch/v1", "CronJob")
        spec: dict[str, Any] = document["spec"]
        parse_cron(spec["schedule"], zone_of(spec["timeZone"]))
        assert spec["concurrencyPolicy"] == "Forbid"
        pod = spec["jobTemplate"]["spec"]["template"]["spec"]
        assert pod["restartPolicy"] == "Never"
        (container,) = pod["containers"]
        kinds.append(call_in([*container["command"], *container["args"]]))
        assert document["metadata"]["name"] == f"sparklog-{kinds[-1]}"
    assert sorted(kinds) == KINDS


def test_the_dags_of_airflow() -> None:
    text = (FOLDER / "airflow_dag.py").read_text()
    compile(text, "airflow_dag.py", "exec")
    calls = list(_calls(ast.parse(text)))
    tasks = [given for name, given in calls if name == "SparkSubmitOperator"]
    assert sorted(accepted(t["application"], t["application_args"]) for t in tasks) == KINDS
    dags = [given for name, given in calls if name == "DAG"]
    assert len(dags) == len(tasks)
    for dag in dags:
        parse_cron(dag["schedule"])


def _calls(tree: ast.Module) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every call by name, with those of its arguments that are written out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            written = {}
            for keyword in node.keywords:
                if keyword.arg is not None and isinstance(keyword.value, ast.Constant | ast.List):
                    written[keyword.arg] = ast.literal_eval(keyword.value)
            yield ast.unparse(node.func), written
