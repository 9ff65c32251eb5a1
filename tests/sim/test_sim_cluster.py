"""The simulation itself, on a toy: it passes under every fault, and its mutants are caught."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sparklog.store.base import PutOutcome
from sparklog.testing.sim.cluster import SimCluster, SimPlan, SimReport
from sparklog.testing.sim.faults import FAULTS, LINK_FAULTS
from tests.sim.toy_broker import ToyBroker, ToyLog

PLAN = SimPlan(storm_s=4.0)
SEEDS_TO_CATCH = 30


class Forgetful(ToyBroker):
    """Does not know a batch it has stored."""

    async def append(self, log: ToyLog, data: bytes) -> tuple[int, int]:
        while True:
            await self.catch_up(log)
            base = log.end_offset
            if await self.put(log, base, data):
                log.add(base.to_bytes(8, "big") + data[8:])
                return 0, base


class Hopeful(ToyBroker):
    """Takes "unknown" for "created"."""

    async def put(self, log: ToyLog, base: int, data: bytes) -> bool:
        placed = base.to_bytes(8, "big") + data[8:]
        outcome = await self.store.put_if_absent(log.key(base), placed)
        return outcome is not PutOutcome.EXISTS


class Careless(ToyBroker):
    """Overwrites."""

    async def put(self, log: ToyLog, base: int, data: bytes) -> bool:
        await self.store.put(log.key(base), base.to_bytes(8, "big") + data[8:])
        return True


def _run(seed: int, kind: type[ToyBroker] = ToyBroker, plan: SimPlan = PLAN) -> SimReport:
    return SimCluster(seed, plan, kind).run()


@pytest.mark.parametrize("seed", range(10))
def test_the_toy_keeps_its_log_under_every_fault(seed: int) -> None:
    report = _run(seed)
    assert not report.failed, report.summary()
    assert len(report.history) > 50


def test_every_kind_of_fault_is_drawn() -> None:
    kinds = {kind for seed in range(10) for kind in _run(seed, plan=SimPlan(storm_s=0.1)).faults}
    assert kinds == set(FAULTS) - set(LINK_FAULTS)


@pytest.mark.parametrize(
    ("mutant", "kinds"),
    [
        (Forgetful, {"duplicate"}),
        (Hopeful, {"lost-write", "inconsistent-offsets", "vanished-read"}),
        (Careless, {"lost-write", "inconsistent-offsets", "vanished-read"}),
    ],
)
def test_a_mutant_is_caught(mutant: type[ToyBroker], kinds: set[str]) -> None:
    for seed in range(SEEDS_TO_CATCH):
        found = {anomaly.kind for anomaly in _run(seed, mutant).anomalies}
        if found & kinds:
            return
    pytest.fail(f"{mutant.__name__} went unnoticed for {SEEDS_TO_CATCH} seeds")


@pytest.mark.parametrize("rests", [True, False])
def test_no_fault_begins_during_a_rest_while_twins_fight(rests: bool) -> None:
    """The toy's twins never cease to; a broker's may need seconds to seal a log that is written."""
    plan = SimPlan(brokers=1, storm_s=4.0, faults=("twin",), rest_s=0.1 if rests else None)
    cluster = SimCluster(0, plan, ToyBroker)
    cluster.run()
    assert (len(cluster.brokers[0].incarnations) == 2) == rests


def test_a_broker_that_breaks_is_a_complaint_and_is_started_again() -> None:
    class Fragile(ToyBroker):
        async def run(self) -> None:
            if self.side.broker_id == 1:
                raise ValueError("fragile")
            await super().run()

    report = _run(1, Fragile, SimPlan(storm_s=1.0, faults=()))
    assert any("fragile" in complaint for complaint in report.complaints)
    assert report.anomalies == []


def test_a_cluster_that_never_answers_is_a_complaint() -> None:
    class Silent(ToyBroker):
        async def handle(self, request: object, context: object) -> object:
            raise ConnectionError

    report = _run(1, Silent, SimPlan(storm_s=1.0, heal_s=5.0, faults=()))
    assert any("stuck" in complaint for complaint in report.complaints)


def _digests(hash_seed: str) -> str:
    script = (
        "from tests.sim.test_sim_cluster import _run\n"
        "print([_run(seed).digest for seed in range(3)])"
    )
    return subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONHASHSEED": hash_seed},
    ).stdout


def test_seed_has_the_same_trace_in_every_process() -> None:
    here = f"{[_run(seed).digest for seed in range(3)]}\n"
    assert _digests("1") == here
    assert _digests("2") == here
