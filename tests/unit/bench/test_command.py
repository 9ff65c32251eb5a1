"""Command of a benchmark: it reads options, publishes results, and reports crashes by its exit."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.bench.common.command import Benchmark, Run
from tests.bench.common.plan import Plan, RecordShape
from tests.bench.common.results import Measure


@dataclass(frozen=True)
class Sizes(Plan):
    """Of a benchmark that measures nothing."""

    shape: RecordShape


def measure(run: Run[Sizes]) -> None:
    """Take two measures, of which one crashes."""

    assert (run.work / "java").is_dir()
    assert os.environ["JAVA_TOOL_OPTIONS"].endswith(f"-Djava.io.tmpdir={run.work / 'java'}")

    def size(system: str) -> None:
        for number in range(1, run.plan.rounds + 1):
            run.results.add(Measure("size", "B"), system, run.plan.shape.total_bytes, number)

    def crash() -> None:
        raise ConnectionError("no broker")

    for system in sorted(run.systems):
        run.take("size", size, system)
    run.take("crash", crash)


BENCHMARK = Benchmark(
    name="nothing",
    about=__doc__,
    full=Sizes("full", 5, RecordShape("100 B", 10, 100)),
    quick=Sizes("quick", 1, RecordShape("100 B", 1, 100)),
    kinds=("size", "crash"),
    systems=("sparklog", "another"),
    disk="nothing",
    measure=measure,
)


def run(folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Return the exit code and what was published."""
    out = folder / "results"
    code = BENCHMARK.main([*arguments, "--out", str(out), "--work", str(folder)])
    (found,) = out.glob("*.json")
    return code, json.loads(found.read_text())


def test_a_quick_run_of_one_measure_publishes_every_figure(tmp_path: Path) -> None:
    code, found = run(tmp_path, "--quick", "--only", "size", "--rounds", "2")
    assert code == 0
    assert found["plan"] == {
        "name": "quick",
        "rounds": 2,
        "shape": {"label": "100 B", "records": 1, "value_bytes": 100},
    }
    assert [s["value"] for s in found["samples"]] == [100] * 4
    assert found["checks"] == []
    (path,) = (tmp_path / "results").glob("nothing-quick-*.md")
    assert "| measure | unit | sparklog | another |" in path.read_text()


def test_systems_can_be_picked(tmp_path: Path) -> None:
    _, found = run(tmp_path, "--only", "size", "--systems", "another")
    assert {s["system"] for s in found["samples"]} == {"another"}
    assert found["plan"]["name"] == "full"


def test_crash_of_a_measure_is_reported_and_the_rest_published(tmp_path: Path) -> None:
    code, found = run(tmp_path)
    assert code == 1
    assert len(found["samples"]) == 10
    assert found["checks"] == [
        {"name": "crash ran to its end", "passed": False, "detail": "ConnectionError: no broker"}
    ]


def test_results_are_published_when_the_benchmark_itself_fails(tmp_path: Path) -> None:
    def fail(run: Run[Sizes]) -> None:
        run.results.add(Measure("before", "B"), "sparklog", 1)
        raise RuntimeError("no cluster")

    broken = Benchmark("broken", "", *(BENCHMARK.full, BENCHMARK.quick), (), (), "", fail)
    with pytest.raises(RuntimeError, match="no cluster"):
        broken.main(["--out", str(tmp_path)])
    (path,) = tmp_path.glob("broken-full-*.json")
    assert json.loads(path.read_text())["samples"][0]["measure"] == "before"
