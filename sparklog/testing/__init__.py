"""The test kit: brokers in the process of a test, with faults on request. See docs/TESTING.md.

Names are imported at their first use, because the simulation of this project lives here, too.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparklog.testing.async_cluster import AsyncSparklogCluster
    from sparklog.testing.cluster import SparklogCluster

__all__ = ["AsyncSparklogCluster", "SparklogCluster"]

_MODULES = {
    "AsyncSparklogCluster": "sparklog.testing.async_cluster",
    "SparklogCluster": "sparklog.testing.cluster",
}


def __getattr__(name: str) -> Any:
    """Import a name at its first use."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)
