"""The files the rules look at: what git tracks, or everything when this is no git checkout."""

from __future__ import annotations

import ast
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Source:
    """One Python file: its path from the top of the tree, and its text."""

    path: str
    text: str

    def syntax(self) -> ast.Module:
        """Return the parsed file."""
        return ast.parse(self.text, self.path)


@cache
def tracked_files() -> tuple[str, ...]:
    """Return the paths of all files, those not yet committed but not ignored included."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    if (ROOT / ".git").exists():
        lines = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        names = sorted(set(lines.splitlines()))
    else:
        found = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
        names = sorted(str(p) for p in found if not any(part[0] == "." for part in p.parts[:-1]))
    return tuple(name for name in names if (ROOT / name).is_file())


@cache
def python_sources(*folders: str) -> tuple[Source, ...]:
    """Return the Python files in `folders` of the tree."""
    return tuple(
        Source(name, (ROOT / name).read_text(encoding="utf-8"))
        for name in tracked_files()
        if name.endswith(".py") and PurePosixPath(name).parts[0] in folders
    )
