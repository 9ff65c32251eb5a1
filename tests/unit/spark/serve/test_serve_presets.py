"""The presets in conf/ give every broker an executor of its own, and queries a slot beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.spark.serve.arguments import SERVE_CONF
from sparklog.spark.serve.broker_slots import Slots, advice, claim_of

CONF = Path(__file__).parents[4] / "conf"
MASTERS = {"standalone": "spark://host:7077", "yarn": "yarn", "kubernetes": "k8s://https://host"}


def settings(name: str) -> dict[str, str]:
    """Return the settings of a properties file, each once."""
    lines = (CONF / f"serve-{name}.conf").read_text().splitlines()
    words = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    found = {key: value.strip() for key, value in words}
    assert len(found) == len(words), "a setting is there twice"
    return found


def test_every_preset_is_tested() -> None:
    assert {path.stem.removeprefix("serve-") for path in CONF.glob("serve-*.conf")} == set(MASTERS)


@pytest.mark.parametrize("name", MASTERS)
def test_a_preset_needs_no_advice(name: str) -> None:
    found = settings(name)
    claim = claim_of(MASTERS[name], found, 3)
    assert claim.exclusive
    assert claim.cores == int(found["spark.executor.cores"]), "jobs run where no broker does"
    assert advice(3, Slots(4, int(found["spark.executor.cores"])), claim, found) == []


@pytest.mark.parametrize("name", MASTERS)
def test_preset_contains_the_launchers_settings(name: str) -> None:
    assert SERVE_CONF.items() <= settings(name).items()
