"""A broken build is caught: the simulation's checks, and not only its luck, are tested."""

from __future__ import annotations

import pytest

from tests.sim.mutants import MUTANTS
from tests.sim.seeds import run_seed

SEEDS = range(1000, 1030)
"""Each mutant is caught within these."""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_build_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    assert any(run_seed(seed).failed for seed in SEEDS), f"{name} went unnoticed"
