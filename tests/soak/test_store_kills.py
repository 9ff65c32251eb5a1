"""Brokers on Azurite and on fake-gcs-server are killed under load, and lose nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.harness.store_servers import (
    AZURE_ACCOUNT,
    KINDS,
    azure_environment,
    azurite,
    fake_gcs,
    gcs_environment,
)
from tests.soak.world import world_on

CONTAINER = "kills"
Serve = Callable[[str], AbstractContextManager[int]]
Environment = Callable[[int], dict[str, str]]
STORES: dict[str, tuple[Serve, Environment, str]] = {
    "azure": (azurite, azure_environment, f"abfs://{CONTAINER}@{AZURE_ACCOUNT}/log"),
    "gcs": (fake_gcs, gcs_environment, f"gs://{CONTAINER}/log"),
}


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", [kind for kind in STORES if kind in KINDS])
def test_kills_of_one_broker_and_of_all_lose_nothing(kind: str, tmp_path: Path) -> None:
    serve, environment_at, root = STORES[kind]
    with (
        serve(CONTAINER) as port,
        world_on(root, tmp_path, {}, environment=environment_at(port)) as world,
    ):
        world.flows()
        world.cluster.kill(1)
        world.flows()
        for broker in world.cluster.brokers:
            broker.kill()
        world.judge()
