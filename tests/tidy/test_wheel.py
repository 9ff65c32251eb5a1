"""The wheel holds only what a user needs: no simulation, no decisions, no pins of development."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.tidy.tree import ROOT, tracked_files

TOP = {"sparklog", "pyspark_sparklog.py", "pytest_sparklog.py"}
PACKAGES = {
    *("broker", "cli", "client", "cluster", "console", "coordinator", "core", "docs", "log"),
    *("protocol", "registry", "security", "shipped", "spark", "sql", "store", "testing"),
}
FILES = {"__init__.py", "py.typed"}
KIT = {
    *("__init__.py", "async_cluster.py", "broker_thread.py", "cluster.py", "cluster_view.py"),
    *("faulty_store.py", "store_faults.py", "wire_proxy.py"),
}
"""The test kit: those modules of `testing` that are not this project's simulation."""
SHIPPED = {
    "jobs": {f"{job}.py" for job in ("compact", "consume", "materialize", "produce", "retain")}
    | {"serve.py", "verify.py"},
    "conf": {
        *("docker", "helm", "kubernetes", "systemd"),
        *("grafana", "jobs.toml", "mirror-maker.properties", "spark-defaults.conf", "s3", "upkeep"),
        *("serve-kubernetes.conf", "serve-standalone.conf", "serve-yarn.conf"),
    },
}
ENDINGS = {".py", ".md", ".typed", ".tsv", ".html", ".css", ".js", ".svg", ".txt"}
"""The kinds of files in the package itself. Presets under `shipped` have any name."""


def children(names: Iterable[str], folder: str) -> set[str]:
    """Return the names directly in a folder of the wheel, `` for its top level."""
    parts = (name.removeprefix(folder).split("/") for name in names if name.startswith(folder))
    return {first for first, *_ in parts}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The names of all files in the wheel, without its metadata."""
    folder = tmp_path_factory.mktemp("wheel")
    build = ("-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder))
    subprocess.run([sys.executable, *build], cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    with ZipFile(path) as archive:
        names = archive.namelist()
    return [name for name in names if ".dist-info/" not in name]


def test_wheel_has_exactly_the_agreed_top_level_content(wheel: list[str]) -> None:
    assert children(wheel, "") == TOP
    assert children(wheel, "sparklog/") == PACKAGES | FILES


def test_wheel_has_the_test_kit_and_no_simulation(wheel: list[str]) -> None:
    assert children(wheel, "sparklog/testing/") == KIT


def test_wheel_ships_exactly_the_jobs_and_presets_of_users(wheel: list[str]) -> None:
    assert children(wheel, "sparklog/shipped/") == set(SHIPPED)
    for folder, names in SHIPPED.items():
        assert children(wheel, f"sparklog/shipped/{folder}/") == names


def test_wheel_has_no_file_of_another_kind_in_its_packages(wheel: list[str]) -> None:
    own = [name for name in wheel if not name.startswith("sparklog/shipped/")]
    assert {Path(name).suffix for name in own} <= ENDINGS


def test_wheel_has_each_tracked_module_of_its_packages(wheel: list[str]) -> None:
    folders = tuple(f"sparklog/{package}/" for package in PACKAGES - {"testing"})
    tracked = {
        name
        for name in tracked_files()
        if name.startswith(folders) and "/autodiscover/" not in name and (ROOT / name).exists()
    }
    assert len(tracked) > 400
    assert tracked - set(wheel) == set()
