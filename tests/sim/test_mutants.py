"""A broken build is caught: the simulation's checks, and not only its luck, are tested."""

from __future__ import annotations

import pytest

from tests.sim.mutants import MUTANTS
from tests.sim.seeds import CAMPAIGNS, run_seed


@pytest.mark.parametrize(
    ("campaign", "name"), [(campaign, name) for campaign in MUTANTS for name in MUTANTS[campaign]]
)
def test_a_broken_build_is_caught(
    campaign: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    MUTANTS[campaign][name](monkeypatch)
    plans = ((seed, CAMPAIGNS[campaign].plan(seed)) for seed in CAMPAIGNS[campaign].to_catch)
    assert any(run_seed(seed, plan=plan).failed for seed, plan in plans), f"{name} unnoticed"
