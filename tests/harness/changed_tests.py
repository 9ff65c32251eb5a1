"""The unit tests of the packages that changed since a commit: `make test-fast` runs them.

A change below `sparklog/broker/wal/` selects `tests/unit/broker/wal/`; one of a test file selects
that file. House rules (`tests/tidy`) always run. Prints one path per line.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ALWAYS = "tests/tidy"
UNIT = "tests/unit"


def changed_files(root: Path) -> list[str]:
    """Return files that differ from where this branch left main, new ones included."""

    def git(*words: str) -> list[str]:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    branches = git("for-each-ref", "--format=%(refname:short)", "refs/heads/main")
    on_main = git("rev-parse", "--abbrev-ref", "HEAD") == branches
    base = git("merge-base", "HEAD", "main")[0] if branches and not on_main else "HEAD~1"
    return git("diff", "--name-only", base) + git("ls-files", "--others", "--exclude-standard")


def unit_tests_for(changed: Iterable[str], root: Path) -> list[str]:
    """Return the tests for changed files, as paths below `root` that exist."""
    chosen = {ALWAYS}
    for name in changed:
        path = Path(name)
        if path.suffix != ".py":
            continue
        if path.parts[0] == "tests":
            if path.name.startswith("test_") and path.parts[1] in ("unit", "tidy", "golden"):
                chosen.add(name)
        elif path.parts[0] == "sparklog":
            chosen.add(str(Path(UNIT, *path.parent.parts[1:])))
    existing = {name for name in chosen if (root / name).exists() and name != UNIT}
    return sorted(name for name in existing if not _is_below_another(name, existing))


def _is_below_another(name: str, names: set[str]) -> bool:
    return any(str(parent) in names for parent in Path(name).parents)


if __name__ == "__main__":
    sys.stdout.write("\n".join(unit_tests_for(changed_files(ROOT), ROOT)) + "\n")
