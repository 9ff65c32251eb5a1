"""Fixtures of the tests that kill queries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.kill.query import Query


@pytest.fixture
def query(tmp_path: Path) -> Iterator[Query]:
    """Return a query; its drivers are dead afterwards."""
    made = Query(tmp_path)
    yield made
    made.kill_all()
    made.log.close()
