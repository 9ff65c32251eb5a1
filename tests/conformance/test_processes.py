"""Contract of `ObjectStore` for several processes on one root."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.store.base import ObjectStore

HERE = Path(__file__).parent
RACERS = 8
NAMES = 20
WITHIN_S = 400.0


@pytest.fixture(params=["file", "s3"])
def kind(request: pytest.FixtureRequest) -> str:
    """Memory stores are of one process."""
    return str(request.param)


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(environment: dict[str, str]) -> Start:
    def start(script: str, *arguments: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(HERE / script), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
            text=True,
        )

    return start


def test_exactly_one_of_eight_processes_creates_a_name(
    store: ObjectStore, root: str, start: Start
) -> None:
    racers = [start("racer.py", root, f"racer-{n}", NAMES) for n in range(RACERS)]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    told = [racer.communicate(timeout=WITHIN_S) for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * RACERS, told
    outcomes = [json.loads(out) for out, _ in told]
    for name in range(NAMES):
        of_name = [one[name] for one in outcomes]
        assert sorted(of_name) == ["created"] + ["exists"] * (RACERS - 1)
        winner = of_name.index("created")
        assert store.get(f"race/{name:03}") == f"racer-{winner}".encode()
    assert len(list(store.list("race/"))) == NAMES


def test_a_store_works_on_both_sides_of_a_fork(root: str, start: Start) -> None:
    forker = start("forker.py", root, 3)
    out, told = forker.communicate(timeout=WITHIN_S)
    assert forker.returncode == 0, out + told
    assert "Traceback" not in told
