"""The command of a benchmark: read what is asked for, measure it, publish what was found.

A benchmark names its plans, measures and systems. A function of its own starts the systems and
takes the measures one after the other with `Run.take`. The rest is the same for all of them:
`--quick` for small sizes, and `--only` and `--systems` to pick. Every raw figure is kept. The exit
code separates a crash or a failed check from a missed target, which is a result.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

from tests.bench.common.machine import hardware, versions
from tests.bench.common.plan import SEED, Plan
from tests.bench.common.publish import publish
from tests.bench.common.results import Results, progress

SizesT = TypeVar("SizesT", bound=Plan)
Given = ParamSpec("Given")


@dataclass
class Run(Generic[SizesT]):
    """Options of a run, and its results."""

    plan: SizesT
    kinds: frozenset[str]
    systems: frozenset[str]
    work: Path
    """Folder of the data; removed at the end."""
    results: Results = field(default_factory=Results)

    def wants(self, *kinds: str) -> bool:
        """Return whether any of these measures was asked for."""
        return not self.kinds.isdisjoint(kinds)

    def take(
        self,
        kind: str,
        measure: Callable[Given, object],
        *arguments: Given.args,
        **named: Given.kwargs,
    ) -> None:
        """Take one measure, if it was requested. Report a crash, and continue with the others."""
        if not self.wants(kind):
            return
        try:
            measure(*arguments, **named)
        except Exception as error:
            self.results.check(f"{kind} ran to its end", False, f"{type(error).__name__}: {error}")


@dataclass(frozen=True)
class Benchmark(Generic[SizesT]):
    """One benchmark: `python -m tests.bench.<name>`."""

    name: str
    about: str
    """Text of the help."""
    full: SizesT
    quick: SizesT
    kinds: tuple[str, ...]
    systems: tuple[str, ...]
    disk: str
    """Disk space that the data take, as text for a reader."""
    measure: Callable[[Run[SizesT]], object]
    """Starts the systems and takes every requested measure."""

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Measure, print the table, and write JSON, Markdown and a picture.

        The results are published even if the run ends with an exception.
        """
        asked = self._parse(arguments)
        plan = self.quick if asked.quick else self.full
        if asked.rounds is not None:
            plan = replace(plan, rounds=asked.rounds)
        started = datetime.now(UTC)
        with tempfile.TemporaryDirectory(prefix=f"bench-{self.name}-", dir=asked.work) as folder:
            run = Run(plan, frozenset(asked.only), frozenset(asked.systems), Path(folder))
            facts = self._facts(run, started)
            try:
                with _javas_files_in(run.work / "java"):
                    self.measure(run)
            finally:
                name = f"{self.name}-{plan.name}-{started:%Y%m%dT%H%M%SZ}"
                publish(run.results, facts, asked.out, name)
        for check in run.results.failed_checks:
            progress(f"check failed: {check.name}: {check.detail}")
        return 1 if run.results.failed_checks else 0

    def _facts(self, run: Run[SizesT], started: datetime) -> dict[str, Any]:
        return {
            "title": f"{self.name.capitalize()} benchmark",
            "started": started.isoformat(timespec="seconds"),
            "plan": asdict(run.plan),
            "seed": SEED,
            "hardware": hardware(run.work),
            "versions": versions(),
        }

    def _parse(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        program = f"python -m tests.bench.{self.name}"
        parser = argparse.ArgumentParser(prog=program, description=self.about)
        add = parser.add_argument
        add("--quick", action="store_true", help="small sizes: minutes, rough figures")
        add("--only", nargs="+", choices=self.kinds, default=self.kinds, help="these measures")
        add("--systems", nargs="+", choices=self.systems, default=self.systems)
        add("--rounds", type=int, help="rounds of each measure")
        add("--out", type=Path, default=Path("bench-results"), help="where results go")
        add("--work", type=Path, help=f"where data go: {self.disk} (default: temporary)")
        return parser.parse_args(arguments)


@contextmanager
def _javas_files_in(folder: Path) -> Iterator[None]:
    """Have Java's temporary files in a folder that goes: killed processes leave theirs behind."""
    folder.mkdir()
    name = "JAVA_TOOL_OPTIONS"
    before = os.environ.get(name)
    os.environ[name] = f"{before or ''} -Djava.io.tmpdir={folder}".strip()
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
