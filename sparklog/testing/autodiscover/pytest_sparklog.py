"""Fixtures of sparklog for pytest, which finds this module by its entry point.

It imports nothing of sparklog before a test asks for a fixture. So it costs other tests nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from sparklog.testing import AsyncSparklogCluster, SparklogCluster

MARKER = (
    "sparklog(brokers=1, config=None, root=None): settings of the test's `sparklog_cluster`; "
    "those of the test come before those of its class and module."
)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line("markers", MARKER)


@pytest.fixture
def sparklog_cluster(request: pytest.FixtureRequest) -> Iterator[SparklogCluster]:
    """A cluster of brokers with an empty log, for this test alone."""
    from sparklog.testing import SparklogCluster  # noqa: PLC0415 - see above

    with SparklogCluster(**_settings(request.node)) as cluster:
        yield cluster


@pytest.fixture
def async_sparklog_cluster(sparklog_cluster: SparklogCluster) -> AsyncSparklogCluster:
    """The same cluster with methods to await."""
    from sparklog.testing import AsyncSparklogCluster  # noqa: PLC0415 - see above

    return AsyncSparklogCluster.around(sparklog_cluster)


def _settings(item: Any) -> dict[str, Any]:
    """Return the arguments of all markers together; the closest ones win."""
    settings: dict[str, Any] = {}
    config: dict[str, str] = {}
    for marker in reversed(list(item.iter_markers("sparklog"))):
        if marker.args:
            raise pytest.UsageError("@pytest.mark.sparklog takes named arguments: brokers=3")
        settings.update(marker.kwargs)
        config.update(marker.kwargs.get("config") or {})
    return {**settings, "config": config}
