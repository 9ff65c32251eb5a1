"""The stores of the conformance suite: one fixture, every implementation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from sparklog.store.open import open_store
from sparklog.store.retrying import RetryingStore
from sparklog.store.settings import StoreSettings
from tests.harness.moto_server import MotoServer, moto_server

BUCKET = "conformance"

OpenStore = Callable[..., RetryingStore]


@pytest.fixture(scope="session")
def moto() -> Iterator[MotoServer]:
    """A real S3 server with one bucket."""
    with moto_server() as server:
        server.make_bucket(BUCKET)
        yield server


@pytest.fixture(params=["memory", "file", "s3"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def root(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """An empty root of each kind; the file one does not exist yet."""
    if kind == "memory":
        return f"memory://{uuid4().hex}"
    if kind == "file":
        return (tmp_path / "not" / "there yet").as_uri()
    request.getfixturevalue("moto")
    return f"s3://{BUCKET}/{uuid4().hex}/log"


@pytest.fixture
def environment(kind: str, request: pytest.FixtureRequest) -> dict[str, str]:
    """Return the variables that lead to the S3 server; none for the other kinds."""
    if kind != "s3":
        return {}
    server: MotoServer = request.getfixturevalue("moto")
    return server.environment()


@pytest.fixture
def open_again(root: str, environment: dict[str, str]) -> Iterator[OpenStore]:
    """Open the same root once more, as another process would."""
    opened: list[RetryingStore] = []

    def open_one(settings: StoreSettings | None = None) -> RetryingStore:
        opened.append(open_store(root, settings, environment=environment))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


@pytest.fixture
def store(open_again: OpenStore) -> RetryingStore:
    return open_again()
