"""The demo's own use of the `sparklog` command: what is typed is shown, and what it says."""

from __future__ import annotations

import sys

from sparklog.spark.demo.scene import Scene

WIDTH = 150


def sparklog(scene: Scene, *words: str) -> None:
    """Run the command.

    Raises:
        ChildFailed: its exit code is not 0.
    """
    scene.narrator.command(" ".join(["sparklog", *words]))
    child = scene.children.start([sys.executable, "-m", "sparklog.cli", *words], scene.environment)
    for line in child.lines():
        scene.narrator.tell(_cut(line.rstrip()))
    child.finish()


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"
