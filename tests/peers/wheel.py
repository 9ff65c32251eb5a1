"""The product as `pip install` leaves it: its wheel in a fresh environment, without the repository.

Its dependencies are linked from the environment of the tests, so that nothing is fetched. They are
those of its requirements and of the given extras: a module that pip would not install is not there.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = Path(__file__).resolve().parents[2]


def install_wheel(folder: Path, extras: Iterable[str] = ()) -> Path:
    """Build the wheel, install it in a new environment, and return its folder of programs."""
    _python("-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder))
    (wheel,) = folder.glob("*.whl")
    environment = folder / "environment"
    _python("-m", "venv", "--without-pip", str(environment))
    _link_dependencies(folder / "dependencies", environment, set(extras))
    python = str(environment / "bin" / "python")
    _python(
        *("-m", "pip", "--disable-pip-version-check", "--python", python),
        *("install", "--quiet", "--no-index", "--no-deps", str(wheel)),
    )
    return environment / "bin"


def _link_dependencies(folder: Path, environment: Path, extras: set[str]) -> None:
    """Link modules into `folder`, the end of the environment's path, and Spark's programs."""
    folder.mkdir()
    for one in _needed_by("sparklog", extras).values():
        for top in {path.parts[0] for path in one.files or () if path.parts[0] != ".."}:
            link, target = folder / top, Path(str(one.locate_file(top)))
            if top != "__pycache__" and not link.exists():
                link.symlink_to(target)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(f"{folder}\n")
    for entry in (Path(sys.prefix) / "bin").glob("*spark*"):
        if entry.name != "sparklog":
            (environment / "bin" / entry.name).symlink_to(entry)
    # As `python -m sparklog.spark.jars` fetches them.
    (environment / "sparklog-jars").symlink_to(Path(sys.prefix) / "sparklog-jars")


def _needed_by(name: str, extras: set[str]) -> dict[str, Distribution]:
    """Return what a distribution needs, and all that this needs, by name."""
    found: dict[str, Distribution] = {}
    left = _requirements(distribution(name), extras)
    while left:
        need = left.pop()
        if need.name not in found:
            found[need.name] = distribution(need.name)
            left += _requirements(found[need.name], need.extras)
    return found


def _requirements(one: Distribution, extras: set[str]) -> list[Requirement]:
    needs = [Requirement(text) for text in one.requires or ()]
    return [
        need
        for need in needs
        if need.marker is None or any(need.marker.evaluate({"extra": e}) for e in (*extras, ""))
    ]


def _python(*words: str) -> None:
    done = subprocess.run(
        [sys.executable, *words], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
